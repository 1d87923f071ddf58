// The order of the samples in an epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "src/core/philox.h"

namespace owt {

// A permutation of 0 .. size-1 that depends on the random numbers only: Fisher-Yates.
std::vector<int64_t> permutation(const Philox& random, int64_t size);

// The permutation of (seed, epoch, size), RandomStream::kShuffle. Without `shuffle`: 0 .. size-1 in order.
std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size, bool shuffle);

enum class Sampling {
  kUniform,   // every image once in an epoch
  kBalanced,  // every class equally often
};

// A place of an epoch's order. 8 bytes, as batches carry it to a GPU.
struct SampleDraw {
  uint32_t sample = 0;  // index in the data set
  // How often all images of the data set, or with kBalanced all images of the sample's class, were shown before. So
  // (pass, sample) occurs once in a run, and its random numbers too (View::epoch).
  uint32_t pass = 0;

  bool operator==(const SampleDraw&) const = default;
};

// The orders of all epochs. An epoch has as many places as the data set has images.
//   kUniform:  epoch_order(); the pass is the epoch.
//   kBalanced: rounds follow each other without regard to epochs. A round shows one image of each class that has
//              images, with the classes in a new order. The images of a class come in a new order in each pass over
//              them, so none comes again before all others of its class have come. Place p of epoch e is place
//              e * size + p of this sequence.
// An order depends on the seed, the epoch and the labels only.
// Source of kBalanced: class-aware sampling, Shen, Lin and Huang 2016, "Relay backpropagation for effective learning of
// deep convolutional neural networks".
class EpochOrders {
 public:
  // shuffle: with kUniform. Throws Error for more than 2^32 images.
  EpochOrders(const Dataset& images, uint64_t seed, bool shuffle, Sampling sampling);

  std::vector<SampleDraw> draws(int64_t epoch) const;

 private:
  struct ClassImages {
    size_t first = 0, count = 0;  // in images_
  };
  std::vector<SampleDraw> balanced(int64_t epoch) const;
  // Writes the images of a class in the order of a pass to the same places of `images`.
  void begin_pass(const ClassImages& of, int64_t pass, std::vector<uint32_t>& images) const;

  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
  std::vector<ClassImages> classes_;  // with kBalanced: the classes that have images
  std::vector<uint32_t> images_;      // class by class
};

}  // namespace owt
