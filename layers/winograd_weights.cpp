#include "layers/conv_workspace.h"
#include "layers/micro_gemm.h"
#include "layers/winograd.h"
#include "layers/winograd_tiles.h"
#include "src/core/threads.h"

namespace owt {
namespace {

// The sums over tiles of products of transformed x and dy are the transformed gradient. Portions of tiles are
// transformed, then multiplied plane by plane.
template <class Image, class Element, int kOutputs, int kTaps>
class WinogradWeights : public ConvPass {
  static constexpr const auto& k1d = kWinograd1d<kOutputs, kTaps>;
  static constexpr int kSide = kOutputs + kTaps - 1, kPlanes = kSide * kSide, kParts = kUnit<Element>;
  static constexpr int kRows = 6;        // of a block of sums
  static constexpr int64_t kSteps = 96;  // of a sum whose factors stay in the first cache

 public:
  explicit WinogradWeights(const ConvShape& shape)
      : g_(shape.geometry),
        tiling_{shape.rows, g_.out_h, g_.out_w, kOutputs},
        zeros_(static_cast<size_t>(std::max(g_.in_c, g_.out_c)), Image(0.0f)) {
    units_ = std::min(round_up(tiling_.tiles(), kParts) / kParts,
                      std::max<int64_t>(kPortionBytes / (4 * kPlanes * (ins_ + outs_)), 128));
  }

  void backward_weights(const void* x, const void* dy, float beta, float* weights, float bias_beta,
                        float* bias) const override {
    const Images<const Image> inputs{static_cast<const Image*>(x), tiling_.rows, g_.in_h, g_.in_w, g_.in_c},
        outputs{static_cast<const Image*>(dy), tiling_.rows, g_.out_h, g_.out_w, g_.out_c};
    char* const workspace = static_cast<char*>(conv_workspace(ConvBuffer::kTiles, bytes()));
    for (int64_t first = 0; first < tiling_.tiles(); first += units_ * kParts) {
      parallel_for(units_, 4, [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t tile = first + unit * kParts;
          enter<kSide>(inputs, g_.top, g_.left, k1d.input, tile, workspace + unit * 4 * width_, width_, x_plane());
          enter<kOutputs>(outputs, 0, 0, k1d.output_t, tile, workspace + dy_place() + unit * 4 * outs_, outs_,
                          dy_plane());
        }
      });
      with_panel(panel_vectors(ins_), [&](auto vectors) { add_products<vectors()>(first == 0, workspace); });
    }
    leave(workspace + sums_place(), beta, weights);
    if (bias) add_bias(outputs, bias_beta, bias);
  }

 private:
  // A portion's factors and the sums of 256 x 256 channels fit into the caches of two cores.
  static constexpr int64_t kPortionBytes = int64_t{4} << 20;

  // Where planes lie in the workspace, in bytes; they begin at different lines of the caches.
  int64_t x_plane() const { return units_ * ins_ * 4 + 64; }
  int64_t dy_plane() const { return units_ * outs_ * 4 + 64; }
  int64_t sum_plane() const { return outs_ * ins_ * 4 + 64; }
  int64_t dy_place() const { return kPlanes * x_plane(); }
  int64_t sums_place() const { return dy_place() + kPlanes * dy_plane(); }
  size_t bytes() const { return static_cast<size_t>(sums_place() + kPlanes * sum_plane()); }

  template <int kWide, int kColumns>
  void enter(const Images<const Image>& images, int64_t top, int64_t left, const double (&matrix)[kSide][kColumns],
             int64_t tile, char* to, int64_t width, int64_t plane) const {
    const auto square = [&](int64_t index) {
      const Tiling::Place at = tiling_.place(index);
      return Square<kWide, Image>(images, index < tiling_.tiles(), {at.image, at.y - top, at.x - left}, zeros_.data());
    };
    const Square<kWide, Image> squares[] = {square(tile), square(tile + kParts - 1)};
    for (int64_t c = 0; c < images.channels; c += kLanes, to += 4 * kLanes) {
      Vector values[kWide * kWide], planes[kParts][kPlanes];
      for (int part = 0; part < kParts; ++part) {
        squares[part].load(c, images.channels - c, values);
        transform2d(matrix, values, planes[part]);
      }
      for (int p = 0; p < kPlanes; ++p) store_unit(planes, p, to + p * plane);
      if ((c + kLanes) % width == 0) to += 4 * width * (units_ - 1);
    }
  }

