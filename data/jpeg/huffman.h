// Huffman codes of baseline JPEG (ITU-T T.81, annexes C and F), and the bit reader for them.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace owt {

// Bits of bytes without stuffing; the first bit is at the top of `window`. At least kSlack bytes after the last one
// must be readable.
class BitReader {
 public:
  static constexpr int64_t kSlack = 512;  // more bytes than any block takes

  BitReader() = default;
  BitReader(const uint8_t* begin, const uint8_t* end) : next_(begin), end_(end) {}

  // Makes at least 56 bits available. Without branches: bits that are already there are read again (Giesen, "Reading
  // bits in far too many ways", part 2).
  void refill() {
    uint64_t bytes;
    std::memcpy(&bytes, next_, sizeof bytes);
    window_ |= __builtin_bswap64(bytes) >> count_;
    next_ += (63 - count_) >> 3;
    count_ |= 56;
  }
  uint64_t window() const { return window_; }
  void drop(int bits) {
    window_ <<= bits;
    count_ -= bits;
  }
  bool overrun() const { return (next_ - end_) * 8 > count_; }  // more bits dropped than there were

 private:
  const uint8_t* next_ = nullptr;
  const uint8_t* end_ = nullptr;
  uint64_t window_ = 0;
  int count_ = 0;  // valid bits in the window
};

// A code represents a symbol RRRRSSSS: the run of zeros before the coefficient, and the number of bits of its value.
class HuffmanTable {
 public:
  struct Symbol {
    uint8_t bits;       // bits of the code and its value together
    uint8_t code_bits;  // 0: no such code
    uint8_t size;       // SSSS: bits of the value, after the code
    uint8_t advance;    // RRRR + 1 places in zig-zag order; kEndOfBlock, or kNoCode
  };
  static constexpr uint8_t kEndOfBlock = 128;
  static constexpr uint8_t kNoCode = 64;

  // counts: BITS, the numbers of codes of 1 to 16 bits; symbols: HUFFVAL, their sum. False if this is not a valid
  // table.
  bool build(const std::array<uint8_t, 16>& counts, const std::vector<uint8_t>& symbols, bool ac);

  Symbol next(uint64_t window) const {
    const Symbol symbol = near_[window >> (64 - kNearBits)];
    return __builtin_expect(symbol.code_bits != 0, 1) ? symbol : far(window);
  }

 private:
  static constexpr int kNearBits = 10;
  static constexpr int kCodeBits = 16;

  Symbol far(uint64_t window) const;

  std::array<Symbol, 1 << kNearBits> near_{};
  // Indexed by code length: MAXCODE + 1, left-aligned in 16 bits; VALPTR - MINCODE.
  std::array<uint32_t, kCodeBits + 1> end_{};
  std::array<int32_t, kCodeBits + 1> first_{};
  std::vector<Symbol> symbols_;
};

// T.81's EXTEND: the value of `bits` (0 to 15) bits at the top of the window; values that begin with 0 are negative.
inline int32_t extended(uint64_t window, int bits) {
  const auto value = static_cast<int32_t>((window >> 1) >> (63 - bits));
  const auto negative = static_cast<int32_t>(~static_cast<int64_t>(window) >> 63);
  return value + (negative & (1 - (1 << bits)));
}

}  // namespace owt
