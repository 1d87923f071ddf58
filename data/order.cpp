#include "data/order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "src/core/uniform.h"
#include "src/system/check.h"

namespace owt {
namespace {

std::vector<int64_t> counted(int64_t size) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

// Uses the random blocks first + 1 .. first + items.size() - 1.
template <class T>
void shuffle_items(std::span<T> items, const Philox& random, uint64_t first = 0) {
  for (size_t last = items.size(); last-- > 1;) {
    const auto bits = random.block(first + last);
    std::swap(items[last], items[below(last + 1, uint64_t{bits[0]} << 32 | bits[1])]);
  }
}

}  // namespace

std::vector<int64_t> permutation(const Philox& random, int64_t size) {
  std::vector<int64_t> order = counted(size);
  shuffle_items(std::span(order), random);
  return order;
}

std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size, bool shuffle) {
  if (!shuffle) return counted(size);
  return permutation(Philox(seed, RandomStream::kShuffle, epoch), size);
}

EpochOrders::EpochOrders(const Dataset& images, uint64_t seed, bool shuffle, Sampling sampling)
    : size_(images.size()), seed_(seed), shuffle_(shuffle) {
  OWT_CHECK(size_ <= std::numeric_limits<uint32_t>::max(), size_, " images in a data set");
  if (sampling == Sampling::kUniform) return;
  std::vector<size_t> next;  // the place of the next image of each class
  size_t first = 0;
  for (const int64_t count : images_of_classes(images)) {
    next.push_back(first);
    if (count > 0) classes_.push_back({first, static_cast<size_t>(count)});
    first += count;
  }
  images_.resize(first);
  for (int64_t i = 0; i < size_; ++i) images_[next[images.label(i)]++] = static_cast<uint32_t>(i);
}

std::vector<SampleDraw> EpochOrders::draws(int64_t epoch) const {
  if (!classes_.empty()) return balanced(epoch);
  std::vector<SampleDraw> draws;
  draws.reserve(size_);
  for (const int64_t sample : epoch_order(seed_, epoch, size_, shuffle_))
    draws.push_back({static_cast<uint32_t>(sample), static_cast<uint32_t>(epoch)});
  return draws;
}

std::vector<SampleDraw> EpochOrders::balanced(int64_t epoch) const {
  const int64_t classes = std::ssize(classes_), begin = epoch * size_;
  std::vector<uint32_t> images(images_.size());
  std::vector<int64_t> pass_of(classes_.size(), -1), round_order(classes_.size());
  int64_t round = -1;
  std::vector<SampleDraw> draws;
  draws.reserve(size_);
  for (int64_t place = begin; place < begin + size_; ++place) {
    if (place / classes != round) {
      round = place / classes;
      std::iota(round_order.begin(), round_order.end(), int64_t{0});
      shuffle_items(std::span(round_order), Philox(seed_, RandomStream::kShuffle, round, "classes"));
    }
    const int64_t c = round_order[place % classes];
    const ClassImages& of = classes_[c];
    const auto count = static_cast<int64_t>(of.count), pass = round / count;
    if (pass_of[c] != pass) begin_pass(of, pass_of[c] = pass, images);
    draws.push_back({images[of.first + round % count], static_cast<uint32_t>(pass)});
  }
  return draws;
}

void EpochOrders::begin_pass(const ClassImages& of, int64_t pass, std::vector<uint32_t>& images) const {
  const std::span there(images.data() + of.first, of.count);
  std::copy_n(images_.begin() + static_cast<std::ptrdiff_t>(of.first), of.count, there.begin());
  shuffle_items(there, Philox(seed_, RandomStream::kShuffle, pass, "images of a class"), of.first);
}

}  // namespace owt