  // sums[plane][out][in] += dy[plane][unit][out] * x[plane][unit][in]
  template <int kVectors>
  void add_products(bool first, char* workspace) const {
    const int64_t panels = ins_ / (kVectors * kLanes);
    parallel_for(kPlanes * panels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t job = begin; job < end; ++job) {
        const int64_t p = job / panels, c = job % panels * kVectors * kLanes;
        const char *x = workspace + p * x_plane() + 4 * c * units_, *dy = workspace + dy_place() + p * dy_plane();
        float* sums = reinterpret_cast<float*>(workspace + sums_place() + p * sum_plane()) + c;
        for (int64_t unit = 0; unit < units_; unit += kSteps)
          for (int64_t o = 0; o < outs_; o += kRows) {
            Vector block[kRows][kVectors]{};
            for (int r = 0; r < kRows && !(first && unit == 0); ++r)
              for (int v = 0; v < kVectors; ++v) block[r][v] = load(sums + (o + r) * ins_ + v * kLanes);
            multiply_add<Element>(block, dy + 4 * (unit * outs_ + o), 4, 4 * outs_, x + 4 * unit * width_, 4 * width_,
                                  std::min<int64_t>(kSteps, units_ - unit));
            for (int r = 0; r < kRows; ++r)
              for (int v = 0; v < kVectors; ++v) store(block[r][v], sums + (o + r) * ins_ + v * kLanes);
          }
      }
    });
  }

  void leave(const char* sums, float beta, float* weights) const {
    parallel_for(g_.out_c, 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        for (int64_t c = 0; c < g_.in_c; c += kLanes) {
          Vector planes[kPlanes], taps[kTaps * kTaps];
          for (int p = 0; p < kPlanes; ++p)
            planes[p] = load(reinterpret_cast<const float*>(sums + p * sum_plane()) + o * ins_ + c);
          transform2d(k1d.weights_t, planes, taps);
          const int64_t lanes = std::min<int64_t>(kLanes, g_.in_c - c);
          float* to = weights + o * kTaps * kTaps * g_.in_c + c;
          for (int i = 0; i < kTaps * kTaps; ++i, to += g_.in_c)
            store_part(beta == 0 ? taps[i] : taps[i] + load_part(to, lanes), to, lanes);
        }
    });
  }

  void add_bias(const Images<const Image>& dy, float beta, float* bias) const {
    const int64_t pixels = dy.rows * dy.height * dy.width;
    parallel_for(outs_vectors(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin * kLanes; o < std::min(end * kLanes, dy.channels); o += kLanes) {
        const int64_t lanes = std::min<int64_t>(kLanes, dy.channels - o);
        Vector sums[4]{};
        for (int64_t i = 0; i < pixels; ++i) sums[i % 4] += load_some(dy.pixels + i * dy.channels + o, lanes);
        const Vector sum = sums[0] + sums[1] + (sums[2] + sums[3]);
        store_part(beta == 0 ? sum : sum + load_part(bias + o, lanes), bias + o, lanes);
      }
    });
  }

  static Vector load_some(const Image* from, int64_t lanes) {
    return lanes == kLanes ? load(from) : load_part(from, lanes);
  }
  int64_t outs_vectors() const { return lanes_for(g_.out_c) / kLanes; }

  ConvGeometry g_;
  Tiling tiling_;
  std::vector<Image> zeros_;  // a pixel outside of an image
  int64_t ins_ = lanes_for(g_.in_c), outs_ = round_up(lanes_for(g_.out_c), kRows);
  int64_t width_ = panel_vectors(ins_) * kLanes;
  int64_t units_;  // of a portion
};

}  // namespace

std::unique_ptr<ConvPass> make_winograd_weights(const ConvShape& shape, DType products) {
  const bool f32_images = shape.images == DType::kF32, three = shape.geometry.kernel_h == 3;
  if constexpr (kHasProducts<Bf16>)
    if (products == DType::kBF16) return std::make_unique<WinogradWeights<Bf16, Bf16, 2, 3>>(shape);
  if (three && f32_images) return std::make_unique<WinogradWeights<float, float, 4, 3>>(shape);
  if (three) return std::make_unique<WinogradWeights<Bf16, float, 4, 3>>(shape);
  if (f32_images) return std::make_unique<WinogradWeights<float, float, 4, 5>>(shape);
  return std::make_unique<WinogradWeights<Bf16, float, 4, 5>>(shape);
}

}  // namespace owt
