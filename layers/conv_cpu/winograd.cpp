#include "layers/conv_cpu/winograd.h"

#include "layers/conv_cpu/conv_workspace.h"
#include "layers/conv_cpu/micro_gemm.h"
#include "layers/conv_cpu/winograd_tiles.h"
#include "src/core/threads.h"
#include "src/system/cpu_level.h"

namespace owt {
namespace {

// Forward, and backward data, which is a convolution of dy with the weights rotated by 180 degrees. A thread transforms
// a block of tiles, multiplies it plane by plane and transforms the sums into outputs.
template <class Image, class Element, int kOutputs, int kTaps>
class Winograd : public ConvPass {
  static constexpr const auto& k1d = kWinograd1d<kOutputs, kTaps>;
  static constexpr int kSide = kOutputs + kTaps - 1, kPlanes = kSide * kSide, kParts = kPerUnit<Element>;
  // Tiles that are multiplied together: a multiple of all block heights, which are 6, 9 and 12 (block_rows()). Twice as
  // many would halve the reads of weights, but exceed the second-level cache.
  static constexpr int64_t kBlock = 36;

 public:
  Winograd(const ConvShape& shape, bool backward)
      : backward_(backward),
        in_(images(shape, backward)),
        out_(images(shape, !backward)),
        top_(backward ? kTaps - 1 - shape.geometry.top : shape.geometry.top),
        left_(backward ? kTaps - 1 - shape.geometry.left : shape.geometry.left),
        tiling_{shape.rows, out_.height, out_.width, kOutputs},
        zeros_(static_cast<size_t>(in_.channels), Image(0.0f)) {}

  // packed[plane][panel][unit of ins][outs of the panel]
  size_t packed_bytes() const override { return static_cast<size_t>(kPlanes * plane_units()) * 4; }

  void pack(const float* weights, void* packed) const override {
    const int64_t taps = kTaps * kTaps;
    if (backward_) return pack(weights, out_.channels, taps * out_.channels, true, packed);
    const auto bytes = static_cast<size_t>(taps * in_.channels * out_.channels) * sizeof(float);
    auto* hwio = static_cast<float*>(conv_workspace(ConvBuffer::kWeights, bytes));
    parallel_for(taps * lanes_for(out_.channels) / kLanes, 4, [&](int64_t begin, int64_t end) {
      for (int64_t job = begin; job < end; ++job) {
        const int64_t tap = job % taps, first = job / taps * kLanes, last = std::min(first + kLanes, out_.channels);
        for (int64_t i = 0; i < in_.channels; ++i)
          for (int64_t o = first; o < last; ++o)
            hwio[(tap * in_.channels + i) * out_.channels + o] = weights[(o * taps + tap) * in_.channels + i];
      }
    });
    pack(hwio, in_.channels * out_.channels, out_.channels, false, packed);
  }

  void forward(const void* x, const void* packed, const float* bias, void* y) const override {
    convolve(x, packed, bias, y);
  }

  void backward_data(const void* dy, const void* packed, void* dx) const override { convolve(dy, packed, nullptr, dx); }

 private:
  static Images<Image> images(const ConvShape& shape, bool outputs) {
    const ConvGeometry& g = shape.geometry;
    if (outputs) return {nullptr, shape.rows, g.out_h, g.out_w, g.out_c};
    return {nullptr, shape.rows, g.in_h, g.in_w, g.in_c};
  }

  // Size of the weights of one plane, in units of 32 bits.
  int64_t plane_units() const { return ins_ / kParts * outs_; }

  // weights[tap * tap_step + in * in_step + out]
  void pack(const float* weights, int64_t tap_step, int64_t in_step, bool turned, void* packed) const {
    const int64_t units = ins_ / kParts, width = panel_ * kLanes;
    parallel_for(units, 1, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit)
        for (int64_t out = 0; out < outs_; out += kLanes) {
          const int64_t lanes = std::min<int64_t>(kLanes, out_.channels - out);
          Vector planes[kParts][kPlanes];
          for (int part = 0; part < kParts; ++part) {
            const int64_t in = unit * kParts + part;
            Vector taps[kTaps * kTaps]{};
            for (int i = 0; i < kTaps * kTaps && in < in_.channels; ++i)
              taps[turned ? kTaps * kTaps - 1 - i : i] = load(weights + i * tap_step + in * in_step + out, lanes);
            transform2d(k1d.weights, taps, planes[part]);
          }
          char* to = static_cast<char*>(packed) + 4 * ((out / width * units + unit) * width + out % width);
          for (int p = 0; p < kPlanes; ++p) store_unit(planes, p, to + p * 4 * plane_units());
        }
    });
  }

  void convolve(const void* x, const void* packed, const float* bias, void* y) const {
    const Images<const Image> in{static_cast<const Image*>(x), in_.rows, in_.height, in_.width, in_.channels};
    const Images<Image> out{static_cast<Image*>(y), out_.rows, out_.height, out_.width, out_.channels};
    // Planes begin at different cache lines.
    const int64_t factor_row = 4 * ins_ / kParts, factor_plane = kBlock * factor_row + 64,
                  sum_plane = kBlock * outs_ * 4 + 64, own = round_up(kPlanes * (factor_plane + sum_plane), 4096);
    char* workspace = static_cast<char*>(conv_workspace(ConvBuffer::kTiles, static_cast<size_t>(own * team_size())));
    parallel_for(quotient_up(tiling_.tiles(), kBlock), 1, [&](int64_t begin, int64_t end) {
      char *factors = workspace + own * omp_get_thread_num(), *sums = factors + kPlanes * factor_plane;
      for (int64_t first = begin * kBlock; first < std::min(end * kBlock, tiling_.tiles()); first += kBlock) {
        const int64_t count = std::min(kBlock, tiling_.tiles() - first);
        for (int64_t t = 0; t < count; ++t) enter(in, first + t, factors + t * factor_row, factor_plane);
        for (int p = 0; p < kPlanes; ++p)
          with_constant<kMostVectors>(panel_, [&](auto vectors) {
            multiply<vectors()>(factors + p * factor_plane, static_cast<const char*>(packed) + p * 4 * plane_units(),
                                count, sums + p * sum_plane);
          });
        for (int64_t t = 0; t < count; ++t) leave(sums + t * outs_ * 4, sum_plane, bias, first + t, out);
      }
    });
  }

