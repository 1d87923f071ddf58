#include "layers/local.h"

#include "layers/base/linear_params.h"
#include "layers/conv_windows.h"
#include "src/core/dispatch.h"
#include "src/system/check.h"

namespace owt {
namespace {

class Local : public Layer {
 public:
  explicit Local(const LayerSpec& spec) : Layer(spec.name, "local"), windows_(spec), in_(spec.in) {
    const int64_t out = spec.config.integer("out", {.low = 1, .high = kMostChannels});
    part_ = spec.part.value_or(Slice{0, out});
    OWT_CHECK(0 <= part_.begin && part_.begin <= part_.end && part_.end <= out, "part of ", out, " outputs");
    const ConvGeometry g = geometry(in_.batch_of(1));
    const int64_t positions = g.out_h * g.out_w, area = g.kernel_h * g.kernel_w;
    const Shape weight{out, positions, area * g.in_c};
    params_ = read_linear_params(
        spec,
        {.full_shape = weight, .file_shape = weight, .fan_in = area * g.in_c, .fan_out = area * out, .part = part_});
    if (bias()) bias()->full_shape = bias()->file_shape = {out, positions};
  }

  Shape out_shape(const Shape& in) const override {
    const ConvGeometry g = geometry(in);
    if (in.row() != in_) fail("layer '", name(), "' has weights for images of ", in_, ", not for an input of ", in);
    return {in.rows(), g.out_h, g.out_w, g.out_c};
  }
  double flops(const Shape& in) const override { return geometry(in).flops(in.rows()); }
  std::vector<Param*> params() override { return pointers_to(params_); }
  Columns columns() const override { return Columns::kSplitsChannels; }
  Described describe(const Shape& in) override {
    const ConvGeometry g = geometry(in);
    return {type(),
            {{"kernel", std::vector<int64_t>{g.kernel_h, g.kernel_w}},
             {"stride", std::vector<int64_t>{g.stride_h, g.stride_w}},
             {"pad", std::vector<int64_t>{g.top, g.left, g.bottom, g.right}}},
            params()};
  }
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    out_shape(in);  // checks the shape
    return dispatch(on, [&](auto tag) { return bind_local(tag, geometry(in), in.rows(), params_[0], bias()); });
  }

 private:
  ConvGeometry geometry(const Shape& in) const { return windows_.geometry(*this, in, part_.size()); }
  Param* bias() { return params_.size() > 1 ? &params_[1] : nullptr; }

  ConvWindows windows_;
  Shape in_;  // one row
  Slice part_;
  std::vector<Param> params_;
};

}  // namespace

std::unique_ptr<Layer> make_local(const LayerSpec& spec) { return std::make_unique<Local>(spec); }

}  // namespace owt
