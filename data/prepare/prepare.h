// Labelled photos, resized and written as one split of a prepared data set (data/shard_index.h).
//
// What is written depends on the sources and on what PrepareSettings says it depends on, and on nothing else: not on
// threads, interruptions or the machine's state. Shard s holds the sources [s * shard_images, (s + 1) * shard_images)
// of the order that were good; the key of a record is the place of its source in the order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/prepare/photo_sources.h"

namespace owt {

struct PrepareSettings {
  // What the result depends on.
  int64_t short_side = 256;  // 0: as it is
  int quality = 90;          // JPEG's, [1, 100]
  int64_t shard_images = 1000;
  bool shuffle = true;
  uint64_t seed = 1;  // chooses the order

  int threads = 1;
  int64_t most_skipped = 0;
};

struct PrepareState {
  int64_t done = 0, photos = 0, skipped = 0;  // `done` includes what an earlier process did
};

struct Prepared {
  enum class How { kNow, kBefore, kStopped } how = How::kNow;
  int64_t images = 0, skipped = 0, shards = 0, bytes = 0;  // unless kBefore
};

// Writes `dir`; makes shards of a complete split anew whose index is damaged or whose tar file has another size; goes
// on where an earlier call with the same sources and settings was interrupted, at whatever moment. Calls go_on() after
// each photo and several times a second; false stops, and what is complete stays.
// Throws Error: `dir` holds other files, or the same split with other settings; another process works on it; more than
// most_skipped photos were bad (all that is done stays, and a higher limit goes on); a full disk.
Prepared prepare_split(const PhotoSources& sources, const std::string& dir, const PrepareSettings& settings,
                       const std::function<bool(const PrepareState&)>& go_on);

}  // namespace owt
