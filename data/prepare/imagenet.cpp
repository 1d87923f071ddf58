#include "data/prepare/imagenet.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "data/photos/photo.h"
#include "data/prepare/class_labels.h"
#include "data/prepare/ilsvrc_synsets.h"
#include "data/prepare/tar.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrainArchive = "ILSVRC2012_img_train.tar";
constexpr const char* kValArchive = "ILSVRC2012_img_val.tar";
constexpr const char* kDevkit = "ILSVRC2012_devkit_t12.tar.gz";
constexpr const char* kKaggleLabels = "LOC_val_solution.csv";

std::string in(const std::string& dir, const char* name) { return (fs::path(dir) / name).string(); }

// The members of a tar file whose names look like images; counts the others.
std::vector<TarMember> photo_members(const std::string& path, PhotoSources& sources, uint64_t offset = 0,
                                     uint64_t bytes = ~uint64_t{0}) {
  std::vector<TarMember> photos = tar_members(path, offset, bytes);
  sources.passed_over += static_cast<int64_t>(std::erase_if(photos, [](const TarMember& member) {
    return !named_like_photo(member.name) || fs::path(member.name).filename().string().starts_with('.');
  }));
  return photos;
}

PhotoSources train_archive(const std::string& path) {
  PhotoSources sources{.archives = {path}};
  std::map<std::string, TarMember> tars;  // by synset
  for (const TarMember& member : tar_members(path)) {
    const fs::path name = member.name;
    if (name.extension() != ".tar" || name.filename().string().starts_with('.')) continue;
    if (const auto [first, added] = tars.emplace(name.stem().string(), member); !added)
      fail(path, " holds class ", first->first, " twice, as ", first->second.name, " and as ", member.name,
           "; wanted one tar file per synset: pack it again, or download it again");
  }
  if (tars.empty()) fail(path, " holds no tar files; wanted one per synset, as in the official ", kTrainArchive);
  std::vector<std::string> empty;
  for (const auto& [synset, tar] : tars) {
    const std::vector<TarMember> photos = photo_members(path, sources, tar.offset, tar.bytes);
    const auto label = static_cast<int32_t>(sources.classes.size());
    for (const TarMember& photo : photos)
      sources.photos.push_back({synset + "/" + photo.name, label, 0, photo.offset, photo.bytes});
    photos.empty() ? empty.push_back(tar.name) : sources.classes.push_back(synset);
  }
  if (sources.photos.empty()) fail(path, " holds no images in its tar files; download it again");
  if (!empty.empty())
    sources.notes.push_back(concat(path, ": no class of ", first_names(empty), ": no image is in it"));
  return sources;
}

// "ILSVRC2012_val_00000001" of "val/ILSVRC2012_val_00000001.JPEG".
std::string stem(const std::string& name) { return fs::path(name).stem().string(); }

struct FileLabel {
  std::string key{};    // key of its class
  int32_t number = -1;  // number of its class, if the label is a number

  bool operator==(const FileLabel&) const = default;
};
using LabelOfFile = std::map<std::string, FileLabel>;  // by the stem of the file's name

// Parses "name label", "name,label" or a line "name,label and more" of Kaggle's table; false if there is no label.
bool parse_label_line(const std::string& line, bool kaggle, std::string& name, std::string& label) {
  const char* kBlanks = ", \t";
  const size_t begin = line.find_first_not_of(kBlanks), end = line.find_first_of(kBlanks, begin);
  const size_t second = line.find_first_not_of(kBlanks, end);
  if (end == std::string::npos || second == std::string::npos) return false;
  name = line.substr(begin, end - begin);
  const size_t last = kaggle ? line.find_first_of(kBlanks, second) : line.find_last_not_of(kBlanks) + 1;
  label = line.substr(second, std::min(last, line.size()) - second);
  return true;
}

