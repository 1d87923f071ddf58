// What a data set is prepared from: a list of labelled image files, each of them a file or a part of an archive.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace owt {

struct PhotoSource {
  std::string name{};    // a path: unique in a collection; what skipped.txt and the index of a shard show
  int32_t label = 0;     // index into PhotoSources::classes
  int32_t archive = -1;  // index into PhotoSources::archives; -1: a file of its own
  // Its place in the archive. For a file of its own: 0 and the bytes that it has now, 0 where it is missing.
  uint64_t offset = 0, bytes = 0;
};

struct PhotoSources {
  std::string root{};                   // where the names of files begin
  std::vector<std::string> archives{};  // paths of uncompressed tar files
  std::vector<std::string> classes{};   // for label 0, 1, ...: its key, then perhaps a tab and words
  std::vector<PhotoSource> photos{};
  int64_t passed_over = 0;  // files that do not look like images, by their name
  // Lines for the user about what may have been meant otherwise: folders and classes without images, images beside the
  // folders of classes.
  std::vector<std::string> notes{};
};

// "a, b, c and 4 more".
std::string first_names(const std::vector<std::string>& names);

// DIR/class/**/*.jpg and so on: classes by name, the files of each by path. Hidden files do not count, nor does `out`,
// the folder of the data set to be made. A folder that holds no image, also not further below, is no class. Links are
// followed, but not to a folder that they lie in; an image or a folder in a class that cannot be reached (a link that
// leads nowhere or round in circles, no permission) is a photo that cannot be read; what cannot be reached beside the
// classes is named in a note. Throws Error where there is no such folder, no class or no image, where the folders are
// splits (train, val) instead of classes, and where `out` is DIR.
PhotoSources folder_sources(const std::string& dir, const std::string& out = "");

// A text file with a line `path label` per image, as Caffe's. The path, which may hold blanks, is taken from `root`, by
// default the folder of the file; labels are integers from 0. `classes`: their keys, or empty: "0", "1", ... Throws
// Error naming file and line.
PhotoSources list_sources(const std::string& path, const std::string& root, const std::vector<std::string>& classes);

// The files' bytes, read from many threads at a time.
class PhotoFiles {
 public:
  explicit PhotoFiles(const PhotoSources& sources);  // which must outlive it; opens the archives, throws Error
  ~PhotoFiles();
  PhotoFiles(const PhotoFiles&) = delete;
  PhotoFiles& operator=(const PhotoFiles&) = delete;

  std::string read(const PhotoSource& source) const;  // throws BadPhoto where it cannot be read

 private:
  const PhotoSources& sources_;
  std::vector<int> archives_;  // open files
};

// The labels of classes by their keys.
class ClassLabels {
 public:
  explicit ClassLabels(const std::vector<std::string>& classes);  // lines of a classes.txt

  int32_t of(const std::string& key) const;  // -1: no class has it; throws Error where several have

 private:
  std::map<std::string, int32_t> labels_{};  // kSeveral: more than one
};

// Lines `key<TAB>words`, with the words that `names` has, lines `key words`: each is of the longest key that it starts
// with. Throws Error for two lines of one key, and where there are names and none is of a key.
std::vector<std::string> with_words(std::vector<std::string> keys, const std::vector<std::string>& names);

// Gives each photo the label that its class has in `classes`, the lines of a classes.txt; where that is empty, it
// becomes `lines`, one per class of the sources. Throws Error naming a class that is not there; `path` is that file.
void agree_on_classes(PhotoSources& sources, const std::vector<std::string>& lines, std::vector<std::string>& classes,
                      const std::string& path);

}  // namespace owt
