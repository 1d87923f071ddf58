#include "data/jpeg/huffman.h"

#include <numeric>

namespace owt {
namespace {

// AC coefficients of baseline JPEG have at most 10 bits, differences of DC coefficients 11.
bool to_symbol(uint8_t byte, bool ac, HuffmanTable::Symbol& symbol) {
  const int size = ac ? byte & 15 : byte, run = ac ? byte >> 4 : 0;
  if (size > (ac ? 10 : 11)) return false;
  symbol.size = static_cast<uint8_t>(size);
  symbol.advance = static_cast<uint8_t>(run + 1);
  if (ac && size == 0) {
    if (run != 0 && run != 15) return false;
    if (run == 0) symbol.advance = HuffmanTable::kEndOfBlock;
  }
  return true;
}

}  // namespace

bool HuffmanTable::build(const std::array<uint8_t, 16>& counts, const std::vector<uint8_t>& symbols, bool ac) {
  if (std::accumulate(counts.begin(), counts.end(), size_t{0}) != symbols.size()) return false;
  near_.fill({});
  symbols_.clear();
  uint32_t code = 0;
  for (uint32_t bits = 1; bits <= kCodeBits; ++bits, code <<= 1) {
    first_[bits] = static_cast<int32_t>(symbols_.size()) - static_cast<int32_t>(code);
    for (int i = 0; i < counts[bits - 1]; ++i, ++code) {
      Symbol symbol{};
      if (code >= 1U << bits || !to_symbol(symbols[symbols_.size()], ac, symbol)) return false;
      symbol.code_bits = static_cast<uint8_t>(bits);
      symbol.bits = static_cast<uint8_t>(bits + symbol.size);
      symbols_.push_back(symbol);
      if (bits > kNearBits) continue;
      const uint32_t copies = 1U << (kNearBits - bits);
      for (uint32_t c = 0; c < copies; ++c) near_[code * copies + c] = symbol;
    }
    end_[bits] = code << (kCodeBits - bits);
  }
  return true;
}

HuffmanTable::Symbol HuffmanTable::far(uint64_t window) const {
  const auto top = static_cast<uint32_t>(window >> (64 - kCodeBits));
  for (uint32_t bits = kNearBits + 1; bits <= kCodeBits; ++bits)
    if (top < end_[bits]) {
      const int32_t place = first_[bits] + static_cast<int32_t>(top >> (kCodeBits - bits));
      if (place >= 0 && place < static_cast<int32_t>(symbols_.size())) return symbols_[place];
      break;
    }
  return {.bits = 0, .code_bits = 0, .size = 0, .advance = kNoCode};
}

}  // namespace owt
