// Filters that whiten patches of images, so that their outputs are uncorrelated.
//   filter_i = v_i / sqrt(lambda_i + eps)
// v_i are the eigenvectors, of length 1, and lambda_i the eigenvalues of the covariance of all patches of some images.
// The images are normalised as in the centre view of evaluation.
// Source: Jordan 2024 (arXiv:2404.00498), section 3.2; Page 2019 ("How to train your ResNet", part 8).
#pragma once

#include <cstdint>
#include <vector>

#include "data/augment.h"
#include "data/dataset.h"

namespace owt {

struct PatchWhitening {
  int64_t height = 1, width = 1;  // size of a patch in pixels
  int64_t images = 1;             // the first images of the data set, or all
  double eps = 0;
};
constexpr int64_t kMostPatchValues = 256;

// height * width * C filters of height x width x C values each; the largest eigenvalue is first. Reads images with the
// calling rank's team of threads; the result does not depend on their number. Throws Error if a patch has more than
// kMostPatchValues values or is larger than the images; also the errors of reading.
std::vector<float> whitening_filters(const Dataset& dataset, const Augmenter& augmenter, const PatchWhitening& of);

}  // namespace owt
