// A data set whose images are all in memory, as bytes.
#pragma once

#include <cstring>
#include <utility>

#include "data/dataset.h"
#include "src/system/check.h"
#include "src/system/files.h"

namespace owt {

class MemoryDataset : public Dataset {
 public:
  // pixels: images of H x W x C bytes, in order; labels: one per image, in [0, classes); names: one per class, or none.
  MemoryDataset(const Shape& image, int classes, std::vector<uint8_t> pixels, std::vector<uint8_t> labels,
                std::vector<std::string> names = {})
      : image_(image),
        classes_(classes),
        pixels_(std::move(pixels)),
        labels_(std::move(labels)),
        names_(std::move(names)) {
    OWT_CHECK_EQ(static_cast<int64_t>(pixels_.size()), size() * image_.elements());
    OWT_CHECK(names_.empty() || static_cast<int>(names_.size()) == classes_);
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  Shape image() const override { return image_; }
  int classes() const override { return classes_; }
  int label(int64_t index) const override { return labels_[index]; }
  void read(int64_t index, const View&, uint8_t* pixels) const override {
    const auto bytes = static_cast<size_t>(image_.elements());
    std::memcpy(pixels, pixels_.data() + static_cast<size_t>(index) * bytes, bytes);
  }
  std::vector<std::string> class_names() const override { return names_; }
  uint64_t checksum() const override {
    const auto of = [](const std::vector<uint8_t>& bytes) {
      return checksum_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    };
    return of(pixels_) ^ (of(labels_) << 1);
  }

 private:
  Shape image_;
  int classes_;
  std::vector<uint8_t> pixels_, labels_;
  std::vector<std::string> names_;
};

}  // namespace owt
