// The samples of tar files in WebDataset's convention (index_tars.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/prepare/photo_sources.h"
#include "data/shard_index.h"

namespace owt {

// The contents of a tar file: the images, their labels as stored, and later the records of the good ones.
struct Tar {
  PhotoSources images{};
  std::vector<std::string> labels{};  // one per image
  ShardIndex index{};

  const std::string& path() const { return images.archives[0]; }
};

struct TarSplit {
  std::string folder{};
  std::vector<Tar> tars{};
  std::vector<std::string> skipped{};  // lines of skipped.txt
  int64_t turned = 0;

  // name: of an image or a sample.
  void skip(const Tar& tar, const std::string& name, const std::string& why);
  int64_t images() const {
    int64_t count = 0;
    for (const Tar& tar : tars) count += std::ssize(tar.images.photos);
    return count;
  }
};

// Throws Error if there are none.
std::vector<TarSplit> splits_in(const std::string& dir);

// Fills in the images and labels of a tar file of the split. Throws Error if it repeats a sample's name.
void read_samples(TarSplit& split, Tar& tar);

}  // namespace owt
