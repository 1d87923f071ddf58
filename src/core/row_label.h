// The label of a row of a batch, written by data/ and read by the losses: one class, or two classes if images are mixed
// (mixup, CutMix). In i32 tensors a plain label is one number. A mixed label is three: first class, second class, and
// the share of the first in units of 2^-24. The constexpr functions also run in kernels.
#pragma once

#include <cstdint>

namespace owt {

struct RowLabel {
  int first = 0, second = 0;
  float share = 1;  // weight of the first class; the second has 1 - share

  static constexpr int64_t kMixedNumbers = 3;
  static constexpr int32_t kShareUnits = 1 << 24;  // the share 1 in a tensor

  static constexpr RowLabel at(const int32_t* labels, int64_t row, bool mixed) {
    if (!mixed) return {labels[row], labels[row], 1.0f};
    const int32_t* numbers = labels + row * kMixedNumbers;
    return {numbers[0], numbers[1], static_cast<float>(numbers[2]) / static_cast<float>(kShareUnits)};
  }

  constexpr bool known(int classes) const { return first >= 0 && first < classes && second >= 0 && second < classes; }
  constexpr bool has(int c) const { return c == first || c == second; }
  constexpr float share_of(int c) const { return (c == first ? share : 0.0f) + (c == second ? 1 - share : 0.0f); }
  // The weighted mean of the two labels' logits. An infinite logit with share 0 does not count.
  constexpr double mean(double of_first, double of_second) const {
    const auto part = static_cast<double>(share);
    return share == 1 ? of_first : part * of_first + (1 - part) * of_second;
  }
};

}  // namespace owt
