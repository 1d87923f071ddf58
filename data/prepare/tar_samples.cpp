#include "data/prepare/tar_samples.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "data/prepare/split_folder.h"
#include "data/prepare/tar.h"
#include "src/system/check.h"
#include "src/system/json_text.h"
#include "src/system/printable.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_tar(const fs::path& path) { return path.extension() == ".tar" && path.filename().string()[0] != '.'; }

std::vector<std::string> tars_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_tar(at->path())) names.push_back(at->path().filename().string());
  if (error) fail("cannot read ", folder.string(), ": ", error.message());
  std::sort(names.begin(), names.end());
  return names;
}

const char* split_of(const std::string& name) {
  return name.find("val") != std::string::npos || name.find("test") != std::string::npos ? "val" : "train";
}

// Tar files in the split's folder, and tar files in the parent folder whose names assign them to the split.
std::vector<std::string> tars_of_split(const fs::path& dir, const std::string& split,
                                       const std::vector<std::string>& beside) {
  std::error_code error;
  std::vector<std::string> paths;
  const fs::path folder = dir / split;
  if (fs::is_directory(folder, error))
    for (const std::string& name : tars_in(folder)) paths.push_back((folder / name).string());
  for (const std::string& name : beside)
    if (split_of(name) == split && !fs::exists(folder / name, error)) paths.push_back((dir / name).string());
  std::sort(paths.begin(), paths.end(),
            [](const std::string& a, const std::string& b) { return fs::path(a).filename() < fs::path(b).filename(); });
  return paths;
}

std::string trimmed(const std::string& text) {
  constexpr const char* kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string scalar_in(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_number_integer() ? value.dump() : "";
}

// Empty if the text names no class.
std::string label_in_json(const std::string& text) {
  if (json_depth(text) > kDeepestJson) return "";
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return scalar_in(value);
  for (const char* key : {"label", "cls", "class", "class_id", "class_name", "label_name", "target"})
    if (const auto found = value.find(key); found != value.end())
      if (const std::string label = scalar_in(*found); !label.empty()) return label;
  return "";
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The part of a name up to the first dot after its last slash, and the ending after that dot.
std::pair<std::string, std::string> key_and_ending(const std::string& name) {
  const size_t slash = name.find_last_of('/'), dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
  if (dot == std::string::npos) return {name, ""};
  return {name.substr(0, dot), lower(name.substr(dot + 1))};
}

// Reads the samples of a tar file of a split.
class SampleReader {
 public:
  SampleReader(TarSplit& split, Tar& tar) : split_(split), tar_(tar), files_(tar.images) {}

  void read() {
    std::set<std::string> seen;
    Members sample;
    std::string key;
    for (const TarMember& member : tar_members(tar_.path())) {
      const auto [name, ending] = key_and_ending(member.name);
      if (name.empty() || name.ends_with('/')) continue;  // hidden
      if (name != key || sample.empty()) {
        add(key, sample);
        sample.clear();
        key = name;
        if (!seen.insert(key).second)
          fail(tar_.path(), ": the sample ", key,
               " is there twice, with others in between; its files have to lie together");
      }
      if (!sample.emplace(ending, member).second) fail(tar_.path(), ": ", member.name, " is there twice");
    }
    add(key, sample);
  }

 private:
  using Members = std::map<std::string, TarMember>;  // by ending

  void add(const std::string& key, const Members& sample) {
    auto image = sample.find("jpg");
    if (image == sample.end()) image = sample.find("jpeg");
    if (image == sample.end()) {
      for (const char* other : {"png", "webp", "ppm", "bmp", "tif", "tiff"})
        if (sample.contains(other)) split_.skip(tar_, key, concat("a ", other, " file; shards have to hold JPEG"));
      return;  // not about an image
    }
    const std::string label = label_of(sample);
    if (label.empty()) return split_.skip(tar_, key, "no label beside it: wanted cls, json or txt");
    tar_.images.photos.push_back(source(image->second));
    tar_.labels.push_back(label);
  }

  static PhotoSource source(const TarMember& member) {
    return {.name = member.name, .archive = 0, .offset = member.offset, .bytes = member.bytes};
  }

  std::string label_of(const Members& sample) const {
    constexpr uint64_t kMostBytes = 1 << 20;
    for (const char* ending : {"cls", "json", "txt"})
      if (const auto found = sample.find(ending); found != sample.end() && found->second.bytes <= kMostBytes) {
        const std::string text = files_.read(source(found->second));
        return *ending == 'j' ? label_in_json(text) : trimmed(text);
      }
    return "";
  }

  TarSplit& split_;
  Tar& tar_;
  const PhotoFiles files_;
};

}  // namespace

void TarSplit::skip(const Tar& tar, const std::string& name, const std::string& why) {
  skipped.push_back(fs::path(tar.path()).filename().string() + ": " + printable(name) + "\t" + why);
}

std::vector<TarSplit> splits_in(const std::string& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) fail("no folder ", dir);
  const std::vector<std::string> beside = tars_in(dir);
  std::vector<TarSplit> splits;
  for (const char* split : {"train", "val"}) {
    TarSplit found{.folder = (fs::path(dir) / split).string()};
    if (is_prepared_split(found.folder)) fail(found.folder, " is made by owt prepare, which indexes it too");
    for (const std::string& path : tars_of_split(dir, split, beside))
      found.tars.push_back({.images = {.archives = {path}}});
    if (!found.tars.empty()) splits.push_back(std::move(found));
  }
  if (splits.empty()) fail(dir, " holds no tar files, neither itself nor in folders train and val");
  return splits;
}

void read_samples(TarSplit& split, Tar& tar) { SampleReader(split, tar).read(); }

}  // namespace owt
