#include "data/dataset.h"

#include <algorithm>

#include "data/parallel.h"

namespace owt {

const char* name_of(Split split) { return split == Split::kTrain ? "train" : split == Split::kTest ? "test" : "val"; }

const char* kind_of(Split split) {
  return split == Split::kTrain ? "training" : split == Split::kTest ? "test" : "validation";
}

std::string shown_class(std::string line) {
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

std::string class_key(const std::string& line) { return line.substr(0, line.find('\t')); }

void read_images(const Dataset& dataset, Slice images, uint8_t* pixels, int32_t* labels) {
  const int64_t elements = dataset.image().elements();
  parallel_for_or_throw(images.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      dataset.read(images.begin + i, View{}, pixels + i * elements);
      labels[i] = dataset.label(images.begin + i);
    }
  });
}

}  // namespace owt
