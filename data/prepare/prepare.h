// Resizes labelled photos and writes them as one split of a prepared data set (data/shard_index.h).
//
// The output depends only on the sources and on the settings that PrepareSettings marks. It does not depend on threads,
// interruptions or the machine's state. Shard s holds the good sources among [s * shard_images, (s + 1) * shard_images)
// of the order; the key of a record is the index of its source in the order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/prepare/photo_sources.h"

namespace owt {

struct PrepareSettings {
  // Settings that the output depends on.
  int64_t short_side = 256;  // 0: the original size
  int quality = 90;          // JPEG's, [1, 100]
  bool grey = false;         // stores the luma only
  int64_t shard_images = 1000;
  bool shuffle = true;
  uint64_t seed = 1;  // determines the order

  int threads = 1;
  int64_t most_skipped = 0;
};

struct PrepareState {
  int64_t done = 0, photos = 0, skipped = 0;  // `done` includes the work of earlier processes
};

struct Prepared {
  enum class How { kNow, kBefore, kStopped } how = How::kNow;
  int64_t images = 0, skipped = 0, shards = 0, bytes = 0;  // unless kBefore
  std::vector<int64_t> images_of_classes{};                // by label; the same
};

// Writes `dir`. Continues if an earlier call with the same sources and settings was interrupted at any moment. In a
// complete split it rewrites shards whose index is damaged or whose tar file has another size. Calls keep_going() after
// each photo and several times a second; false stops, and complete shards are kept.
// Throws Error if `dir` holds other files, or the same split with other settings; if another process works on it; if
// more than most_skipped photos were bad (finished work is kept, and a call with a higher limit continues); or if the
// disk is full.
Prepared prepare_split(const PhotoSources& sources, const std::string& dir, const PrepareSettings& settings,
                       const std::function<bool(const PrepareState&)>& keep_going);

// Writes the table of targets (data/relabelled.h) of a split of the data set in `folder` that was made of these
// sources. Returns its path.
std::string write_targets(const PhotoSources& sources, const std::string& folder, Split split);

}  // namespace owt
