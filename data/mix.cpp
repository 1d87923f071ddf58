#include "data/mix.h"

#include <algorithm>
#include <cmath>

#include "src/core/bf16.h"
#include "src/core/philox.h"

namespace owt {
namespace {

// Blocks of random numbers per pair: one decides, and each of two gamma numbers has several tries.
constexpr uint64_t kGammaTries = 15, kBlocks = 1 + 2 * kGammaTries;

// The logarithm of a Gamma(alpha, 1) number, from the blocks from `first` on (Marsaglia and Tsang 2000). For alpha
// below 1 it is the number for alpha + 1 times u^(1 / alpha), whose logarithm does not underflow. A try fails in at
// most 1 of 20 cases. If all fail, which practically does not happen, it is the most likely number.
double log_gamma_number(double alpha, const Philox& random, uint64_t first) {
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  const double u0 = (random.block(2 * first)[3] + 0.5) * 0x1p-32;
  const double boost = alpha < 1 ? std::log(u0) / alpha : 0;
  for (uint64_t t = 0; t < kGammaTries; ++t) {
    const double x = random.normals(2 * (first + t) + 1)[0];
    const double v = std::pow(1 + c * x, 3), u = (random.block(2 * (first + t))[0] + 0.5) * 0x1p-32;
    if (1 + c * x > 0 && std::log(u) < x * x / 2 + d - d * v + d * std::log(v)) return std::log(d * v) + boost;
  }
  return std::log(d) + boost;
}

// A Beta(alpha, alpha) number.
double beta_number(double alpha, const Philox& random, uint64_t first) {
  return 1 /
         (1 + std::exp(log_gamma_number(alpha, random, first + kGammaTries) - log_gamma_number(alpha, random, first)));
}

Patch cut_patch(const Shape& image, double share, uint32_t row_bits, uint32_t column_bits) {
  const auto height = static_cast<int>(image[0]), width = static_cast<int>(image[1]);
  const double half = 0.5 * std::sqrt(1 - share);
  const int down = static_cast<int>(half * height), across = static_cast<int>(half * width);
  const int row = below(height, row_bits), column = below(width, column_bits);
  const int top = std::max(row - down, 0), left = std::max(column - across, 0);
  return {top, left, std::min(row + down, height) - top, std::min(column + across, width) - left};
}

int32_t in_units(double share) { return static_cast<int32_t>(std::lround(share * PairMix::kShareUnits)); }

// Products are computed and rounded separately, through memory: the compiler must not fuse two operations.
template <class T>
void blend(const PairMix& mix, int64_t elements, T* first, T* second) {
  constexpr int64_t kTogether = 256;
  const float own = mix.own(), other = mix.other();
  float parts[4][kTogether];
  for (int64_t begin = 0; begin < elements; begin += kTogether) {
    const int64_t count = std::min(kTogether, elements - begin);
    T *a = first + begin, *b = second + begin;
    for (int64_t i = 0; i < count; ++i) parts[0][i] = static_cast<float>(a[i]) * own;
    for (int64_t i = 0; i < count; ++i) parts[1][i] = static_cast<float>(b[i]) * other;
    for (int64_t i = 0; i < count; ++i) parts[2][i] = static_cast<float>(b[i]) * own;
    for (int64_t i = 0; i < count; ++i) parts[3][i] = static_cast<float>(a[i]) * other;
    for (int64_t i = 0; i < count; ++i) a[i] = T(parts[0][i] + parts[1][i]);
    for (int64_t i = 0; i < count; ++i) b[i] = T(parts[2][i] + parts[3][i]);
  }
}

}  // namespace

PairMix draw_mix(const MixSettings& settings, const Shape& image, const View& view, int64_t sample) {
  PairMix mix;
  if (!view.training || !settings.any()) return mix;
  const Philox random(view.seed, RandomStream::kAugment, view.epoch, "mix");
  const uint64_t first = sample * kBlocks;
  const auto bits = random.block(2 * (first + kBlocks - 1));
  const bool cuts = settings.cutmix > 0 && (settings.mixup == 0 || (bits[0] & 1) != 0);
  const double share = beta_number(cuts ? settings.cutmix : settings.mixup, random, first);
  if (!cuts) {
    mix.share = in_units(share);
    return mix;
  }
  mix.cut = cut_patch(image, share, bits[1], bits[2]);
  const double pixels = static_cast<double>(mix.cut.height) * mix.cut.width;
  mix.share = in_units(1 - pixels / (image[0] * image[1]));
  return mix;
}

void write_mixed_label(const PairMix& mix, const int32_t* own, const int32_t* other, int64_t targets, int32_t* to) {
  const bool swapped = 2 * mix.share < PairMix::kShareUnits;
  *to++ = swapped ? *other : *own;
  *to++ = swapped ? *own : *other;
  *to++ = swapped ? PairMix::kShareUnits - mix.share : mix.share;
  for (int64_t t = 1; t <= targets; ++t)
    *to++ = bits_of_target(mix.own() * target_of(own[t]) + mix.other() * target_of(other[t]));
}

template <class T>
void mix_images(const PairMix& mix, const Shape& image, T* first, T* second) {
  if (!mix.mixes()) return;
  if (mix.cut.height == 0) return blend(mix, image.elements(), first, second);
  const int64_t channels = image[2], line = image[1] * channels;
  for (int64_t row = mix.cut.top; row < mix.cut.top + mix.cut.height; ++row) {
    const int64_t begin = row * line + mix.cut.left * channels;
    std::swap_ranges(first + begin, first + begin + mix.cut.width * channels, second + begin);
  }
}

template void mix_images(const PairMix&, const Shape&, float*, float*);
template void mix_images(const PairMix&, const Shape&, Bf16*, Bf16*);

}  // namespace owt
