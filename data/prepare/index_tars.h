// Shards that other programs have written in WebDataset's convention, made readable as they are: an index for each tar
// file, shards.txt, dataset.json and classes.txt are written beside them (data/shard_index.h). No image is copied.
//
// A sample are the members that follow each other and share their name up to its first dot: an image in jpg or jpeg and
// its label in cls, json or txt, the first of these that is there. cls and txt hold a number from 0 or the name of a
// class; json is such a number or name, or an object with one of them under label, cls, class, class_id, class_name,
// label_name or target.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/prepare/prepare.h"

namespace owt {

struct TarIndexing {
  std::vector<std::string> classes{};  // lines of a classes.txt; empty: DIR/classes.txt, else what the labels say
  std::function<int64_t(int64_t)> most_skipped{};  // of so many images of a split
  int threads = 1;
};

// What became of a split, train or val.
struct IndexedSplit {
  std::string folder{};
  int64_t images = 0, skipped = 0, shards = 0, classes = 0;
  int64_t turned = 0;  // images that EXIF says are turned, which are seen as they lie there
};

// Of DIR/train/*.tar and DIR/val/*.tar; where DIR holds tar files itself, folders with links to them are made first,
// val for those whose names speak of val or test. Decodes each image once. go_on() is told of the images of a split,
// several times a second; where it says false, nothing more is written and the result is empty.
// Throws Error for a split that owt prepare made, for tar files that are compressed, repeat a sample's name, or label
// some images by number and others by name, and where more samples than allowed have no usable image or label.
std::vector<IndexedSplit> index_tars(const std::string& dir, const TarIndexing& settings,
                                     const std::function<bool(const PrepareState&)>& go_on);

}  // namespace owt
