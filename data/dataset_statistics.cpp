#include <algorithm>
#include <cmath>
#include <mutex>

#include "data/augment.h"
#include "data/parallel.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Exact sums of pixels over a range of images.
struct PixelSums {
  explicit PixelSums(const Shape& image) : values(image.elements()), squares(values.size()) {}

  void add(const Dataset& dataset, int64_t begin, int64_t end) {
    // 32-bit sums are twice as fast, and can hold this many squares of a byte.
    constexpr int64_t kImagesPerBlock = 1 << 16;
    const size_t elements = values.size();
    std::vector<uint8_t> pixels(elements);
    std::vector<uint32_t> value(elements), square(elements);
    for (int64_t block = begin; block < end; block += kImagesPerBlock) {
      std::fill(value.begin(), value.end(), 0);
      std::fill(square.begin(), square.end(), 0);
      for (int64_t i = block; i < std::min(end, block + kImagesPerBlock); ++i) {
        dataset.read(i, View{}, pixels.data());
        for (size_t e = 0; e < elements; ++e) {
          const uint32_t pixel = pixels[e];
          value[e] += pixel;
          square[e] += pixel * pixel;
        }
      }
      for (size_t e = 0; e < elements; ++e) values[e] += value[e], squares[e] += square[e];
    }
  }
  void add(const PixelSums& other) {
    for (size_t e = 0; e < values.size(); ++e) values[e] += other.values[e], squares[e] += other.squares[e];
  }

  std::vector<uint64_t> values, squares;
};

PixelSums sum_images(const Dataset& dataset) {
  PixelSums total(dataset.image());
  std::mutex mutex;
  parallel_for_or_throw(dataset.size(), 256, [&](int64_t begin, int64_t end) {
    PixelSums part(dataset.image());
    part.add(dataset, begin, end);
    const std::lock_guard lock(mutex);
    total.add(part);
  });
  return total;
}

}  // namespace

DatasetStatistics compute_statistics(const Dataset& dataset) {
  if (dataset.size() == 0) fail("the training set is empty: there are no means to compute");
  const PixelSums total = sum_images(dataset);
  const double images = dataset.size();
  const size_t channels = dataset.image()[2];
  std::vector<uint64_t> values(channels), squares(channels);
  DatasetStatistics statistics;
  for (size_t e = 0; e < total.values.size(); ++e) {
    statistics.pixel_mean.push_back(total.values[e] / images);
    values[e % channels] += total.values[e];
    squares[e % channels] += total.squares[e];
  }
  const double count = images * dataset.image().elements() / channels;
  for (size_t c = 0; c < channels; ++c) {
    const double mean = values[c] / count;
    statistics.channel_mean.push_back(mean);
    statistics.channel_std.push_back(std::sqrt(std::max(0.0, squares[c] / count - mean * mean)));
  }
  return statistics;
}

}  // namespace owt
