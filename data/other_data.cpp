#include "data/other_data.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "data/photos/photo.h"
#include "src/system/printable.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEntries = 1000;  // the first entries identify a folder

bool holds_images(const fs::path& folder) {
  std::error_code error;
  int seen = 0;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end && seen < kMostEntries; ++seen) {
    if (named_like_photo(at->path().string())) return true;
    at.increment(error);
  }
  return false;
}

struct Entries {
  std::vector<std::string> folders{}, images{};  // folders that hold images; images
  bool tars = false;
};

Entries entries_in(const fs::path& folder) {
  Entries found;
  std::error_code error, unknown;
  int seen = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end && seen < kMostEntries; ++seen) {
    const std::string name = at->path().filename().string();
    if (name[0] != '.') {
      if (at->is_directory(unknown)) {
        if (holds_images(at->path())) found.folders.push_back(name);
      } else if (named_like_photo(name)) {
        found.images.push_back(name);
      } else {
        found.tars = found.tars || name.ends_with(".tar");
      }
    }
    at.increment(error);
  }
  std::sort(found.folders.begin(), found.folders.end());
  std::sort(found.images.begin(), found.images.end());
  return found;
}

std::string some(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 3); ++i) text += (i > 0 ? ", " : "") + printable(names[i]);
  return text + (names.size() > 3 ? ", ..." : "");
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string other_data(const std::string& folder) {
  const fs::path dir = folder;
  if (is_there(dir / "classes.txt") &&
      (is_there(dir / "train" / "dataset.json") || is_there(dir / "val" / "dataset.json")))
    return "it holds prepared photographs, which recipes with format = \"shards\" read";
  for (const fs::path& at : {dir, dir / "cifar-10-batches-bin", dir / "cifar-100-binary"})
    if (is_there(at / "data_batch_1.bin") || is_there(at / "test_batch.bin"))
      return "it holds CIFAR-10, which recipes with format = \"cifar10\" read";
    else if (is_there(at / "train.bin") || is_there(at / "test.bin"))
      return "it holds CIFAR-100, which recipes with format = \"cifar100\" read";
  const std::string shown = printable(folder);
  if (is_there(dir / "ILSVRC2012_img_train.tar") || is_there(dir / "ILSVRC2012_img_val.tar"))
    return "it holds archives of ILSVRC2012; owt prepare imagenet " + shown + " OUT makes a data set of them";
  const Entries found = entries_in(dir);
  if (found.tars || entries_in(dir / "train").tars || entries_in(dir / "val").tars)
    return "it holds tar files; if they are shards of images, owt prepare index " + shown + " makes them readable";
  if (has(found.folders, "train") && has(found.folders, "val"))
    return "it holds images in folders train and val; owt prepare imagenet " + shown + " OUT makes a data set of them";
  if (found.folders.size() == 1 && !entries_in(dir / found.folders[0]).folders.empty())
    return "it holds folders of images in " + printable(found.folders[0]) + "; owt prepare folder " +
           printable((dir / found.folders[0]).string()) + " OUT makes a data set of them";
  if (!found.folders.empty())
    return "it holds folders of images (" + some(found.folders) + "); owt prepare folder " + shown +
           " OUT makes a data set of them";
  if (!found.images.empty())
    return "it holds images (" + some(found.images) +
           "); put them into a folder for each class and use owt prepare folder, or list their labels and use owt "
           "prepare list";
  return "";
}

}  // namespace owt