// The number, if the whole text is one.
std::optional<int64_t> number_in(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

LabelOfFile labels_in_list(const std::string& path, const std::vector<std::string>& classes) {
  const ClassLabels known(classes);
  LabelOfFile labels;
  bool kaggle = false;
  int64_t at = 0;
  for (const std::string& line : text_lines(path)) {
    ++at;
    if (line.find_first_not_of(", \t") == std::string::npos) continue;
    std::string name;
    FileLabel label;
    if (!parse_label_line(line, kaggle, name, label.key))
      fail(path, ":", at, ": wanted the name of a file and a label, found '", line.substr(0, 80), "'");
    if (at == 1 && name == "ImageId") {
      kaggle = true;
      continue;
    }
    if (const auto number = number_in(label.key)) {
      if (*number < 0 || *number >= std::ssize(classes))
        fail(path, ":", at, ": label ", *number, ", but ", classes.size(),
             " classes are known; prepare the training images first, or give synset ids");
      label.number = static_cast<int32_t>(*number);
      if (const int32_t named = known.of(label.key); named >= 0 && named != label.number)
        fail(path, ":", at, ": label ", *number, " may be class number ", *number, ", '", classes[*number],
             "', or the class of this name, number ", named, "; sort the images into a folder per class instead");
    }
    const auto [there, added] = labels.emplace(stem(name), label);
    if (!added && there->second != label)
      fail(path, ":", at, ": ", name, " has two labels, ", there->second.key, " and ", label.key);
  }
  return labels;
}

LabelOfFile labels_in_devkit(const std::string& path) {
  const std::string truth = "data/ILSVRC2012_validation_ground_truth.txt";
  const std::vector<Synset> synsets = ilsvrc_synsets();
  LabelOfFile labels;
  for (const auto& [name, content] : unpacked_members(path, {truth}))
    for (const std::string& line : split_lines(content)) {
      const int64_t image = std::ssize(labels) + 1, id = number_in(line).value_or(0);
      if (id < 1 || id > std::ssize(synsets))
        fail(path, ": line ", image, " of its ", truth, " is '", line.substr(0, 80), "', wanted a number from 1 to ",
             synsets.size());
      labels[format("ILSVRC2012_val_{:08}", image)].key = synsets[id - 1].wnid;
    }
  if (labels.empty()) fail(path, " holds no ", truth, "; download the development kit for tasks 1 and 2 again");
  return labels;
}

LabelOfFile labels_of_val(const std::string& dir, const std::string& labels, const std::vector<std::string>& classes) {
  if (!labels.empty()) return labels_in_list(labels, classes);
  if (fs::exists(in(dir, kDevkit))) return labels_in_devkit(in(dir, kDevkit));
  if (fs::exists(in(dir, kKaggleLabels))) return labels_in_list(in(dir, kKaggleLabels), classes);
  fail("no labels for the validation images in ", dir, ": put ", kDevkit,
       " there, or give --val-labels FILE with lines `name label`");
}

// The classes, sorted by key.
std::vector<std::string> classes_of(const LabelOfFile& labels) {
  std::set<std::string> keys;
  for (const auto& [name, label] : labels) keys.insert(label.key);
  return {keys.begin(), keys.end()};
}

void give_labels(PhotoSources& sources, const LabelOfFile& files, const std::vector<std::string>& classes) {
  sources.classes = classes.empty() ? classes_of(files) : classes;
  const ClassLabels labels(sources.classes);
  for (PhotoSource& photo : sources.photos) {
    const auto file = files.find(stem(photo.name));
    if (file == files.end()) fail("no label for the validation image ", photo.name);
    photo.label = file->second.number >= 0 ? file->second.number : labels.of(file->second.key);
    if (photo.label < 0)
      fail("class '", file->second.key, "' of the validation image ", photo.name, " is none of the ", classes.size(),
           " known classes (classes.txt, or else those of the training images)");
  }
}

// Empty if `folder` has a folder per class.
PhotoSources flat_folder(const fs::path& folder, const std::string& out) {
  PhotoSources sources{.root = folder.string()};
  std::string subfolder;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code none;
    const fs::file_status status = at->status(none);
    if (name[0] == '.' || (!out.empty() && fs::equivalent(at->path(), out, none))) continue;
    if (fs::is_directory(status))
      subfolder = name;
    else if (named_like_photo(name))  // an unreadable one is skipped and listed
      sources.photos.push_back({.name = name, .bytes = fs::is_regular_file(status) ? at->file_size(none) : 0});
    else
      ++sources.passed_over;
  }
  if (error) fail("cannot read ", folder.string(), ": ", error.message());
  if (!subfolder.empty() && !sources.photos.empty())
    fail(folder.string(), " holds the image ", sources.photos[0].name, " beside folders such as ", subfolder,
         "; wanted a folder per class with all images in them, or all images without folders");
  return sources;
}

PhotoSources flat_archive(const std::string& path) {
  PhotoSources sources{.archives = {path}};
  for (const TarMember& photo : photo_members(path, sources))
    sources.photos.push_back({photo.name, 0, 0, photo.offset, photo.bytes});
  if (sources.photos.empty()) fail(path, " holds no files that are images");
  return sources;
}

}  // namespace

std::optional<PhotoSources> imagenet_train_sources(const std::string& dir, const std::string& out) {
  if (fs::exists(in(dir, kTrainArchive))) return train_archive(in(dir, kTrainArchive));
  if (fs::is_directory(in(dir, "train"))) return folder_sources(in(dir, "train"), out);
  return std::nullopt;
}

std::optional<PhotoSources> imagenet_val_sources(const std::string& dir, const std::string& labels,
                                                 const std::vector<std::string>& classes, const std::string& out) {
  PhotoSources sources;
  if (fs::exists(in(dir, kValArchive)))
    sources = flat_archive(in(dir, kValArchive));
  else if (fs::is_directory(in(dir, "val")))
    sources = flat_folder(in(dir, "val"), out);
  else
    return std::nullopt;
  if (sources.photos.empty()) {
    if (!labels.empty())
      fail(in(dir, "val"),
           " holds no images of its own but a folder per class, which says their labels; leave out "
           "--val-labels ",
           labels);
    return folder_sources(in(dir, "val"), out);
  }
  std::sort(sources.photos.begin(), sources.photos.end(),
            [](const PhotoSource& a, const PhotoSource& b) { return a.name < b.name; });
  give_labels(sources, labels_of_val(dir, labels, classes), classes);
  return sources;
}

std::vector<std::string> named_classes(std::vector<std::string> keys) {
  std::map<std::string_view, std::string_view> words;
  for (const Synset& synset : ilsvrc_synsets()) words[synset.wnid] = synset.words;
  for (std::string& key : keys)
    if (const auto found = words.find(key); found != words.end()) key = concat(key, '\t', found->second);
  return keys;
}

}  // namespace owt
