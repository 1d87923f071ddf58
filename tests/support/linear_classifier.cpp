#include "tests/support/linear_classifier.h"

#include <algorithm>
#include <cmath>

namespace owt {
namespace {

std::vector<float> scaled(const std::vector<uint8_t>& pixels) {
  std::vector<float> x;
  for (const uint8_t pixel : pixels) x.push_back(static_cast<float>(pixel) / 127.5f - 1);
  return x;
}

}  // namespace

void LinearClassifier::learn(const std::vector<uint8_t>& pixels, int label, float rate) {
  const auto x = scaled(pixels);
  const auto p = probabilities(x);
  for (size_t k = 0; k < 10; ++k) {
    const float step = rate * ((static_cast<int>(k) == label ? 1.0f : 0.0f) - p[k]);
    float* w = &w_[k * (inputs_ + 1)];
    for (size_t i = 0; i < inputs_; ++i) w[i] += step * x[i];
    w[inputs_] += step;
  }
}

int LinearClassifier::guess(const std::vector<uint8_t>& pixels) const {
  const auto p = probabilities(scaled(pixels));
  return static_cast<int>(std::max_element(p.begin(), p.end()) - p.begin());
}

std::array<float, 10> LinearClassifier::probabilities(const std::vector<float>& x) const {
  std::array<float, 10> p{};
  for (size_t k = 0; k < 10; ++k) {
    const float* w = &w_[k * (inputs_ + 1)];
    p[k] = w[inputs_];
    for (size_t i = 0; i < inputs_; ++i) p[k] += w[i] * x[i];
  }
  const float largest = *std::max_element(p.begin(), p.end());
  float sum = 0;
  for (float& value : p) sum += value = std::exp(value - largest);
  for (float& value : p) value /= sum;
  return p;
}

}  // namespace owt
