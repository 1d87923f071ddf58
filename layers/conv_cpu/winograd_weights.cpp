#include "layers/conv_cpu/conv_workspace.h"
#include "layers/conv_cpu/micro_gemm.h"
#include "layers/conv_cpu/winograd.h"
#include "layers/conv_cpu/winograd_tiles.h"
#include "src/core/threads.h"

namespace owt {
namespace {

// The transformed gradient is a sum over tiles of products of transformed x and dy. A job has a part of the tiles and a
// part of the panels of x's channels. It keeps its own sums, so no data moves between cores until all tiles are summed.
// It transforms a portion of tiles, then multiplies it plane by plane.
template <class Image, class Element, int kOutputs, int kTaps>
class WinogradWeights : public ConvPass {
  static constexpr const auto& k1d = kWinograd1d<kOutputs, kTaps>;
  static constexpr int kSide = kOutputs + kTaps - 1, kPlanes = kSide * kSide, kParts = kPerUnit<Element>;
  static constexpr int kRows = 6;        // rows of a block of sums
  static constexpr int64_t kSteps = 96;  // steps of a sum whose factors stay in the first-level cache

 public:
  explicit WinogradWeights(const ConvShape& shape)
      : g_(shape.geometry),
        tiling_{shape.rows, g_.out_h, g_.out_w, kOutputs},
        zeros_(static_cast<size_t>(std::max(g_.in_c, g_.out_c)), Image(0.0f)) {
    const int64_t team = team_size(), panels = ins_ / width_;
    const int64_t most_parts = std::min(kMostSumBytes / (4 * kPlanes * outs_ * ins_), all_units() / kFewestUnits);
    tile_parts_ = std::clamp<int64_t>(most_parts, 1, team);
    panel_parts_ = std::min(quotient_up(team, tile_parts_), panels);
    own_ins_ = quotient_up(panels, panel_parts_) * width_;
    const int64_t all = quotient_up(all_units(), tile_parts_),
                  worth_it = std::max<int64_t>(own_ins_ * outs_ / (2 * (own_ins_ + outs_)), 32),
                  cached = kCachedBytes / (4 * kPlanes * (own_ins_ + outs_));
    units_ = std::min(all, std::max(worth_it, cached));
  }

  void backward_weights(const void* x, const void* dy, float beta, float* weights, float bias_beta,
                        float* bias) const override {
    const Images<const Image> inputs{static_cast<const Image*>(x), tiling_.rows, g_.in_h, g_.in_w, g_.in_c},
        outputs{static_cast<const Image*>(dy), tiling_.rows, g_.out_h, g_.out_w, g_.out_c};
    const int64_t sum_bytes = kPlanes * sum_plane(), job_bytes = sum_bytes + kPlanes * (x_plane() + dy_plane()),
                  jobs = tile_parts_ * panel_parts_;
    char* const workspace =
        static_cast<char*>(conv_workspace(ConvBuffer::kTiles, static_cast<size_t>(jobs * job_bytes)));
    parallel_for(jobs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t job = begin; job < end; ++job)
        sum(inputs, outputs, job / panel_parts_, job % panel_parts_, workspace + job * job_bytes);
    });
    leave(workspace, panel_parts_ * job_bytes, job_bytes, beta, weights);
    if (bias) add_bias(outputs, bias_beta, bias);
  }

 private:
  static constexpr int64_t kCachedBytes = int64_t{1} << 20;  // limit on the bytes of factors
  static constexpr int64_t kMostSumBytes = int64_t{256} << 20;
  static constexpr int64_t kFewestUnits = 16;  // least units of a part; smaller parts cost more to add than they save

  int64_t all_units() const { return quotient_up(tiling_.tiles(), kParts); }

  // A job's memory: sums, x, dy. The planes of each begin at different cache lines. In bytes.
  int64_t sum_plane() const { return outs_ * own_ins_ * 4 + 64; }
  int64_t x_plane() const { return units_ * own_ins_ * 4 + 64; }
  int64_t dy_plane() const { return units_ * outs_ * 4 + 64; }

  void sum(const Images<const Image>& inputs, const Images<const Image>& outputs, int64_t tile_part, int64_t panel_part,
           char* sums) const {
    const Slice units = split(all_units(), static_cast<int>(tile_parts_), static_cast<int>(tile_part)),
                panels = split(ins_ / width_, static_cast<int>(panel_parts_), static_cast<int>(panel_part));
    char *x = sums + kPlanes * sum_plane(), *dy = x + kPlanes * x_plane();
    for (int64_t first = units.begin; first < units.end; first += units_) {
      const int64_t count = std::min(units_, units.end - first);
      for (int64_t unit = 0; unit < count; ++unit) {
        const int64_t tile = (first + unit) * kParts;
        for (int64_t panel = 0; panel < panels.size(); ++panel)
          enter<kSide>(inputs, g_.top, g_.left, (panels.begin + panel) * width_, width_, k1d.input, tile,
                       x + 4 * width_ * (panel * units_ + unit), x_plane());
        enter<kOutputs>(outputs, 0, 0, 0, outs_, k1d.output_t, tile, dy + unit * 4 * outs_, dy_plane());
      }
      with_constant<kMostVectors>(panel_vectors(ins_), [&](auto vectors) {
        for (int p = 0; p < kPlanes; ++p)
          for (int64_t panel = 0; panel < panels.size(); ++panel)
            add_products<vectors()>(x + p * x_plane() + 4 * width_ * panel * units_, dy + p * dy_plane(), count,
                                    first == units.begin,
                                    reinterpret_cast<float*>(sums + p * sum_plane()) + panel * width_);
      });
    }
  }

