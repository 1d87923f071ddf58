// The one-dimensional matrices of Winograd's algorithm F(m, r), constructed from its points by Toom and Cook's method,
// and their products with vectors.
#pragma once

#include "src/core/simd.h"

namespace owt {

// Points p and -p are neighbours, and their rows differ only in signs. So the matrices store the equal terms in one row
// and the opposite terms in the other; the two real rows are the sum and the difference of these.
template <int kOutputs, int kTaps>
struct Winograd1d {
  static constexpr int kPoints = kOutputs + kTaps - 1;  // 0, then pairs; the last one is infinity

  double input[kPoints][kPoints]{};                                   // B^T
  double weights[kPoints][kTaps]{}, weights_t[kTaps][kPoints]{};      // G
  double output_t[kPoints][kOutputs]{}, output[kOutputs][kPoints]{};  // A

  constexpr Winograd1d() {
    // Points with the smallest errors among some that f32 represents exactly.
    constexpr double four[] = {0, 1, -1}, six[] = {0, 0.625, -0.625, 1.5, -1.5}, eight[] = {0, 1, -1, 2, -2, 0.5, -0.5};
    static_assert(kPoints == 4 || kPoints == 6 || kPoints == 8);
    const double* const points = kPoints == 4 ? four : kPoints == 6 ? six : eight;
    for (int i = 0; i < kPoints; ++i) fill_point(i, points);
    for (int i = 1; i < kPoints - 1; i += 2) {
      take_apart(input[i], input[i + 1]);
      take_apart(weights[i], weights[i + 1]);
      take_apart(output_t[i], output_t[i + 1]);
    }
    for (int i = 0; i < kPoints; ++i) {
      for (int k = 0; k < kOutputs; ++k) output[k][i] = output_t[i][k];
      for (int k = 0; k < kTaps; ++k) weights_t[k][i] = weights[i][k];
    }
  }

 private:
  template <int kColumns>
  static constexpr void take_apart(double (&row)[kColumns], double (&next)[kColumns]) {
    for (int j = 0; j < kColumns; ++j) {
      const bool equal = row[j] == next[j];
      next[j] = equal ? 0 : row[j];
      if (!equal) row[j] = 0;
    }
  }

  // Row i of B^T: the coefficients of the product of x - p over all points p except the i-th.
  constexpr void fill_point(int i, const double* points) {
    const bool infinite = i == kPoints - 1;
    double scale = 1;
    int degree = 0;
    input[i][0] = 1;
    for (int j = 0; j < kPoints - 1; ++j) {
      if (j == i) continue;
      ++degree;
      for (int k = degree; k > 0; --k) input[i][k] = input[i][k - 1] - points[j] * input[i][k];
      input[i][0] *= -points[j];
      if (!infinite) scale *= points[i] - points[j];
    }
    double power = 1;
    for (int k = 0; k < kTaps || k < kOutputs; ++k) {
      if (k < kTaps) weights[i][k] = infinite ? k == kTaps - 1 : power / scale;
      if (k < kOutputs) output_t[i][k] = infinite ? k == kOutputs - 1 : power;
      power *= infinite ? 1 : points[i];
    }
  }
};

template <int kOutputs, int kTaps>
inline constexpr Winograd1d<kOutputs, kTaps> kWinograd1d{};

// out[i * out_step] = sum over j of matrix[i][j] * in[j * in_step]. Factors of 0 and 1 need no multiplication.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void multiply(const double (&matrix)[kRows][kColumns], const Vector* in, int in_step,
                                            Vector* out, int out_step) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    Vector sum{};
    bool begun = false;
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const double factor = matrix[i][j];
      if (factor == 0) continue;
      const Vector& value = in[j * in_step];
      if (!begun)
        sum = factor == 1 ? value : factor == -1 ? -value : value * static_cast<float>(factor);
      else
        sum = factor == 1 ? sum + value : factor == -1 ? sum - value : sum + value * static_cast<float>(factor);
      begun = true;
    }
    out[i * out_step] = sum;
  }
}

// The sum and difference of the values of every pair of points.
template <int kPoints>
[[gnu::always_inline]] inline void combine_pairs(const Vector* in, int in_step, Vector* out, int out_step) {
  out[0] = in[0];
  out[(kPoints - 1) * out_step] = in[(kPoints - 1) * in_step];
#pragma GCC unroll 8
  for (int i = 1; i < kPoints - 1; i += 2) {
    const Vector one = in[i * in_step], other = in[(i + 1) * in_step];
    out[i * out_step] = one + other;
    out[(i + 1) * out_step] = one - other;
  }
}

// Transforms to points (more rows than columns) or from points.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void transform(const double (&matrix)[kRows][kColumns], const Vector* in, int in_step,
                                             Vector* out, int out_step) {
  Vector pairs[kRows >= kColumns ? kRows : kColumns];
  if constexpr (kRows >= kColumns) {
    multiply(matrix, in, in_step, pairs, 1);
    combine_pairs<kRows>(pairs, 1, out, out_step);
  } else {
    combine_pairs<kColumns>(in, in_step, pairs, 1);
    multiply(matrix, pairs, 1, out, out_step);
  }
}

// out = matrix * in * matrix^T, of kColumns x kColumns into kRows x kRows vectors.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void transform2d(const double (&matrix)[kRows][kColumns],
                                               const Vector (&in)[kColumns * kColumns], Vector (&out)[kRows * kRows]) {
  Vector half[kRows * kColumns];
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) transform(matrix, in + j, kColumns, half + j, kColumns);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) transform(matrix, half + i * kColumns, 1, out + i * kRows, 1);
}

}  // namespace owt
