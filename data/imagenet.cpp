#include "data/imagenet.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "data/ilsvrc_devkit.h"
#include "data/tar.h"
#include "src/core/check.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrainArchive = "ILSVRC2012_img_train.tar";
constexpr const char* kValArchive = "ILSVRC2012_img_val.tar";
constexpr const char* kDevkit = "ILSVRC2012_devkit_t12.tar.gz";
constexpr const char* kKaggleLabels = "LOC_val_solution.csv";

std::string in(const std::string& dir, const char* name) { return (fs::path(dir) / name).string(); }

PhotoSources train_archive(const std::string& path) {
  PhotoSources sources{.archives = {path}};
  std::vector<TarMember> tars = tar_members(path);
  std::erase_if(tars, [](const TarMember& member) { return !member.name.ends_with(".tar"); });
  if (tars.empty()) fail(path, " holds no tar files; wanted one per synset, as in the official ", kTrainArchive);
  std::sort(tars.begin(), tars.end(), [](const TarMember& a, const TarMember& b) { return a.name < b.name; });
  for (const TarMember& tar : tars) {
    const std::string synset = fs::path(tar.name).stem().string();
    const auto label = static_cast<int32_t>(sources.classes.size());
    sources.classes.push_back(synset);
    for (const TarMember& photo : tar_members(path, tar.offset, tar.bytes))
      sources.photos.push_back({synset + "/" + photo.name, label, 0, photo.offset, photo.bytes});
  }
  return sources;
}

// "ILSVRC2012_val_00000001" of "val/ILSVRC2012_val_00000001.JPEG".
std::string stem(const std::string& name) { return fs::path(name).stem().string(); }

// The key of each file's class, by the stem of its name.
using KeyOfFile = std::map<std::string, std::string>;

KeyOfFile keys_in_list(const std::string& path, const std::vector<std::string>& classes) {
  KeyOfFile keys;
  int64_t number = 0;
  for (std::string line : text_lines(path)) {
    ++number;
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == ',' || c == '\t'; }, ' ');
    std::istringstream words(line);
    std::string name, label;
    if (!(words >> name)) continue;
    if (number == 1 && name == "ImageId") continue;  // the title of Kaggle's table
    if (!(words >> label)) fail(path, ":", number, ": wanted the name of a file and a label");
    int64_t index = 0;
    const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), index);
    if (error == std::errc() && end == label.data() + label.size()) {
      if (index < 0 || index >= static_cast<int64_t>(classes.size()))
        fail(path, ":", number, ": label ", index, ", but ", classes.size(),
             " classes are known; prepare the training images first, or give synset ids");
      label = classes[static_cast<size_t>(index)];
      label.resize(std::min(label.find(' '), label.size()));
    }
    keys[stem(name)] = label;
  }
  return keys;
}

KeyOfFile keys_in_devkit(const std::string& path) {
  const IlsvrcDevkit devkit = read_ilsvrc_devkit(path);
  KeyOfFile keys;
  for (size_t i = 0; i < devkit.truth.size(); ++i) {
    const auto synset = devkit.synsets.find(devkit.truth[i]);
    if (synset == devkit.synsets.end())
      fail(path, ": the ground truth of image ", i + 1, " is ", devkit.truth[i],
           ", which is no synset of its meta.mat");
    std::string digits = std::to_string(i + 1);
    digits.insert(0, 8 - std::min<size_t>(digits.size(), 8), '0');
    keys["ILSVRC2012_val_" + digits] = synset->second.wnid;
  }
  return keys;
}

KeyOfFile keys_of_val(const std::string& dir, const std::string& labels, const std::vector<std::string>& classes) {
  if (!labels.empty()) return keys_in_list(labels, classes);
  if (fs::exists(in(dir, kDevkit))) return keys_in_devkit(in(dir, kDevkit));
  if (fs::exists(in(dir, kKaggleLabels))) return keys_in_list(in(dir, kKaggleLabels), classes);
  fail("no labels for the validation images in ", dir, ": put ", kDevkit,
       " there, or give --val-labels FILE with lines `name label`");
}

void give_labels(PhotoSources& sources, const KeyOfFile& keys) {
  std::map<std::string, int32_t> labels;
  for (const auto& [name, key] : keys) labels[key] = 0;
  for (auto& [key, label] : labels) {
    label = static_cast<int32_t>(sources.classes.size());
    sources.classes.push_back(key);
  }
  for (PhotoSource& photo : sources.photos) {
    const auto key = keys.find(stem(photo.name));
    if (key == keys.end()) fail("no label for the validation image ", photo.name);
    photo.label = labels[key->second];
  }
}

PhotoSources flat_folder(const fs::path& folder) {
  PhotoSources sources{.root = folder.string()};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name[0] == '.') continue;
    if (named_like_photo(name))
      sources.photos.push_back({.name = name, .bytes = entry.file_size()});
    else
      ++sources.passed_over;
  }
  return sources;
}

PhotoSources flat_archive(const std::string& path) {
  PhotoSources sources{.archives = {path}};
  for (const TarMember& photo : tar_members(path))
    sources.photos.push_back({photo.name, 0, 0, photo.offset, photo.bytes});
  if (sources.photos.empty()) fail(path, " holds no files");
  return sources;
}

}  // namespace

std::optional<PhotoSources> imagenet_train_sources(const std::string& dir) {
  if (fs::exists(in(dir, kTrainArchive))) return train_archive(in(dir, kTrainArchive));
  if (fs::is_directory(in(dir, "train"))) return folder_sources(in(dir, "train"));
  return std::nullopt;
}

std::optional<PhotoSources> imagenet_val_sources(const std::string& dir, const std::string& labels,
                                                 const std::vector<std::string>& classes) {
  PhotoSources sources;
  if (fs::exists(in(dir, kValArchive)))
    sources = flat_archive(in(dir, kValArchive));
  else if (fs::is_directory(in(dir, "val")))
    sources = flat_folder(in(dir, "val"));
  else
    return std::nullopt;
  if (sources.photos.empty()) return folder_sources(in(dir, "val"));
  std::sort(sources.photos.begin(), sources.photos.end(),
            [](const PhotoSource& a, const PhotoSource& b) { return a.name < b.name; });
  give_labels(sources, keys_of_val(dir, labels, classes));
  return sources;
}

std::vector<std::string> named_classes(std::vector<std::string> keys, const std::string& dir) {
  if (!fs::exists(in(dir, kDevkit))) return keys;
  std::map<std::string, std::string> words;
  for (const auto& [id, synset] : read_ilsvrc_devkit(in(dir, kDevkit)).synsets) words[synset.wnid] = synset.words;
  for (std::string& key : keys)
    if (!words[key].empty()) key += " " + words[key];
  return keys;
}

}  // namespace owt
