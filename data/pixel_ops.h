// Operations on the bytes of an image before they become numbers: random colours (torchvision's ColorJitter) and
// TrivialAugment-Wide (Mueller and Hutter 2021, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation",
// table 2; with torchvision's operations). The arithmetic uses integers, so that the CPU and the kernel of
// data/device_augment.cu compute the same bytes. Both use the constexpr functions.
//
// With p a byte, f a factor, and mix(a) = a + f * (p - a), rounded to nearest and clamped to 0 ... 255:
//   brightness   mix(0)
//   contrast     mix(mean grey value of the image), grey = 0.299 red + 0.587 green + 0.114 blue
//   saturation   mix(grey value of the pixel)
//   sharpness    mix((sum of the 3 x 3 pixels around + 4 p) / 13); border pixels are unchanged
//   hue          turns the pixel's hue in the hexcone of HSV by `amount`; its largest and smallest channel are kept
//   posterize    keeps the highest `amount` bits
//   solarize     255 - p for p >= `amount`
//   autocontrast (p - smallest) * 255 / (largest - smallest), per channel
//   equalize     (number of pixels below p + step / 2) / step, per channel, in integers; step = (pixels - pixels of the
//                largest value) / 255; unchanged if step is 0
//   move         the pixel at the nearest place of an affine map; zeros outside the image
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/core/shape.h"
#include "src/core/uniform.h"

namespace owt {

struct PixelOp {
  enum class Kind : int32_t {
    kIdentity,
    kMove,
    kSharpness,
    kSaturation,
    kHue,
    // From here on: the new value of a byte depends only on the byte and on statistics of its channel.
    kBrightness,
    kContrast,
    kPosterize,
    kSolarize,
    kAutocontrast,
    kEqualize,
  };
  static constexpr int kOne = 1 << 16;  // the factor 1, and a full turn of the hue

  Kind kind = Kind::kIdentity;
  int32_t amount = 0;
  // kMove: column x of row y is taken from column (column[0] x + column[1] y + column[2]) / 2^32, rounded down.
  int64_t column[3] = {}, row[3] = {};

