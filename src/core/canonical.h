// Canonical sums (run.canonical): the bits of a sum do not depend on how its terms are divided among ranks, rounds and
// threads, nor on the order in which the parts are added.
//
// The terms are divided into blocks: consecutive rows of the step, or consecutive features of a dense layer. The blocks
// depend on the step and the layer only, and a block is never divided. The sum of a block is f32, in one fixed order.
// It is rounded to a multiple of kCanonicalUnit. Sums of such multiples are exact in f64 as long as they are below
// kCanonicalRange, and exact sums have no order (Demmel and Nguyen 2013, "Fast Reproducible Floating-Point Summation").
// The sum over all blocks is rounded to f32 once.
//
// A gradient in f64 (Param::grad_type) is a canonical sum; so is the gradient of an input that several ranks sum.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "src/core/device.h"
#include "src/core/row_groups.h"
#include "src/core/shape.h"
#include "src/core/tensor.h"

namespace owt {

constexpr double kCanonicalUnit = 0x1p-40, kCanonicalRange = kCanonicalUnit * 0x1p51;
constexpr double kCanonicalAverageUnit = 0x1p-26;  // running averages may be larger than gradients

// The unit of gradients of inputs, which carry 1 / rows of the step.
inline double canonical_input_unit(int64_t step_rows) {
  return kCanonicalUnit / static_cast<double>(std::bit_ceil(static_cast<uint64_t>(step_rows)));
}

// The nearest multiple of `unit`, a power of two. Infinity and NaN are kept.
inline double canonical(double sum, double unit = kCanonicalUnit) {
  const double shift = unit * 0x1.8p52;  // `unit` is its last bit
  return (sum + shift) - shift;
}

// The type of gradients of weights that are sums over ranks, rounds or threads; and of gradients of inputs that several
// ranks sum.
inline DType weight_sum_type(const Compute& on) { return on.canonical() ? DType::kF64 : DType::kF32; }
inline DType input_sum_type(const Compute& on) { return on.canonical() ? DType::kF64 : activation_type(on.precision); }

// Rows in a block. Small blocks can be dealt evenly to more ranks; in large ones fewer sums are rounded.
inline int64_t canonical_rows(int64_t step_rows) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(step_rows / 16, 1, 8))));
}

// Features in a block of a dense layer with this many inputs, or outputs.
inline int64_t canonical_features(int64_t features) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(features / 16, 1, 128))));
}

// Features of part `index` of `parts`, in whole blocks. The first part is the largest.
inline Slice canonical_part(int64_t features, int parts, int index) {
  const int64_t block = canonical_features(features);
  const Slice blocks = split((features + block - 1) / block, parts, index);
  return {std::min(blocks.begin * block, features), std::min(blocks.end * block, features)};
}

// The ends of the blocks of `count` features; the last block may be smaller. features: of the whole layer, to which the
// `count` belong.
inline std::vector<int64_t> canonical_feature_ends(int64_t count, int64_t features) {
  std::vector<int64_t> ends;
  const int64_t block = canonical_features(features);
  for (int64_t begin = 0; begin < count; begin += block) ends.push_back(std::min(begin + block, count));
  return ends;
}

// The ends of the blocks of these rows.
inline std::vector<int64_t> canonical_row_ends(const RowGroups& blocks) {
  std::vector<int64_t> ends;
  for (int64_t block = 0; block < blocks.count(); ++block) ends.push_back(blocks.of(block).end);
  return ends;
}

}  // namespace owt
