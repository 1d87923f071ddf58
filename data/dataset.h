// Labelled images, by index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace owt {

enum class Split { kTrain, kTest };

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual Shape image() const = 0;  // H x W x C, the same for all
  virtual int classes() const = 0;
  virtual int label(int64_t index) const = 0;                   // [0, classes)
  virtual void read(int64_t index, uint8_t* pixels) const = 0;  // H x W x C bytes; safe from many threads
  virtual std::vector<std::string> class_names() const = 0;     // as many as classes(), or empty where unknown
};

// Images and labels one after the other, read by the calling rank's team of threads. Throws what reading throws.
void read_images(const Dataset& dataset, Slice images, uint8_t* pixels, int32_t* labels);

}  // namespace owt
