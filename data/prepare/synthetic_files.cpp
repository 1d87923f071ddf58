#include "data/prepare/synthetic_files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "data/cifar.h"
#include "data/photos/photo.h"
#include "data/prepare/in_order.h"
#include "data/prepare/temporary_folder.h"
#include "src/system/check.h"
#include "src/system/files.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr int kTrainFiles = 5;

void write_split(const fs::path& folder, const SyntheticDataset& images, Split split) {
  if (split == Split::kTest) {
    write_cifar10_file((folder / "test_batch.bin").string(), images, {0, images.size()});
    return;
  }
  for (int file = 0; file < kTrainFiles; ++file)
    write_cifar10_file((folder / concat("data_batch_", file + 1, ".bin")).string(), images,
                       owt::split(images.size(), kTrainFiles, file));
}

// Throws Error if the folder holds anything except files of this format.
void check_old(const fs::path& folder) {
  std::set<std::string> ours{"test_batch.bin", "batches.meta.txt"};
  for (int file = 1; file <= kTrainFiles; ++file) ours.insert(concat("data_batch_", file, ".bin"));
  for (const auto& entry : fs::directory_iterator(folder))
    if (!ours.contains(entry.path().filename().string()))
      fail(folder.string(), " holds ", entry.path().filename().string(),
           ", which is no file of a synthetic data set; nothing was changed; choose another folder");
}

struct DrawnPhoto {
  std::string jpeg;
  int64_t bytes() const { return std::ssize(jpeg); }
};

void check_photos(const SyntheticPhotos& photos, int64_t count, const fs::path& target) {
  if (count < 1) fail("a data set of ", count, " drawn photographs; wanted at least 1");
  if (photos.classes < 1 || photos.classes > kSyntheticPhotoClasses)
    fail("drawn photographs of ", photos.classes, " classes; wanted 1 to ", kSyntheticPhotoClasses);
  if (fs::exists(target)) fail(target.string(), " exists already; remove it, or choose another folder");
}

void write_photo(const std::string& path, const std::string& jpeg) {
  std::ofstream file(path, std::ios::binary);
  file << jpeg;
  file.close();
  if (!file) fail("cannot write ", path, ": ", std::strerror(errno));
}

std::string photo_name(int64_t index) {
  char name[32];
  std::snprintf(name, sizeof name, "%07lld.jpg", static_cast<long long>(index));
  return name;
}

}  // namespace

std::string prepare_synthetic(const std::string& dir, int64_t train_images, int64_t test_images, uint64_t seed,
                              bool force) {
  if (train_images < kTrainFiles || test_images < 1)
    fail("a synthetic data set of ", train_images, " training and ", test_images, " test images; wanted at least ",
         kTrainFiles, " and 1");
  const fs::path target = fs::path(dir) / "cifar-10-batches-bin";
  if (fs::exists(target) && !force)
    fail(target.string(), " exists already; choose another folder, or replace it with --force");
  const TemporaryFolder beside(dir);
  const fs::path fresh = fs::path(beside.path()) / target.filename();
  fs::create_directory(fresh);
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const SyntheticDataset images(
        {.size = split == Split::kTrain ? train_images : test_images, .seed = seed, .split = split});
    write_split(fresh, images, split);
    write_cifar10_names(fresh.string(), images.class_names());
  }
  if (force && fs::exists(target)) {
    check_old(target);
    fs::rename(target, fs::path(beside.path()) / "old");  // removed with the temporary folder
  }
  fs::rename(fresh, target);
  sync_folder(dir);
  return target.string();
}

bool write_synthetic_photos(const std::string& dir, const SyntheticPhotos& photos, int64_t count, int threads,
                            const std::function<bool(int64_t)>& keep_going) {
  const fs::path target = fs::path(dir) / (photos.split == Split::kTrain ? "train" : "val");
  check_photos(photos, count, target);
  const TemporaryFolder beside(dir);
  const fs::path fresh = fs::path(beside.path()) / target.filename();
  const std::vector<std::string> classes = photos.class_names();
  for (const std::string& name : classes) fs::create_directories(fresh / name);
  InOrder<DrawnPhoto> drawn(
      count, threads, [&](int64_t i) { return DrawnPhoto{jpeg_of(photos.draw(i), {})}; }, 64, int64_t{1} << 28);
  for (int64_t i = 0; i < count; ++i) {
    std::optional<DrawnPhoto> photo;
    do {
      if (!keep_going(i)) return false;
      photo = drawn.next(std::chrono::milliseconds(200));
    } while (!photo);
    write_photo((fresh / classes[photos.label(i)] / photo_name(i)).string(), photo->jpeg);
  }
  fs::rename(fresh, target);
  sync_folder(dir);
  return true;
}

}  // namespace owt
