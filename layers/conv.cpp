#include "layers/conv.h"

#include "layers/base/linear_params.h"
#include "layers/conv_windows.h"
#include "layers/pool.h"
#include "src/core/dispatch.h"
#include "src/system/check.h"

namespace owt {
namespace {

using Integers = std::vector<int64_t>;

class Conv : public Layer {
 public:
  explicit Conv(const LayerSpec& spec) : Layer(spec.name, "conv"), windows_(spec, ConvWindows::Dilation::kKey) {
    Config& config = spec.config;
    out_ = config.integer("out", {.low = 1, .high = kMostChannels});
    groups_ = config.integer("groups", 1, {.low = 1});
    channels_ = spec.in[2];
    check_groups(config);
    part_ = spec.part.value_or(Slice{0, out_});
    OWT_CHECK(0 <= part_.begin && part_.begin <= part_.end && part_.end <= out_, "part of ", out_, " outputs");
    OWT_CHECK(groups_ == 1 || part_.size() == out_, "a part of ", groups_, " groups");

    const Pair kernel = windows_.kernel();
    const int64_t per_group = channels_ / groups_, area = kernel.h * kernel.w;
    params_ = read_linear_params(spec, {.full_shape = {out_, kernel.h, kernel.w, per_group},
                                        .file_shape = {out_, per_group, kernel.h, kernel.w},
                                        .fan_in = area * per_group,
                                        .fan_out = area * out_ / groups_,
                                        .part = part_});
  }

  Shape out_shape(const Shape& in) const override {
    const ConvGeometry g = geometry(in);
    return {in.rows(), g.out_h, g.out_w, g.out_c};
  }
  double flops(const Shape& in) const override { return geometry(in).flops(in.rows()); }
  std::vector<Param*> params() override { return pointers_to(params_); }
  std::string why_not_canonical() override { return ""; }
  Columns columns() const override { return groups_ == 1 ? Columns::kSplitsChannels : Columns::kMixes; }

  Described describe(const Shape& in) override {
    const ConvGeometry g = geometry(in);
    Described conv{type(),
                   {{"kernel", Integers{g.kernel_h, g.kernel_w}},
                    {"stride", Integers{g.stride_h, g.stride_w}},
                    {"pad", Integers{g.top, g.left, g.bottom, g.right}},
                    {"groups", g.groups}},
                   params()};
    if (g.dilated()) conv.attributes.emplace_back("dilation", Integers{g.dilation_h, g.dilation_w});
    return conv;
  }

  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    return dispatch(on, [&](auto tag) { return bind_conv(tag, geometry(in), in.rows(), params_[0], bias()); });
  }

  BoundOp bind_run(std::span<const std::unique_ptr<Layer>> followers, const Shape& in, const Compute& on) override {
    const ConvGeometry g = geometry(in);
    if (const Layer* pool = pool_beside_relu(followers)) {
      pool->out_shape(out_shape(in));  // checks the shape
      const Window* window = max_pool_window(*pool);
      auto fused = dispatch(
          on, [&](auto tag) { return bind_conv_relu_max_pool(tag, g, in.rows(), params_[0], bias(), *window); });
      if (fused) return {std::move(fused), 3};
    }
    if (followers.empty() || followers[0]->type() != "relu") return {bind(in, on), 1};
    if (const Window* window = followers.size() > 1 ? avg_pool_window(*followers[1]) : nullptr) {
      followers[1]->out_shape(out_shape(in));  // checks the shape
      auto fused = dispatch(
          on, [&](auto tag) { return bind_conv_relu_avg_pool(tag, g, in.rows(), params_[0], bias(), *window); });
      if (fused) return {std::move(fused), 3};
    }
    auto fused = dispatch(on, [&](auto tag) { return bind_conv_relu(tag, g, in.rows(), params_[0], bias()); });
    if (fused) return {std::move(fused), 2};
    return {bind(in, on), 1};
  }

  ConvGeometry geometry(const Shape& in) const { return windows_.geometry(*this, in, part_.size(), groups_); }

 private:
  Param* bias() { return params_.size() > 1 ? &params_[1] : nullptr; }

  // The max_pool in the next two layers if the other one is a relu, else null. The order of the two does not affect the
  // result.
  static const Layer* pool_beside_relu(std::span<const std::unique_ptr<Layer>> followers) {
    if (followers.size() < 2) return nullptr;
    const bool relu_first = followers[0]->type() == "relu";
    const Layer &relu = *followers[relu_first ? 0 : 1], &pool = *followers[relu_first ? 1 : 0];
    return relu.type() == "relu" && max_pool_window(pool) ? &pool : nullptr;
  }

  void check_groups(const Config& config) const {
    if (channels_ % groups_ != 0)
      config.error("groups", concat("the input has ", channels_, " channels, which ", groups_,
                                    " groups do not divide; choose a divisor of both channels and 'out'"));
    if (out_ % groups_ != 0)
      config.error("groups", concat("'out' is ", out_, ", which ", groups_,
                                    " groups do not divide; choose a divisor of both channels and 'out'"));
  }

  ConvWindows windows_;
  int64_t out_ = 0, channels_ = 0, groups_ = 1;
  Slice part_;
  std::vector<Param> params_;
};

}  // namespace

std::unique_ptr<Op> bind_conv_relu(Cpu, const ConvGeometry&, int64_t, Param&, Param*) { return nullptr; }
std::unique_ptr<Op> bind_conv_relu_max_pool(Cpu, const ConvGeometry&, int64_t, Param&, Param*, const Window&) {
  return nullptr;
}
std::unique_ptr<Op> bind_conv_relu_avg_pool(Cpu, const ConvGeometry&, int64_t, Param&, Param*, const Window&) {
  return nullptr;
}

std::unique_ptr<Layer> make_conv(const LayerSpec& spec) { return std::make_unique<Conv>(spec); }

std::optional<ConvGeometry> conv_geometry(const Layer& layer, const Shape& in) {
  const auto* conv = dynamic_cast<const Conv*>(&layer);
  return conv ? std::optional(conv->geometry(in)) : std::nullopt;
}

}  // namespace owt
