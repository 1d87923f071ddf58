// The filter of data/resize.h in one direction. It is computed in whole numbers, so that the CPU and GPUs have the same
// weights. Everything is constexpr and uses only functions that device code can call.
#pragma once

#include <cstdint>

namespace owt {

// Resizes `in` places to `out` places, at most 2^20 each. Lengths are in units of an input place divided by 2 * out.
struct ResizeFilter {
  static constexpr int64_t kOne = 256;  // the sum of the weights of an output place

  int64_t in, out;

  // The number of input places that an output place depends on.
  constexpr int64_t taps() const {
    const int64_t covered = (2 * larger() + out - 1) / out;
    return covered < in ? covered : in;
  }
  // The first of them.
  constexpr int64_t first(int64_t place) const {
    const int64_t begin = (2 * place + 1) * in - reach() + out, last = in - taps();
    const int64_t rounded = begin > 0 ? begin / (2 * out) : 0;
    return rounded < last ? rounded : last;
  }
  // Writes taps() weights. The rounding error goes to the largest weight, so that a plain surface keeps its colour.
  constexpr void weigh(int64_t place, uint16_t* weights) const {
    const int64_t begin = first(place), count = taps();
    int64_t total = 0, rest = kOne, heaviest = 0;
    for (int64_t t = 0; t < count; ++t) total += height(place, begin + t);
    for (int64_t t = 0; t < count; ++t) {
      weights[t] = static_cast<uint16_t>((2 * kOne * height(place, begin + t) + total) / (2 * total));
      rest -= weights[t];
      if (weights[t] > weights[heaviest]) heaviest = t;
    }
    weights[heaviest] = static_cast<uint16_t>(weights[heaviest] + rest);
  }

 private:
  constexpr int64_t larger() const { return in > out ? in : out; }
  constexpr int64_t reach() const { return 2 * larger(); }  // the triangle's, on either side
  // The triangle's height over an input place.
  constexpr int64_t height(int64_t place, int64_t in_place) const {
    const int64_t offset = (2 * in_place + 1) * out - (2 * place + 1) * in;
    const int64_t above = reach() - (offset < 0 ? -offset : offset);
    return above > 0 ? above : 0;
  }
};

}  // namespace owt
