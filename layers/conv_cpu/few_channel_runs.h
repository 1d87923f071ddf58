// Code shared by the passes of few_channel_conv.h: a convolution as products of runs, and the position of the runs.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "layers/conv_cpu/conv_pass.h"
#include "layers/conv_cpu/conv_workspace.h"
#include "layers/conv_cpu/micro_gemm.h"
#include "src/core/threads.h"

namespace owt::few_channel {

// Outputs whose sums are computed together.
struct OutputBlock {
  int64_t first;
  int vectors;    // 1 to kMostVectors
  int64_t count;  // outputs; the last vector may have more lanes
};

// Lengths are in elements.
struct Runs {
  explicit Runs(const ConvGeometry& geometry);

  ConvGeometry g;
  int64_t length, stride;  // length of a run; distance between the runs of neighbouring columns of y
  int64_t row;             // length of an image row with the zeros at both ends that the columns of y need
  int64_t zeros, copied;   // elements of `row` before the image, and from the image
  std::vector<OutputBlock> blocks;
  int64_t lanes;  // outputs, rounded up to whole vectors
};

// Calls function(thread, rows of y) for equal parts of all rows of y, one part for each of `threads` threads.
template <class Function>
void split_rows(const Runs& runs, int64_t images, int64_t threads, const Function& function) {
  const int64_t rows = images * runs.g.out_h;
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) function(t, split(rows, static_cast<int>(threads), static_cast<int>(t)));
  });
}

// Calls function(image, first, count) for rows [first, first + count) of y: at most `most` rows, all of one image.
template <class Function>
void by_image(const Runs& runs, Slice rows, int64_t most, const Function& function) {
  for (int64_t i = rows.begin, count; i < rows.end; i += count) {
    const int64_t first = i % runs.g.out_h;
    count = std::min({most, runs.g.out_h - first, rows.end - i});
    function(i / runs.g.out_h, first, count);
  }
}

// Copies row i of an image with its surrounding zeros; only zeros if i is outside the image.
template <class Element>
void copy_row(const Runs& runs, const Element* image, int64_t i, Element* to) {
  const bool inside = i >= 0 && i < runs.g.in_h;
  const int64_t zeros = inside ? runs.zeros : runs.row, copied = inside ? runs.copied : 0;
  std::fill_n(to, zeros, Element{});
  if (inside) std::copy_n(image + i * runs.g.in_w * runs.g.in_c, copied, to + zeros);
  std::fill(to + zeros + copied, to + runs.row, Element{});
}

// A ring buffer of image rows under some rows of y; each image row is copied once.
template <class Stored>
class RowWindow {
 public:
  RowWindow(const Runs& runs, int64_t slots, Stored* memory)
      : slots_(slots), row_(elements_of_row(runs)), memory_(memory) {}
  static int64_t elements_of_row(const Runs& runs) { return quotient_up(runs.row, 32) * 32; }

  void begin_image() { next_ = kBeforeAll; }
  // Moves the window to rows [first, first + count) of the image; count is at most `slots`, and `first` does not
  // decrease within an image. enter(i, to) writes row i, which may lie outside the image.
  template <class Enter>
  void move(int64_t first, int64_t count, const Enter& enter) {
    for (next_ = std::max(next_, first); next_ < first + count; ++next_) enter(next_, at(slot(next_)));
    begin_ = slot(first);
  }
  // Row r of the window.
  const Stored* operator[](int64_t r) const { return at(begin_ + r < slots_ ? begin_ + r : begin_ + r - slots_); }

 private:
  static constexpr int64_t kBeforeAll = -(int64_t{1} << 32);

  int64_t slot(int64_t i) const { return (i - kBeforeAll) % slots_; }
  Stored* at(int64_t slot) const { return memory_ + slot * row_; }

  int64_t slots_, row_, begin_ = 0, next_ = kBeforeAll;
  Stored* memory_;
};

// One step of multiply_add() with bf16 in which each pair of a has only its lower half; elements after it are not read.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void multiply_add_halves(Vector (&sum)[kRows][kVectors], const Bf16* a, int64_t a_row,
                                                       const void* b) {
  uint32_t pairs[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) pairs[r] = a[r * a_row].bits;
  multiply_add<Bf16>(sum, pairs, sizeof(uint32_t), 0, b, 0, 1);
}

// Memory for this many elements, valid until another convolution runs.
template <class Element>
Element* workspace(int64_t elements) {
  const size_t bytes = static_cast<size_t>(elements) * sizeof(Element);
  return static_cast<Element*>(conv_workspace(ConvBuffer::kScratchpad, bytes));
}

std::unique_ptr<ConvPass> make_forward(const ConvShape& shape);
std::unique_ptr<ConvPass> make_backward_weights(const ConvShape& shape);

}  // namespace owt::few_channel
