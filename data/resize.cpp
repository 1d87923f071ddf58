#include "data/resize.h"

#include <algorithm>
#include <cstring>

#include "data/jpeg/resize_filter.h"
#include "src/core/lanes.h"

namespace owt {
namespace {

constexpr int kBlockRows = 16;         // side of the blocks that are transposed
constexpr int kRows = 2 * kBlockRows;  // resized at once
using ByteVector = uint8_t __attribute__((vector_size(kBlockRows)));
using Pairs = uint16_t __attribute__((vector_size(kRows)));  // two bytes each

int64_t rounded_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

template <class T>
T load_vector(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// sum of weights[t] * from[t * stride + 0 .. 31], rounded. Even and odd bytes stay in place, so that nothing has to be
// widened.
inline Pairs weighted(const uint16_t* weights, int64_t taps, const uint8_t* from, int64_t stride) {
  Pairs even = Pairs{} + uint16_t{ResizeFilter::kOne / 2}, odd = even;
  for (int64_t t = 0; t < taps; ++t) {
    const Pairs bytes = load_vector<Pairs>(from + t * stride);
    even += (bytes & 255) * weights[t];
    odd += (bytes >> 8) * weights[t];
  }
  return even >> 8 | (odd & 0xFF00);
}

// Each round interleaves the two halves of the list; four rounds transpose 16 x 16.
inline void transpose(ByteVector (&x)[kBlockRows]) {
  for (int round = 0; round < 4; ++round) {
    ByteVector y[kBlockRows];
    for (int i = 0; i < kBlockRows / 2; ++i) {
      const ByteVector a = x[i], b = x[i + kBlockRows / 2];
      y[2 * i] = pick<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(a, b);
      y[2 * i + 1] = pick<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(a, b);
    }
    std::copy(y, y + kBlockRows, x);
  }
}

// Transposes kRows rows of `count` bytes, `row_bytes` apart, to count x kRows bytes, and back. The last block is
// processed whole, so there must be room after the rows.
void turn(const uint8_t* rows, int64_t row_bytes, int64_t count, uint8_t* turned) {
  for (int64_t at = 0; at < count; at += kBlockRows)
    for (int first = 0; first < kRows; first += kBlockRows) {
      ByteVector block[kBlockRows];
      for (int i = 0; i < kBlockRows; ++i) block[i] = load_vector<ByteVector>(rows + (first + i) * row_bytes + at);
      transpose(block);
      for (int i = 0; i < kBlockRows; ++i) std::memcpy(turned + (at + i) * kRows + first, &block[i], kBlockRows);
    }
}
void turn_back(const uint8_t* turned, int64_t count, uint8_t* rows, int64_t row_bytes) {
  for (int64_t at = 0; at < count; at += kBlockRows)
    for (int first = 0; first < kRows; first += kBlockRows) {
      ByteVector block[kBlockRows];
      for (int i = 0; i < kBlockRows; ++i) block[i] = load_vector<ByteVector>(turned + (at + i) * kRows + first);
      transpose(block);
      for (int i = 0; i < kBlockRows; ++i) std::memcpy(rows + (first + i) * row_bytes + at, &block[i], kBlockRows);
    }
}

}  // namespace

void Resizer::Filter::make(int64_t in_extent, int64_t out_extent) {
  if (in == in_extent && out == out_extent) return;
  in = in_extent;
  out = out_extent;
  const ResizeFilter filter{in, out};
  taps = filter.taps();
  first.resize(out);
  weights.resize(out * taps);
  for (int64_t x = 0; x < out; ++x) {
    first[x] = filter.first(x);
    filter.weigh(x, weights.data() + x * taps);
  }
}

void Resizer::run(const uint8_t* from, int64_t height, int64_t width, int64_t channels, int64_t side, uint8_t* to) {
  across_.make(width, side);
  down_.make(height, side);
  resize_rows(from, height, width, channels);
  resize_columns(side, channels, to);
}

// Resizes many rows at once, each in a lane, so that each of their pixels is a whole vector.
void Resizer::resize_rows(const uint8_t* from, int64_t height, int64_t width, int64_t channels) {
  const int64_t in_row = width * channels, out_row = across_.out * channels, blocks = rounded_up(height, kRows) / kRows;
  narrow_row_ = rounded_up(out_row, kRows);
  narrow_.resize(blocks * kRows * narrow_row_);
  turned_.resize(rounded_up(in_row, kBlockRows) * kRows);
  resized_.resize(rounded_up(out_row, kBlockRows) * kRows);
  for (int64_t block = 0; block < blocks; ++block) {
    const uint8_t* rows = from + block * kRows * in_row;
    const int64_t rest = (height - block * kRows) * in_row;
    // With fewer rows left, or little memory after them: must not read beyond the image.
    if (rest < kRows * in_row + kBlockRows) {
      last_.assign(kRows * in_row + kBlockRows, 0);
      std::copy_n(rows, std::min(rest, kRows * in_row), last_.begin());
      rows = last_.data();
    }
    turn(rows, in_row, in_row, turned_.data());
    const int64_t taps = across_.taps;
    const uint16_t* weights = across_.weights.data();
    uint8_t* to = resized_.data();
    for (int64_t x = 0; x < across_.out; ++x, weights += taps)
      for (int64_t c = 0; c < channels; ++c, to += kRows) {
        const int64_t first = across_.first[x] * channels + c;
        const Pairs made = weighted(weights, taps, turned_.data() + first * kRows, channels * kRows);
        std::memcpy(to, &made, sizeof made);
      }
    turn_back(resized_.data(), out_row, narrow_.data() + block * kRows * narrow_row_, narrow_row_);
  }
}

void Resizer::resize_columns(int64_t side, int64_t channels, uint8_t* to) const {
  const int64_t row = side * channels;
  for (int64_t y = 0; y < side; ++y, to += row) {
    const uint8_t* from = narrow_.data() + down_.first[y] * narrow_row_;
    const uint16_t* weights = down_.weights.data() + y * down_.taps;
    for (int64_t e = 0; e < row; e += kRows) {
      const Pairs made = weighted(weights, down_.taps, from + e, narrow_row_);
      if (row - e >= kRows)
        std::memcpy(to + e, &made, sizeof made);
      else
        std::memcpy(to + e, &made, row - e);
    }
  }
}

}  // namespace owt
