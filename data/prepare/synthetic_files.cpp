#include "data/prepare/synthetic_files.h"

#include <filesystem>
#include <set>

#include "data/cifar.h"
#include "data/prepare/temporary_folder.h"
#include "data/synthetic.h"
#include "src/core/check.h"
#include "src/core/files.h"

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

// Throws Error where the folder holds anything but files of this format.
void check_old(const fs::path& folder) {
  std::set<std::string> ours{"test_batch.bin", "batches.meta.txt"};
  for (int file = 1; file <= kTrainFiles; ++file) ours.insert(concat("data_batch_", file, ".bin"));
  for (const auto& entry : fs::directory_iterator(folder))
    if (!ours.contains(entry.path().filename().string()))
      fail(folder.string(), " holds ", entry.path().filename().string(),
           ", which is no file of a synthetic data set; nothing was changed; choose another folder");
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
    fs::rename(target, fs::path(beside.path()) / "old");  // goes with the temporary folder
  }
  fs::rename(fresh, target);
  sync_folder(dir);
  return target.string();
}

}  // namespace owt
