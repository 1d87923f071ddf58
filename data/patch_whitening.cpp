#include "data/patch_whitening.h"

#include <algorithm>
#include <cmath>
#include <opencv2/core.hpp>

#include "data/parallel.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kBlock = 64;  // images whose sums one thread makes in order

// Sums over patches of `values` values: of the values, and of their products, for which only the upper half is
// computed.
struct PatchSums {
  int64_t values, patches = 0;
  std::vector<double> sum, products;

  explicit PatchSums(int64_t of) : values(of), sum(of), products(of * of) {}

  void add(const std::vector<float>& patch) {
    ++patches;
    for (size_t i = 0, n = patch.size(); i < n; ++i) {
      const double value = patch[i];
      sum[i] += value;
      for (size_t j = i; j < n; ++j) products[i * n + j] += value * patch[j];
    }
  }
  void add(const PatchSums& other) {
    patches += other.patches;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other.sum[i];
    for (size_t i = 0; i < products.size(); ++i) products[i] += other.products[i];
  }
  double covariance(int64_t i, int64_t j) const {
    const double n = patches;
    const auto at = [](const std::vector<double>& all, int64_t k) { return all[k]; };
    return at(products, std::min(i, j) * values + std::max(i, j)) / n - at(sum, i) / n * (at(sum, j) / n);
  }
};

void add_patches(const std::vector<float>& image, const Shape& shape, const PatchWhitening& of, PatchSums& to) {
  const int64_t row = of.width * shape[2];
  std::vector<float> patch(to.values);
  for (int64_t y = 0; y + of.height <= shape[0]; ++y)
    for (int64_t x = 0; x + of.width <= shape[1]; ++x) {
      for (int64_t r = 0; r < of.height; ++r)
        std::copy_n(image.data() + ((y + r) * shape[1] + x) * shape[2], row, patch.data() + r * row);
      to.add(patch);
    }
}

// Sums of blocks of images, added in order, so that rounding does not depend on the threads.
PatchSums sums_of(const Dataset& dataset, const Augmenter& augmenter, const PatchWhitening& of) {
  const Shape shape = augmenter.out_shape();
  const int64_t images = std::min(of.images, dataset.size());
  std::vector<PatchSums> blocks((images + kBlock - 1) / kBlock, PatchSums(of.height * of.width * shape[2]));
  parallel_for_or_throw(std::ssize(blocks), 1, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> pixels(dataset.image().elements());
    std::vector<float> image(shape.elements());
    for (int64_t b = begin; b < end; ++b)
      for (int64_t i = b * kBlock; i < std::min((b + 1) * kBlock, images); ++i) {
        dataset.read(i, View{}, pixels.data());
        augmenter.make(View{}, i, pixels.data(), image.data());
        add_patches(image, shape, of, blocks[b]);
      }
  });
  for (size_t b = 1; b < blocks.size(); ++b) blocks[0].add(blocks[b]);
  return blocks[0];
}

}  // namespace

std::vector<float> whitening_filters(const Dataset& dataset, const Augmenter& augmenter, const PatchWhitening& of) {
  const Shape shape = augmenter.out_shape();
  const int64_t values = of.height * of.width * shape[2];
  if (values > kMostPatchValues)
    fail("filters of ", of.height, "x", of.width, " pixels are too large to whiten images; use at most ",
         kMostPatchValues, " values");
  if (of.height > shape[0] || of.width > shape[1] || dataset.size() == 0)
    fail("there are no patches of ", of.height, "x", of.width, " pixels in ", dataset.size(), " images of ", shape);
  const PatchSums sums = sums_of(dataset, augmenter, of);
  const auto n = static_cast<int>(values);
  cv::Mat covariance(n, n, CV_64F), eigenvalues, vectors;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) covariance.at<double>(i, j) = sums.covariance(i, j);
  cv::eigen(covariance, eigenvalues, vectors);  // the largest first, one vector per row
  std::vector<float> filters;
  for (int i = 0; i < n; ++i) {
    const auto* const vector = vectors.ptr<double>(i);
    // Either sign is valid; this choice makes the filters independent of the library.
    const double* const largest =
        std::max_element(vector, vector + n, [](double a, double b) { return std::abs(a) < std::abs(b); });
    const double factor =
        (*largest < 0 ? -1 : 1) / std::sqrt(std::max(0.0, eigenvalues.at<double>(i)) + of.eps + 1e-12);
    for (int j = 0; j < n; ++j) filters.push_back(static_cast<float>(vector[j] * factor));
  }
  return filters;
}

}  // namespace owt