  void enter(const Images<const Image>& in, int64_t tile, char* to, int64_t plane) const {
    const Tiling::TileOrigin at = tiling_.origin(tile);
    const InputTile<kSide, Image> square(in, true, {at.image, at.y - top_, at.x - left_}, zeros_.data());
    for (int64_t c = 0; c < in.channels; c += kLanes) {
      Vector values[kPlanes], planes[kPlanes];
      square.load(c, in.channels - c, values);
      transform2d(k1d.input, values, planes);
      for (int p = 0; p < kPlanes; ++p) store(planes[p], reinterpret_cast<Element*>(to + p * plane) + c);
    }
  }

  // sums[tile][out] = factors[tile][in] * weights[panel][in][outs of the panel]. Rows of the last block after the last
  // tile are computed as well.
  template <int kVectors>
  void multiply(const char* factors, const char* weights, int64_t tiles, char* sums) const {
    constexpr int kRows = block_rows(kVectors);
    const int64_t units = ins_ / kParts, row = 4 * units;
    for (int64_t out = 0; out < outs_; out += kVectors * kLanes, weights += row * kVectors * kLanes)
      for (int64_t tile = 0; tile < tiles; tile += kRows) {
        Vector block[kRows][kVectors]{};
        multiply_add<Element>(block, factors + tile * row, row, 4, weights, kVectors * sizeof(Vector), units);
        for (int r = 0; r < kRows; ++r)
          for (int v = 0; v < kVectors; ++v)
            store(block[r][v], reinterpret_cast<float*>(sums) + (tile + r) * outs_ + out + v * kLanes);
      }
  }

  void leave(const char* sums, int64_t plane, const float* bias, int64_t tile, const Images<Image>& out) const {
    const Tiling::TileOrigin at = tiling_.origin(tile);
    const int64_t height = std::min<int64_t>(kOutputs, out.height - at.y),
                  width = std::min<int64_t>(kOutputs, out.width - at.x);
    for (int64_t o = 0; o < out.channels; o += kLanes) {
      const int64_t lanes = std::min<int64_t>(kLanes, out.channels - o);
      Vector planes[kPlanes], outputs[kOutputs * kOutputs];
      for (int p = 0; p < kPlanes; ++p) planes[p] = load(reinterpret_cast<const float*>(sums + p * plane) + o);
      transform2d(k1d.output, planes, outputs);
      const Vector added = bias ? load(bias + o, lanes) : Vector{};
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < width; ++j) {
          Image* to = out.pixel(at.image, at.y + i, at.x + j) + o;
          const Vector value = outputs[i * kOutputs + j] + added;
          lanes == kLanes ? store(value, to) : store(value, to, lanes);
        }
    }
  }

  bool backward_;
  Images<Image> in_, out_;
  int64_t top_, left_;
  Tiling tiling_;
  std::vector<Image> zeros_;  // a pixel outside the image
  int64_t ins_ = lanes_for(in_.channels), outs_ = lanes_for(out_.channels);
  int panel_ = panel_vectors(outs_);
};

template <class... Arguments>
std::unique_ptr<ConvPass> make_convolution(DType products, bool three, bool f32_images, const Arguments&... arguments) {
  if constexpr (kHasProducts<Bf16>)
    if (products == DType::kBF16) return std::make_unique<Winograd<Bf16, Bf16, 2, 3>>(arguments...);
  if (three && f32_images) return std::make_unique<Winograd<float, float, 4, 3>>(arguments...);
  if (three) return std::make_unique<Winograd<Bf16, float, 4, 3>>(arguments...);
  if (f32_images) return std::make_unique<Winograd<float, float, 4, 5>>(arguments...);
  return std::make_unique<Winograd<Bf16, float, 4, 5>>(arguments...);
}

// With fewer input channels most lanes would be empty; layers/conv_cpu/few_channel_conv.h has kernels for these.
constexpr int64_t kFewestChannels = 5;

bool suits(const ConvGeometry& g) {
  return g.kernel_h == g.kernel_w && (g.kernel_h == 3 || g.kernel_h == 5) && g.stride_h == 1 && g.stride_w == 1 &&
         g.groups == 1 && g.in_c >= kFewestChannels;
}

}  // namespace

std::unique_ptr<ConvPass> make_winograd(const ConvShape& shape, PassKind kind, DType products) {
  const bool three = shape.geometry.kernel_h == 3, f32_images = shape.images == DType::kF32;
  if (!suits(shape.geometry)) return nullptr;
  if (products == DType::kBF16) {
    const bool has_products = kHasProducts<Bf16> && cpu_level() >= CpuLevel::kBf16;
    if (!has_products || !three || f32_images) return nullptr;
  }
  if (kind == PassKind::kBackwardWeights) return make_winograd_weights(shape, products);
  return make_convolution(products, three, f32_images, shape, kind == PassKind::kBackwardData);
}

}  // namespace owt
