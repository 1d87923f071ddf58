// Softmax regression on the pixels of ten classes of images, by stochastic gradient descent.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace owt {

class LinearClassifier {
 public:
  explicit LinearClassifier(int64_t inputs) : inputs_(static_cast<size_t>(inputs)), w_(10 * (inputs_ + 1)) {}

  void learn(const std::vector<uint8_t>& pixels, int label, float rate);
  int guess(const std::vector<uint8_t>& pixels) const;

 private:
  std::array<float, 10> probabilities(const std::vector<float>& x) const;

  size_t inputs_;
  std::vector<float> w_;
};

}  // namespace owt