  constexpr bool is_by_bytes() const { return kind >= Kind::kBrightness; }
  constexpr bool is_of_colours() const { return kind == Kind::kSaturation || kind == Kind::kHue; }
  // Whether it leaves every image unchanged.
  constexpr bool is_nothing() const {
    const bool factor =
        kind == Kind::kSharpness || kind == Kind::kSaturation || kind == Kind::kBrightness || kind == Kind::kContrast;
    return kind == Kind::kIdentity || (factor && amount == kOne) || (kind == Kind::kHue && amount == 0);
  }
};

constexpr int kByteValues = 256;

constexpr uint8_t mixed_byte(int base, int value, int factor) {
  return static_cast<uint8_t>(
      std::clamp(base + ((factor * (value - base) + PixelOp::kOne / 2) >> 16), 0, kByteValues - 1));
}

constexpr int kRed = 19595, kGreen = 38470, kBlue = 7471;  // weights of the grey value; their sum is 65536
// sums: sum of the pixels of each channel, one or three.
constexpr int mean_grey(const int64_t* sums, int channels, int64_t pixels) {
  const int64_t sum = channels == 1 ? 65536 * sums[0] : kRed * sums[0] + kGreen * sums[1] + kBlue * sums[2];
  return static_cast<int>((sum + 32768 * pixels) / (65536 * pixels));
}

constexpr uint8_t posterized(int value, int bits) { return static_cast<uint8_t>(value & -(1 << (8 - bits))); }
constexpr uint8_t solarized(int value, int from) {
  return static_cast<uint8_t>(value >= from ? kByteValues - 1 - value : value);
}

// Statistics of a channel of an image; each operation needs some of them.
struct ChannelFacts {
  int lowest = 0, highest = 0, grey = 0;
  int64_t pixels = 0;
  const int32_t* histogram = nullptr;  // number of pixels of each byte value
};

constexpr uint8_t table_entry(const PixelOp& op, const ChannelFacts& facts, int value) {
  switch (op.kind) {
    case PixelOp::Kind::kBrightness:
      return mixed_byte(0, value, op.amount);
    case PixelOp::Kind::kContrast:
      return mixed_byte(facts.grey, value, op.amount);
    case PixelOp::Kind::kPosterize:
      return posterized(value, op.amount);
    case PixelOp::Kind::kSolarize:
      return solarized(value, op.amount);
    case PixelOp::Kind::kAutocontrast: {
      const int range = facts.highest - facts.lowest;
      if (range == 0) return static_cast<uint8_t>(value);
      return static_cast<uint8_t>(std::clamp(((value - facts.lowest) * 255 + range / 2) / range, 0, 255));
    }
    default:
      return static_cast<uint8_t>(value);
  }
}

// table: kByteValues entries.
constexpr void fill_table(const PixelOp& op, const ChannelFacts& facts, uint8_t* table) {
  if (op.kind != PixelOp::Kind::kEqualize) {
    for (int value = 0; value < kByteValues; ++value) table[value] = table_entry(op, facts, value);
    return;
  }
  const int64_t step = (facts.pixels - facts.histogram[facts.highest]) / 255;
  int64_t below = 0;
  for (int value = 0; value < kByteValues; ++value) {
    table[value] = static_cast<uint8_t>(step == 0 ? int64_t{value} : std::min<int64_t>(255, (below + step / 2) / step));
    below += facts.histogram[value];
  }
}

struct Rgb {
  int red, green, blue;
};

// It is JPEG's luma.
constexpr int grey_of(const Rgb& p) { return (kRed * p.red + kGreen * p.green + kBlue * p.blue + 32768) >> 16; }

// rgb: 3 bytes for each of `pixels` pixels; grey: one. `grey` may be `rgb`.
void write_grey(const uint8_t* rgb, int64_t pixels, uint8_t* grey);

constexpr Rgb saturated(const Rgb& p, int factor) {
  const int grey = grey_of(p);
  return {mixed_byte(grey, p.red, factor), mixed_byte(grey, p.green, factor), mixed_byte(grey, p.blue, factor)};
}

// No branches and no integer divisions, so that compilers vectorise it. A quotient of two floats is rounded in the same
// way everywhere.
constexpr Rgb with_hue_turned(const Rgb& p, int turn) {
  constexpr int kSector = 1 << 16, kTurn = 6 * kSector;
  const int high = std::max(p.red, std::max(p.green, p.blue)), low = std::min(p.red, std::min(p.green, p.blue));
  const int range = high - low;
  const int across = high == p.red ? p.green - p.blue : high == p.green ? p.blue - p.red : p.red - p.green;
  const int begin = high == p.red ? 0 : high == p.green ? 2 * kSector : 4 * kSector;
  const float part = static_cast<float>(across * kSector) / static_cast<float>(std::max(range, 1));
  const int hue = begin + static_cast<int>(part) + 6 * turn;  // -4 to 8 sectors
  const auto at = [=](int offset) {
    int k = hue + offset;
    k = k < 0 ? k + kTurn : k;
    k = k >= kTurn ? k - kTurn : k;
    k = k >= kTurn ? k - kTurn : k;
    const int down = std::clamp(std::min(k, 4 * kSector - k), 0, kSector);
    return high - ((range * down + kSector / 2) >> 16);
  };
  return {at(5 * kSector), at(3 * kSector), at(kSector)};
}

// sum: of the 3 x 3 bytes around and including the value.
constexpr uint8_t sharpened(int sum, int value, int factor) {
  return mixed_byte((sum + 4 * value + 6) / 13, value, factor);
}

// Bytes of height x width pixels of one or three channels.
struct PixelGrid {
  int height, width, channels;
};

// Writes the pixel at (y, x) after an operation that is not a table.
constexpr void write_pixel(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, int y, int x, uint8_t* to) {
  const int channels = grid.channels, line = grid.width * channels;
  const uint8_t* here = from + int64_t{y} * line + x * channels;
  if (op.kind == PixelOp::Kind::kMove) {
    const int64_t column = (op.column[0] * x + op.column[1] * y + op.column[2]) >> 32;
    const int64_t row = (op.row[0] * x + op.row[1] * y + op.row[2]) >> 32;
    const bool inside = column >= 0 && column < grid.width && row >= 0 && row < grid.height;
    for (int c = 0; c < channels; ++c)
      to[c] = inside ? from[row * line + column * channels + c] : static_cast<uint8_t>(0);
  } else if (op.kind == PixelOp::Kind::kSharpness && y > 0 && x > 0 && y < grid.height - 1 && x < grid.width - 1) {
    for (int c = 0; c < channels; ++c) {
      int sum = 0;
      for (int row = -1; row <= 1; ++row)
        for (int column = -1; column <= 1; ++column) sum += here[row * line + column * channels + c];
      to[c] = sharpened(sum, here[c], op.amount);
    }
  } else if (op.is_of_colours() && channels == 3) {
    const Rgb pixel{here[0], here[1], here[2]};
    const Rgb made = op.kind == PixelOp::Kind::kHue ? with_hue_turned(pixel, op.amount) : saturated(pixel, op.amount);
    to[0] = static_cast<uint8_t>(made.red), to[1] = static_cast<uint8_t>(made.green);
    to[2] = static_cast<uint8_t>(made.blue);
  } else {
    for (int c = 0; c < channels; ++c) to[c] = here[c];
  }
}

// Brightness, contrast, saturation: factors of max(0, 1 - b) ... 1 + b; hue: -h ... h of a turn. In random order.
struct JitterSettings {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};

// Parameters for drawing the operations of an image; passed to kernels by value.
struct EditDraw {
  static constexpr int kJitters = 4, kMostOps = kJitters + 1;
  static constexpr int kPolicyOps = 14, kPolicyBins = 31;

