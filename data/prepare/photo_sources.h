// The sources of a data set: a list of labelled image files, each a file or a part of an archive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/system/input_file.h"

namespace owt {

struct ClassTarget {
  int32_t label = 0;  // index into PhotoSources::classes
  double target = 1;  // in [0, 1]
};

struct PhotoSource {
  std::string name{};    // a path, unique in a collection; shown in skipped.txt and in the index of a shard
  int32_t label = 0;     // index into PhotoSources::classes
  int32_t archive = -1;  // index into PhotoSources::archives; -1: a separate file
  // Its place in the archive. For a separate file: 0 and its size, or 0 if it is missing.
  uint64_t offset = 0, bytes = 0;
  std::vector<ClassTarget> targets{};  // other classes have 0; empty: the label has 1
};

// The limit on classes whose names are their numbers: a larger label is probably no label.
constexpr int32_t kMostNumberedClasses = 1 << 24;

struct PhotoSources {
  std::string root{};                   // folder of the paths of files
  std::vector<std::string> archives{};  // paths of uncompressed tar files, or with `records` of RecordIO files
  bool records = false;                 // a photo's place is a whole record (record_io.h)
  std::vector<std::string> classes{};   // for label 0, 1, ...: its key, optionally a tab and words
  std::vector<PhotoSource> photos{};
  int64_t passed_over = 0;  // files whose names do not look like images'
  // Notes for the user about likely mistakes: folders and classes without images, images next to the folders of
  // classes.
  std::vector<std::string> notes{};
};

// "a, b, c and 4 more".
std::string first_names(const std::vector<std::string>& names);

// DIR/class/**/*.jpg and so on: classes by name, the files of each class by path. Hidden files are ignored, and so is
// `out`, the folder of the data set to be made. A folder is a class only if it or a folder below it holds an image.
// Links are followed, except to a folder that contains them.
//
// An image or folder in a class that cannot be reached (a broken or circular link, no permission) counts as a photo
// that cannot be read; outside the classes it is named in a note. Throws Error if there is no such folder, class or
// image, if the folders are splits (train, val) instead of classes, and if `out` is DIR.
PhotoSources folder_sources(const std::string& dir, const std::string& out = "");

// A text file with a line `path label` per image, as Caffe's. The path may contain blanks and is relative to `root`, by
// default the folder of the file. Labels are integers from 0. `classes`: their keys, or empty: "0", "1", ... A line may
// have several labels or targets, as in `path 3,7` and `path 3:0.7,7:0.3`; then no image may come twice, and the label
// is the class with the largest target, the first among equals. Throws Error naming file and line.
PhotoSources list_sources(const std::string& path, const std::string& root, const std::vector<std::string>& classes);

bool has_targets(const PhotoSources& sources);  // any line with several labels or a target
// Throws Error if two images have one name, since a table of targets names them. of: the list or the split.
void check_named_once(const PhotoSources& sources, const std::string& of);

// Names the classes up to the largest label by their numbers where they have no name. Notes the classes without images;
// `list` is where their names could be.
void number_classes(PhotoSources& sources, const std::string& list);

// Reads the files' bytes; may be called from many threads at once.
class PhotoFiles {
 public:
  explicit PhotoFiles(const PhotoSources& sources);  // `sources` must outlive it; opens the archives; throws Error

  std::string read(const PhotoSource& source) const;  // throws BadPhoto if it cannot be read

 private:
  const PhotoSources& sources_;
  std::vector<InputFile> archives_;
};

}  // namespace owt
