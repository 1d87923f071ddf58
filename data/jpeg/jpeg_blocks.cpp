#include "data/jpeg/jpeg_blocks.h"

#include <cstring>

#include "src/core/lanes.h"

namespace owt {
namespace {

// Unsigned, because damaged coefficients may overflow.
using Words = uint32_t __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));
using Shorts = int16_t __attribute__((vector_size(2 * kLanes)));
using ByteLanes = uint8_t __attribute__((vector_size(kLanes)));

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(void* to, const T& value) {
  std::memcpy(to, &value, sizeof value);
}

constexpr int kFractionBits = 13;  // bits of the factors
constexpr int kFirstPassBits = 2;  // bits kept after the pass over columns

template <int bits>
Words rounded_shift(const Words& x) {
  return reinterpret_cast<Words>(reinterpret_cast<Ints>(x + (1U << (bits - 1))) >> bits);
}

// Transforms eight values of each lane, in[i * stride], and shifts them right.
template <int shift>
inline void transform(const Words* in, int stride, Words* out) {
  const auto x = [&](int i) -> const Words& { return in[i * stride]; };
  const Words z = (x(2) + x(6)) * 4433U;  // 0.541196100
  const Words even2 = z - x(6) * 15137U;  // 1.847759065
  const Words even3 = z + x(2) * 6270U;   // 0.765366865
  const Words even0 = (x(0) + x(4)) << kFractionBits, even1 = (x(0) - x(4)) << kFractionBits;
  const Words a0 = even0 + even3, a3 = even0 - even3, a1 = even1 + even2, a2 = even1 - even2;

  const Words z5 = (x(7) + x(3) + x(5) + x(1)) * 9633U;  // 1.175875602
  const Words z1 = (x(7) + x(1)) * 7373U;                // 0.899976223
  const Words z2 = (x(5) + x(3)) * 20995U;               // 2.562915447
  const Words z3 = z5 - (x(7) + x(3)) * 16069U;          // 1.961570560
  const Words z4 = z5 - (x(5) + x(1)) * 3196U;           // 0.390180644
  const Words b0 = x(7) * 2446U - z1 + z3;               // 0.298631336
  const Words b1 = x(5) * 16819U - z2 + z4;              // 2.053119869
  const Words b2 = x(3) * 25172U - z2 + z3;              // 3.072711026
  const Words b3 = x(1) * 12299U - z1 + z4;              // 1.501321110

  out[0] = rounded_shift<shift>(a0 + b3);
  out[7] = rounded_shift<shift>(a0 - b3);
  out[1] = rounded_shift<shift>(a1 + b2);
  out[6] = rounded_shift<shift>(a1 - b2);
  out[2] = rounded_shift<shift>(a2 + b1);
  out[5] = rounded_shift<shift>(a2 - b1);
  out[3] = rounded_shift<shift>(a3 + b0);
  out[4] = rounded_shift<shift>(a3 - b0);
}

inline Words as_byte(const Words& x) {
  Ints value = reinterpret_cast<Ints>(x) + 128;
  value = value < 0 ? Ints{} : value;
  value = value > 255 ? Ints{} + 255 : value;
  return reinterpret_cast<Words>(value);
}

inline Words four_bytes(const Words* x) {
  return as_byte(x[0]) | as_byte(x[1]) << 8 | as_byte(x[2]) << 16 | as_byte(x[3]) << 24;
}

// Converts through shorts, because GCC 12 splits vectors that grow fourfold.
inline Ints to_ints(ByteLanes x) { return __builtin_convertvector(__builtin_convertvector(x, Shorts), Ints); }

inline Shorts to_byte_range(Shorts value) {
  value = value < 0 ? Shorts{} : value;
  return value > 255 ? Shorts{} + int16_t{255} : value;
}

}  // namespace