  int32_t low[kJitters] = {};       // minimum for brightness, contrast, saturation, hue
  int32_t amounts[kJitters] = {};   // number of values from low on; the first is 0: no jitter
  const PixelOp* policy = nullptr;  // kPolicyOps x kPolicyBins x 2; null: none

  // Writes the operations in order, without operations that do nothing, and returns their number. jitter: five random
  // numbers; policy: three.
  constexpr int draw(const uint32_t* jitter_bits, const uint32_t* policy_bits, PixelOp* ops) const {
    constexpr PixelOp::Kind kKinds[] = {PixelOp::Kind::kBrightness, PixelOp::Kind::kContrast,
                                        PixelOp::Kind::kSaturation, PixelOp::Kind::kHue};
    int count = 0;
    const auto add = [&](const PixelOp& op) {
      if (!op.is_nothing()) ops[count++] = op;
    };
    int left[kJitters] = {0, 1, 2, 3}, order = below(24, jitter_bits[4]);
    for (int remaining = kJitters; amounts[0] > 0 && remaining > 0; --remaining) {
      const int at = order % remaining, which = left[at];
      order /= remaining;
      left[at] = left[remaining - 1];
      PixelOp op;
      op.kind = kKinds[which];
      op.amount = low[which] + below(amounts[which], jitter_bits[which]);
      add(op);
    }
    if (policy) {
      const int op = below(kPolicyOps, policy_bits[0]), bin = below(kPolicyBins, policy_bits[1]);
      add(policy[(op * kPolicyBins + bin) * 2 + static_cast<int>(policy_bits[2] & 1)]);
    }
    return count;
  }
};

// The operations of TrivialAugment-Wide on images of height x width: by operation, strength and sign.
std::vector<PixelOp> trivial_augment_wide(int height, int width);

// The draw of a jitter; without a policy.
EditDraw jitter_draw(const JitterSettings& settings);

// Runs one operation. from, to: the bytes of the grid, in different memory.
void run_op(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to);

}  // namespace owt
