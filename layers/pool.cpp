#include "layers/pool.h"

#include <algorithm>

#include "src/core/dispatch.h"
#include "src/system/check.h"

namespace owt {

namespace {

void require_images(const Layer& layer, const Shape& in) {
  if (in.rank() != 4)
    fail(layer.type(), " pools images (rows x height x width x channels), not ", in,
         "; put it before the first dense layer");
}

Window read_window(Config& config) {
  Window window;
  constexpr double kMostPixels = 1 << 15;  // far above the size of images, and no sum overflows
  window.kernel = config.integer("kernel", {.low = 1, .high = kMostPixels});
  window.stride = config.integer("stride", window.kernel, {.low = 1, .high = kMostPixels});
  window.pad = config.integer("pad", 0, {.low = 0, .high = kMostPixels});
  window.round_up = config.word("round", "down", {"down", "up"}) == "up";
  if (window.pad > window.kernel / 2)
    config.error("pad", concat("'pad' is ", window.pad, ", wanted at most kernel / 2 = ", window.kernel / 2,
                               ", so that every window holds a pixel"));
  return window;
}

using Integers = std::vector<int64_t>;

enum class Pooling { kMax, kAverage };

class Pool : public Layer {
 public:
  Pool(const LayerSpec& spec, Pooling pooling)
      : Layer(spec.name, pooling == Pooling::kMax ? "max_pool" : "avg_pool"),
        pooling_(pooling),
        window_(read_window(spec.config)) {
    if (pooling == Pooling::kAverage) window_.counts_pad = spec.config.boolean("count_pad", true);
  }

  Shape out_shape(const Shape& in) const override {
    require_images(*this, in);
    const int64_t height = window_.count(in[1]), width = window_.count(in[2]);
    if (height < 1 || width < 1)
      fail("a window of ", window_.kernel, "x", window_.kernel, " with pad ", window_.pad, " does not fit into ", in[1],
           "x", in[2], " pixels; use a smaller kernel or fewer pooling layers before");
    return {in[0], height, width, in[3]};
  }

  double flops(const Shape& in) const override {
    return static_cast<double>(out_shape(in).elements() * window_.kernel * window_.kernel);
  }
  Columns columns() const override { return Columns::kKeeps; }

  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    out_shape(in);
    return dispatch(on, [&](auto tag) {
      return pooling_ == Pooling::kMax ? bind_max_pool(tag, window_, in) : bind_avg_pool(tag, window_, in);
    });
  }

  // Padding is ignored by the maximum. It may count in a mean, but positions beyond it do not.
  Described describe(const Shape& in) override {
    const int64_t p = window_.pad;
    const Shape out = out_shape(in);
    Described pool{
        type(),
        {{"kernel", Integers{window_.kernel, window_.kernel}}, {"stride", Integers{window_.stride, window_.stride}}},
        {}};
    if (pooling_ == Pooling::kAverage && window_.counts_pad) {
      pool.attributes.emplace_back("zeros", Integers{p, p, p, p});
      pool.attributes.emplace_back("pad", Integers{0, 0, beyond(in[1] + 2 * p, out[1]), beyond(in[2] + 2 * p, out[2])});
    } else {
      pool.attributes.emplace_back("pad", Integers{p, p, beyond(in[1] + p, out[1]), beyond(in[2] + p, out[2])});
    }
    return pool;
  }

  const Window* window_of(Pooling pooling) const { return pooling_ == pooling ? &window_ : nullptr; }

 private:
  // Positions after an extent that the last of `out` windows needs.
  int64_t beyond(int64_t extent, int64_t out) const {
    return std::max<int64_t>(0, (out - 1) * window_.stride + window_.kernel - extent);
  }

  Pooling pooling_;
  Window window_;
};

class GlobalAvgPool : public Layer {
 public:
  explicit GlobalAvgPool(const LayerSpec& spec) : Layer(spec.name, "global_avg_pool") {}

  Shape out_shape(const Shape& in) const override {
    require_images(*this, in);
    return {in[0], in[3]};
  }
  double flops(const Shape& in) const override { return static_cast<double>(in.elements()); }
  Columns columns() const override { return Columns::kKeeps; }
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    out_shape(in);
    return dispatch(on, [&](auto tag) { return bind_global_avg_pool(tag, in); });
  }
};

}  // namespace

std::unique_ptr<Layer> make_max_pool(const LayerSpec& spec) { return std::make_unique<Pool>(spec, Pooling::kMax); }
std::unique_ptr<Layer> make_avg_pool(const LayerSpec& spec) { return std::make_unique<Pool>(spec, Pooling::kAverage); }
std::unique_ptr<Layer> make_global_avg_pool(const LayerSpec& spec) { return std::make_unique<GlobalAvgPool>(spec); }

const Window* max_pool_window(const Layer& layer) {
  const auto* pool = dynamic_cast<const Pool*>(&layer);
  return pool ? pool->window_of(Pooling::kMax) : nullptr;
}

const Window* avg_pool_window(const Layer& layer) {
  const auto* pool = dynamic_cast<const Pool*>(&layer);
  return pool ? pool->window_of(Pooling::kAverage) : nullptr;
}

}  // namespace owt