void inverse_dct(const BlockGroup& group, const std::array<uint16_t, kBlockSize>& quantization, uint8_t* pixels,
                 int64_t row_bytes) {
  Words columns[kBlockSize];  // [column][row]
  for (int column = 0; column < kBlockSide; ++column) {
    Words in[kBlockSide];
    for (int row = 0; row < kBlockSide; ++row) {
      const int k = row * kBlockSide + column;
      const auto values = __builtin_convertvector(load<Shorts>(group.at[k]), Ints);
      in[row] = reinterpret_cast<Words>(values) * static_cast<uint32_t>(quantization[k]);
    }
    transform<kFractionBits - kFirstPassBits>(in, 1, columns + column * kBlockSide);
  }
  for (int row = 0; row < kBlockSide; ++row) {
    Words out[kBlockSide];
    transform<kFractionBits + kFirstPassBits + 3>(columns + row, kBlockSide, out);
    const Words left = four_bytes(out), right = four_bytes(out + 4);
    uint8_t* line = pixels + row * row_bytes;
    store(line, pick<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(left, right));
    store(line + 4 * kLanes, pick<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(left, right));
  }
}

void upsample_chroma(const uint8_t* cb, const uint8_t* cr, int64_t count, int repeat, ChromaRow out) {
  const auto put = [&](int16_t* to, int64_t i, const Ints& value) {
    const Shorts shorts = __builtin_convertvector(value, Shorts);
    if (repeat == 1) return store(to + i, shorts);
    store(to + 2 * i, pick<0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7>(shorts));
    store(to + 2 * i + kLanes, pick<8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15>(shorts));
  };
  constexpr int32_t kHalf = 1 << 15;  // JFIF's conversion in 16-bit fixed point
  for (int64_t i = 0; i < count; i += kLanes) {
    const Ints u = to_ints(load<ByteLanes>(cb + i)) - 128, v = to_ints(load<ByteLanes>(cr + i)) - 128;
    put(out.red, i, (v * 91881 + kHalf) >> 16);                // 1.402
    put(out.green, i, (kHalf - u * 22554 - v * 46802) >> 16);  // 0.344136286, 0.714136286
    put(out.blue, i, (u * 116130 + kHalf) >> 16);              // 1.772
  }
}

void rgb_of(const uint8_t* luma, ChromaRow add, int64_t count, uint8_t* rgb) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto y = __builtin_convertvector(load<ByteLanes>(luma + i), Shorts);
    const auto r = __builtin_convertvector(to_byte_range(y + load<Shorts>(add.red + i)), ByteLanes);
    const auto g = __builtin_convertvector(to_byte_range(y + load<Shorts>(add.green + i)), ByteLanes);
    const auto b = __builtin_convertvector(to_byte_range(y + load<Shorts>(add.blue + i)), ByteLanes);
    // Interleaves two colours first, then inserts the third; _ marks its places.
    constexpr int _ = 0;
    const ByteLanes rg0 = pick<0, 16, _, 1, 17, _, 2, 18, _, 3, 19, _, 4, 20, _, 5>(r, g);
    const ByteLanes rg1 = pick<21, _, 6, 22, _, 7, 23, _, 8, 24, _, 9, 25, _, 10, 26>(r, g);
    const ByteLanes rg2 = pick<_, 11, 27, _, 12, 28, _, 13, 29, _, 14, 30, _, 15, 31, _>(r, g);
    const bool whole = count - i >= kLanes;
    uint8_t rest[3 * kLanes];
    uint8_t* to = whole ? rgb + 3 * i : rest;
    store(to, pick<0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20, 15>(rg0, b));
    store(to + 16, pick<0, 21, 2, 3, 22, 5, 6, 23, 8, 9, 24, 11, 12, 25, 14, 15>(rg1, b));
    store(to + 32, pick<26, 1, 2, 27, 4, 5, 28, 7, 8, 29, 10, 11, 30, 13, 14, 31>(rg2, b));
    if (!whole) std::memcpy(rgb + 3 * i, rest, 3 * (count - i));
  }
}

}  // namespace owt
