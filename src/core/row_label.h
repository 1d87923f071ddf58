// The label of a row of a batch, written by data/ and read by the losses: one class, or two classes if images are mixed
// (mixup, CutMix). In i32 tensors a plain label is one number. A mixed label is three: first class, second class, and
// the share of the first in units of 2^-24. A row may also have targets: after its label a value in [0, 1] for each
// class, as the 32 bits of an f32. The constexpr functions also run in kernels.
#pragma once

#include <bit>
#include <cstdint>

namespace owt {

struct RowLabel {
  int first = 0, second = 0;
  float share = 1;  // weight of the first class; the second has 1 - share

  static constexpr int64_t kMixedNumbers = 3;
  static constexpr int32_t kShareUnits = 1 << 24;  // the share 1 in a tensor

  constexpr bool known(int classes) const { return first >= 0 && first < classes && second >= 0 && second < classes; }
  constexpr bool has(int c) const { return c == first || c == second; }
  constexpr float share_of(int c) const { return (c == first ? share : 0.0f) + (c == second ? 1 - share : 0.0f); }
  // The weighted mean of the two labels' logits. An infinite logit with share 0 does not count.
  constexpr double mean(double of_first, double of_second) const {
    const auto part = static_cast<double>(share);
    return share == 1 ? of_first : part * of_first + (1 - part) * of_second;
  }
};

// What a row of a tensor of labels holds.
struct LabelRows {
  bool mixed = false;
  int64_t targets = 0;  // the classes that have one; 0: rows have no targets

  constexpr int64_t label_numbers() const { return mixed ? RowLabel::kMixedNumbers : 1; }
  constexpr int64_t numbers() const { return label_numbers() + targets; }
  constexpr RowLabel label(const int32_t* labels, int64_t row) const {
    const int32_t* of_row = labels + row * numbers();
    if (!mixed) return {of_row[0], of_row[0], 1.0f};
    return {of_row[0], of_row[1], static_cast<float>(of_row[2]) / static_cast<float>(RowLabel::kShareUnits)};
  }
  // The targets of a row; target_of() reads them.
  constexpr const int32_t* targets_of(const int32_t* labels, int64_t row) const {
    return labels + row * numbers() + label_numbers();
  }
};
constexpr float target_of(int32_t bits) { return std::bit_cast<float>(bits); }
constexpr int32_t bits_of_target(float target) { return std::bit_cast<int32_t>(target); }

}  // namespace owt
