#include "layers/conv_cpu/canonical_product.h"

#include <algorithm>

#include "layers/conv_cpu/conv_workspace.h"
#include "layers/conv_cpu/micro_gemm.h"
#include "src/core/canonical.h"
#include "src/core/threads.h"

namespace owt {
namespace canonical_products {

// The size of a block of sums in registers, in vectors of columns and in rows.
constexpr int kVectors = 3, kRows = kLanes == 16 ? 8 : 4;
constexpr int64_t kPanel = kVectors * kLanes;  // columns
// Limits of what a task keeps in the second-level cache: rows of sums, and terms of packed columns.
constexpr int64_t kMostRows = 192, kMostTerms = 512;

// The sums of a task: up to kMostRows rows x kPanel columns.
struct Task {
  Slice rows, columns;
};

// Packs the terms of a task's columns, term after term, with zeros after the last column.
void pack(const TermsOf& b, const Slice& columns, const Slice& terms, float* to) {
  const float* const from = b.values + columns.begin * b.of_element + terms.begin * b.of_term;
  const int64_t width = columns.size();
  if (width < kPanel) std::fill_n(to, terms.size() * kPanel, 0.0f);
  if (b.of_element == 1)
    for (int64_t t = 0; t < terms.size(); ++t) std::copy_n(from + t * b.of_term, width, to + t * kPanel);
  else
    for (int64_t c = 0; c < width; ++c)
      for (int64_t t = 0; t < terms.size(); ++t) to[t * kPanel + c] = from[c * b.of_element + t];
}

// Adds the sums of a block of terms.
template <int rows>
void add_block(const TermsOf& a, const float* packed, int64_t terms, double unit, double* sums) {
  Vector sum[rows][kVectors] = {};
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  multiply_add<float>(sum, a.values, a.of_element * kBytes, a.of_term * kBytes, packed, kPanel * kBytes, terms);
  float in_f32[rows * kPanel];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < kVectors; ++v) store(sum[r][v], in_f32 + r * kPanel + v * kLanes);
#pragma omp simd
  for (int64_t i = 0; i < rows * kPanel; ++i) sums[i] += canonical(static_cast<double>(in_f32[i]), unit);
}

// Adds the sums of consecutive blocks, from block `first` to before `last`. packed: begins with their first term.
void add_blocks(const ProductExtents& extents, const TermsOf& a, size_t first, size_t last, const Slice& rows,
                const float* packed, double unit, double* sums) {
  const int64_t begin = first == 0 ? 0 : extents.ends[first - 1];
  for (int64_t r = rows.begin; r < rows.end; r += kRows) {
    const int here = static_cast<int>(std::min<int64_t>(kRows, rows.end - r));
    with_constant<kRows>(here, [&](auto count) {
      int64_t term = begin;
      for (size_t block = first; block < last; term = extents.ends[block++]) {
        const TermsOf from{a.values + r * a.of_element + term * a.of_term, a.of_element, a.of_term};
        add_block<count>(from, packed + (term - begin) * kPanel, extents.ends[block] - term, unit,
                         sums + (r - rows.begin) * kPanel);
      }
    });
  }
}

void add_all(const ProductExtents& extents, const TermsOf& a, const TermsOf& b, const Task& task, double unit,
             double* sums) {
  for (size_t first = 0, last = 0; first < extents.ends.size(); first = last) {
    const int64_t begin = first == 0 ? 0 : extents.ends[first - 1];
    for (last = first + 1; last < extents.ends.size() && extents.ends[last] - begin <= kMostTerms;) ++last;
    const Slice terms{begin, extents.ends[last - 1]};
    auto* packed = static_cast<float*>(
        conv_workspace(ConvBuffer::kTiles, static_cast<size_t>(terms.size() * kPanel) * sizeof(float)));
    pack(b, task.columns, terms, packed);
    add_blocks(extents, a, first, last, task.rows, packed, unit, sums);
  }
}

// finish(row, columns, sums): takes the sums of these columns of a row.
template <class Finish>
void run(const ProductExtents& extents, const TermsOf& a, const TermsOf& b, double unit, const Finish& finish) {
  const int64_t panels = quotient_up(extents.columns, kPanel), parts = quotient_up(extents.rows, kMostRows);
  parallel_for(panels * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i / parts * kPanel;
      const Task task{split(extents.rows, static_cast<int>(parts), static_cast<int>(i % parts)),
                      {column, std::min(column + kPanel, extents.columns)}};
      double sums[kMostRows * kPanel];
      std::fill_n(sums, task.rows.size() * kPanel, 0.0);
      add_all(extents, a, b, task, unit, sums);
      for (int64_t r = task.rows.begin; r < task.rows.end; ++r)
        finish(r, task.columns, sums + (r - task.rows.begin) * kPanel);
    }
  });
}

}  // namespace canonical_products

void canonical_product(const ProductExtents& extents, const TermsOf& a, const TermsOf& b, double unit, float beta,
                       double* result) {
  canonical_products::run(extents, a, b, unit, [&](int64_t row, const Slice& columns, const double* sums) {
    double* const to = result + row * extents.columns + columns.begin;
    if (beta == 0)
      std::copy_n(sums, columns.size(), to);
    else
      for (int64_t c = 0; c < columns.size(); ++c) to[c] += sums[c];
  });
}

void canonical_product(const ProductExtents& extents, const TermsOf& a, const TermsOf& b, double unit,
                       const float* bias, float* result) {
  canonical_products::run(extents, a, b, unit, [&](int64_t row, const Slice& columns, const double* sums) {
    float* const to = result + row * extents.columns + columns.begin;
    for (int64_t c = 0; c < columns.size(); ++c) {
      const auto sum = static_cast<float>(sums[c]);
      to[c] = bias ? sum + bias[columns.begin + c] : sum;
    }
  });
}

}  // namespace owt
