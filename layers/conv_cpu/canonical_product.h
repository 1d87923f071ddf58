// Matrix products whose elements are canonical sums (core/canonical.h). The bits of an element depend on its factors
// and on the blocks only: not on the other elements, nor on the threads.
#pragma once

#include <cstdint>
#include <span>

namespace owt {

// A factor: f32 values with the distance from one element (row of `a`, column of `b`) to the next, and from one term of
// the sums to the next. For `b` one of the two distances is 1.
struct TermsOf {
  const float* values;
  int64_t of_element, of_term;
};

struct ProductExtents {
  int64_t rows, columns;          // the result is rows x columns
  std::span<const int64_t> ends;  // one for each block of terms, ascending; at least one
};

// result [rows, columns] = beta * result + a * b; beta is 0 or 1; 0 never reads the result. unit: see canonical().
void canonical_product(const ProductExtents& extents, const TermsOf& a, const TermsOf& b, double unit, float beta,
                       double* result);
// result = a * b + bias, rounded to f32; bias: one number for each column, or null.
void canonical_product(const ProductExtents& extents, const TermsOf& a, const TermsOf& b, double unit,
                       const float* bias, float* result);

}  // namespace owt
