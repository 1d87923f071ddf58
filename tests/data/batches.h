// Small data sets whose images identify themselves, and batches as lists of numbers.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "src/core/bf16.h"
#include "src/system/check.h"

namespace owt {

// Images of 4 x 4, whose label is their index.
inline std::shared_ptr<const Dataset> numbered_images(int64_t size, int64_t colours = 3) {
  std::vector<uint8_t> pixels(static_cast<size_t>(size * 16 * colours)), labels(static_cast<size_t>(size));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37 % 251);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i);
  return std::make_shared<MemoryDataset>(Shape{4, 4, colours}, 256, pixels, labels);
}

// Images of one value like numbered_images(), with three targets each.
class TargetedImages : public MemoryDataset {
 public:
  explicit TargetedImages(int64_t size)
      : MemoryDataset({4, 4, 3}, 3, std::vector<uint8_t>(static_cast<size_t>(size * 48), 9),
                      std::vector<uint8_t>(static_cast<size_t>(size), 2)) {}
  int64_t targets() const override { return 3; }
  void write_targets(int64_t index, int32_t* to) const override {
    for (int64_t c = 0; c < 3; ++c) to[c] = bits_of_target(target(index, c));
  }
  static float target(int64_t index, int64_t c) { return static_cast<float>(index * (c + 1) % 64) / 64; }
};

// Images of one byte, which counts how often they are read and fails at one of them.
class CountingDataset : public MemoryDataset {
 public:
  CountingDataset(int64_t size, int64_t bad)
      : MemoryDataset({1, 1, 1}, 1, std::vector<uint8_t>(static_cast<size_t>(size)),
                      std::vector<uint8_t>(static_cast<size_t>(size))),
        bad_(bad) {}
  void read(int64_t index, const View& view, uint8_t* pixels) const override {
    ++reads;
    if (index == bad_) fail("image ", index, " is damaged");
    MemoryDataset::read(index, view, pixels);
  }
  mutable std::atomic<int64_t> reads{0};

 private:
  int64_t bad_;
};

inline LoaderSettings counting(const std::shared_ptr<CountingDataset>& dataset, int64_t batch) {
  return {.dataset = dataset,
          .augmenter = std::make_shared<Augmenter>(AugmentSettings{}, Shape{1, 1, 1}),
          .batch = batch,
          .shuffle = false};
}

// A set with these numbers of images of its classes, which lie among each other. No two images are alike.
inline MemoryDataset images_of_counts(std::vector<int64_t> counts, const Shape& image) {
  const int classes = static_cast<int>(counts.size());
  std::vector<uint8_t> labels;
  for (bool more = true; more;) {
    more = false;
    for (size_t c = 0; c < counts.size(); ++c)
      if (counts[c]-- > 0) labels.push_back(static_cast<uint8_t>(c)), more = true;
  }
  std::vector<uint8_t> pixels(labels.size() * static_cast<size_t>(image.elements()));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i / 7 % 241 / (1 + i % 3));
  return {image, classes, std::move(pixels), std::move(labels)};
}

// The first parts get one row more, as with split(), and the last may get none.
inline LoaderSettings of_rank(LoaderSettings made, int ranks, int rank) {
  made.rows = [=](int64_t rows) { return split(rows, ranks, rank); };
  return made;
}

struct Copy {  // a copy of a batch
  std::vector<float> images;
  std::vector<int32_t> labels;
  int64_t epoch, step_in_epoch, step_rows;
  bool operator==(const Copy&) const = default;
};

inline std::vector<float> floats(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::kCpu);
  std::vector<float> values(static_cast<size_t>(host.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = host.dtype() == DType::kBF16 ? from_bf16(static_cast<const uint16_t*>(host.raw())[i])
                                             : static_cast<const float*>(host.raw())[i];
  return values;
}

// All work on the batch must be done.
inline Copy copy(const Batch& batch) {
  const Tensor labels = batch.labels.to(Device::kCpu);
  const int32_t* first = labels.data<int32_t>();
  return {floats(batch.images), {first, first + labels.elements()}, batch.epoch, batch.step_in_epoch, batch.step_rows};
}

inline std::vector<Copy> run(BatchSource& source, int steps, const Stream& stream = Stream()) {
  std::vector<Copy> batches;
  for (int i = 0; i < steps; ++i) {
    const Batch& batch = source.next(stream);
    stream.synchronize();
    batches.push_back(copy(batch));
  }
  return batches;
}

// The batches of a loader.
inline std::vector<Copy> run(const LoaderSettings& settings, int steps) {
  Loader loader(settings);
  return run(loader, steps);
}

}  // namespace owt
