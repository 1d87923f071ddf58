#include "data/held_out.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "data/order.h"
#include "src/system/files.h"
#include "src/system/own_words.h"

namespace owt {
namespace {

// Some of the images of a data set. The index of an image, which determines its augmentation, is its place among these.
class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> images)
      : whole_(std::move(whole)), images_(std::move(images)) {}

  int64_t size() const override { return std::ssize(images_); }
  Shape image() const override { return whole_->image(); }
  int classes() const override { return whole_->classes(); }
  int label(int64_t index) const override { return whole_->label(in_whole(index)); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  std::vector<std::string> class_lines() const override { return whole_->class_lines(); }
  uint64_t checksum() const override {
    const std::string_view places{reinterpret_cast<const char*>(images_.data()), images_.size() * sizeof(int64_t)};
    return whole_->checksum() ^ checksum_of(places);
  }
  std::string name(int64_t index) const override { return whole_->name(in_whole(index)); }
  int64_t targets() const override { return whole_->targets(); }
  void write_targets(int64_t index, int32_t* to) const override { whole_->write_targets(in_whole(index), to); }
  void read(int64_t index, const View& view, uint8_t* pixels) const override {
    whole_->read(in_whole(index), view, pixels);
  }
  bool depends_on_view() const override { return whole_->depends_on_view(); }
  FileRow read_jpeg(int64_t index, const View& view, uint8_t* bytes) const override {
    return whole_->read_jpeg(in_whole(index), view, bytes);
  }
  int64_t most_pixels_of_files() const override { return whole_->most_pixels_of_files(); }

 private:
  int64_t in_whole(int64_t index) const { return images_[index]; }

  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> images_;  // in increasing order
};

int64_t count_of(double wanted, int64_t size, const std::string& setting) {
  if (size < 2) fail(setting, ": one training image cannot be divided; give more images, or leave ", setting, " out");
  const auto count = wanted < 1 ? std::llround(wanted * size) : static_cast<int64_t>(std::min(wanted, 1e18));
  if (count < 1 || count >= size)
    fail(setting, " = ", number_text(wanted), " holds ", count, " of the ", size, " training images out, wanted 1 to ",
         size - 1, "; give a share below 1, e.g. 0.1, or a number of images");
  return count;
}

// Divides `count` in proportion to `sizes`: rounded down, and the rest goes to the largest remainders, of equal ones to
// the first. No part is the whole size as long as others can be larger by one; then `exactly` decides whether some are,
// or the sum is less than `count`.
std::vector<int64_t> shared_out(int64_t count, const std::vector<int64_t>& sizes, bool exactly) {
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<int64_t> parts, rest;
  for (const int64_t size : sizes) parts.push_back(count * size / all), rest.push_back(count * size % all);
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rest[a] > rest[b]; });
  int64_t left = std::accumulate(parts.begin(), parts.end(), count, std::minus<>());
  for (const size_t at : order)
    if (left > 0 && parts[at] + 1 < sizes[at]) ++parts[at], --left;
  for (const size_t at : order)
    if (exactly && left > 0 && parts[at] < sizes[at]) ++parts[at], --left;
  return parts;
}

}  // namespace

std::shared_ptr<const Dataset> some_of(std::shared_ptr<const Dataset> images, std::vector<int64_t> numbers) {
  return std::make_shared<Subset>(std::move(images), std::move(numbers));
}

std::vector<bool> images_to_hold_out(const std::vector<int32_t>& labels, double wanted, uint64_t seed,
                                     const std::string& setting) {
  const int64_t size = std::ssize(labels), count = count_of(wanted, size, setting);
  std::vector<int64_t> sizes;
  for (const int32_t label : labels) {
    sizes.resize(std::max(sizes.size(), static_cast<size_t>(label) + 1));
    ++sizes[label];
  }
  std::vector<int64_t> wanted_of = shared_out(count, sizes, wanted >= 1);
  if (std::ranges::all_of(wanted_of, [](int64_t part) { return part == 0; }))
    fail(setting, " = ", number_text(wanted),
         " holds no image out: no class has enough images to keep one for training",
         "; give a larger share, or a number of images");
  std::vector<bool> held_out(labels.size());
  for (const int64_t i : permutation(Philox(seed, RandomStream::kShuffle, 0, "validation"), size)) {
    const size_t at = i;
    held_out[at] = wanted_of[labels[at]]-- > 0;
  }
  return held_out;
}

HeldOut hold_out(const std::shared_ptr<const Dataset>& images, double wanted, uint64_t seed) {
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < images->size(); ++i) labels.push_back(images->label(i));
  const std::vector<bool> held_out = images_to_hold_out(labels, wanted, seed, "data.validation");
  std::vector<int64_t> train, validation;
  for (int64_t i = 0; i < images->size(); ++i) (held_out[i] ? validation : train).push_back(i);
  return {some_of(images, std::move(train)), some_of(images, std::move(validation))};
}

}  // namespace owt