  // The channels starting at `first`, at most `width` of them.
  template <int kWide, int kColumns>
  void enter(const Images<const Image>& images, int64_t top, int64_t left, int64_t first, int64_t width,
             const double (&matrix)[kSide][kColumns], int64_t tile, char* to, int64_t plane) const {
    const auto square = [&](int64_t index) {
      const Tiling::TileOrigin at = tiling_.origin(index);
      return InputTile<kWide, Image>(images, index < tiling_.tiles(), {at.image, at.y - top, at.x - left},
                                     zeros_.data());
    };
    const InputTile<kWide, Image> squares[] = {square(tile), square(tile + kParts - 1)};
    for (int64_t c = first; c < std::min(first + width, images.channels); c += kLanes, to += 4 * kLanes) {
      Vector values[kWide * kWide], planes[kParts][kPlanes];
      for (int part = 0; part < kParts; ++part) {
        squares[part].load(c, images.channels - c, values);
        transform2d(matrix, values, planes[part]);
      }
      for (int p = 0; p < kPlanes; ++p) store_unit(planes, p, to + p * plane);
    }
  }

  // sums[out][in of the panel] += dy[unit][out] * x[unit][in of the panel]
  template <int kVectors>
  void add_products(const char* x, const char* dy, int64_t units, bool first, float* sums) const {
    for (int64_t unit = 0; unit < units; unit += kSteps)
      for (int64_t o = 0; o < outs_; o += kRows) {
        Vector block[kRows][kVectors]{};
        for (int r = 0; r < kRows && !(first && unit == 0); ++r)
          for (int v = 0; v < kVectors; ++v) block[r][v] = load(sums + (o + r) * own_ins_ + v * kLanes);
        multiply_add<Element>(block, dy + 4 * (unit * outs_ + o), 4, 4 * outs_, x + 4 * unit * width_, 4 * width_,
                              std::min<int64_t>(kSteps, units - unit));
        for (int r = 0; r < kRows; ++r)
          for (int v = 0; v < kVectors; ++v) store(block[r][v], sums + (o + r) * own_ins_ + v * kLanes);
      }
  }

  // Adds the sums of all parts. Parts of tiles are tile_step bytes apart, parts of panels panel_step bytes.
  void leave(const char* sums, int64_t tile_step, int64_t panel_step, float beta, float* weights) const {
    parallel_for(g_.out_c, 1, [&](int64_t begin, int64_t end) {
      for (int part = 0; part < panel_parts_; ++part) {
        const char* const own = sums + part * panel_step;
        const Slice panels = split(ins_ / width_, static_cast<int>(panel_parts_), part);
        for (int64_t o = begin; o < end; ++o)
          for (int64_t c = panels.begin * width_; c < std::min(panels.end * width_, g_.in_c); c += kLanes) {
            Vector planes[kPlanes]{}, taps[kTaps * kTaps];
            for (int64_t tiles = 0; tiles < tile_parts_; ++tiles)
              for (int p = 0; p < kPlanes; ++p)
                planes[p] += load(reinterpret_cast<const float*>(own + tiles * tile_step + p * sum_plane()) +
                                  o * own_ins_ + c - panels.begin * width_);
            transform2d(k1d.weights_t, planes, taps);
            const int64_t lanes = std::min<int64_t>(kLanes, g_.in_c - c);
            float* to = weights + o * kTaps * kTaps * g_.in_c + c;
            for (int i = 0; i < kTaps * kTaps; ++i, to += g_.in_c)
              store(beta == 0 ? taps[i] : taps[i] + load(to, lanes), to, lanes);
          }
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
        store(beta == 0 ? sum : sum + load(bias + o, lanes), bias + o, lanes);
      }
    });
  }

  static Vector load_some(const Image* from, int64_t lanes) { return lanes == kLanes ? load(from) : load(from, lanes); }
  int64_t outs_vectors() const { return lanes_for(g_.out_c) / kLanes; }

  ConvGeometry g_;
  Tiling tiling_;
  std::vector<Image> zeros_;  // a pixel outside the image
  int64_t ins_ = lanes_for(g_.in_c), outs_ = round_up(lanes_for(g_.out_c), kRows);
  int64_t width_ = panel_vectors(ins_) * kLanes;
  int64_t tile_parts_, panel_parts_, own_ins_;  // own_ins_: the largest number of channels of a part
  int64_t units_;                               // largest number of units of a portion
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
