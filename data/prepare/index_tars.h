// Makes shards of other programs in WebDataset's convention readable as they are. Writes next to them an index for each
// tar file, shards.txt, dataset.json and classes.txt (data/shard_index.h). No image is copied.
//
// A sample consists of consecutive members with the same name up to its first dot: an image in jpg or jpeg, and a label
// in cls, json or txt, the first of these that exists. cls and txt hold a number from 0 or the name of a class. json
// holds such a number or name, or an object with one under label, cls, class, class_id, class_name, label_name or
// target.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/prepare/prepare.h"

namespace owt {

struct TarIndexing {
  std::vector<std::string> classes{};  // lines of a classes.txt; empty: DIR/classes.txt, or the classes of the labels
  std::function<int64_t(int64_t)> most_skipped{};  // the maximum, by the number of images of a split
  int threads = 1;
};

// The result for a split, train or val.
struct IndexedSplit {
  std::string folder{};
  int64_t images = 0, skipped = 0, shards = 0, classes = 0;
  int64_t turned = 0;  // images with an EXIF orientation, which are used without turning them
};

// Indexes DIR/train/*.tar and DIR/val/*.tar. If DIR itself holds tar files, it first makes folders with links to them;
// files with val or test in their names go to val. Decodes each image once. keep_going() gets the progress of a split
// several times a second. If it returns false, writing stops and the result is empty.
// Throws Error for a split that owt prepare made; for tar files that are compressed, repeat a sample's name, or label
// some images by number and others by name; and if more samples than allowed have no usable image or label.
std::vector<IndexedSplit> index_tars(const std::string& dir, const TarIndexing& settings,
                                     const std::function<bool(const PrepareState&)>& keep_going);

}  // namespace owt
