#include "src/net/scale.h"

#include "layers/base/prepared_op.h"
#include "layers/branch_sums.h"
#include "src/core/dispatch.h"
#include "src/net/composite.h"
#include "src/net/layer_types.h"
#include "src/system/check.h"

namespace owt {
namespace {

class ScaleOp : public PreparedOp {
 public:
  ScaleOp(Net& body, const Shape& in, const Compute& on, const Layer::BindOptions& options)
      : factors_shape_({in.rows(), body.out().elements()}),
        body_out_(body.out().batch_of(in.rows())),
        on_(on),
        type_(activation_type(on.precision)),
        body_(body, in.rows(), on, nullptr, Tape::Scratch::kOfPass, options.wants_dx, lent(options.lender)) {
    body_.forget_in_evaluation();
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    factors_ = body_.forward(pass, x).reshaped(factors_shape_);
    dispatch(on_, [&](auto tag) { scale_channels(tag, x, factors_, false, y, *pass.stream); });
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    Tensor gradient = pass.scratch_at(body_.scratch_bytes(Phase::kBackward), body_out_, type_);
    Tensor sums = gradient.reshaped(factors_shape_);
    dispatch(on_, [&](auto tag) { sum_channel_products(tag, x, dy, sums, *pass.stream); });
    body_.backward(pass, x, gradient, dx);
    if (dx) dispatch(on_, [&](auto tag) { scale_channels(tag, dy, factors_, true, *dx, *pass.stream); });
  }

  void prepare_backward(bool wants_dx) override { body_.prepare_backward(wants_dx); }

  // The body's, in backward followed by the gradient of its output.
  int64_t scratch_bytes(Phase phase) const override {
    const int64_t gradient = phase == Phase::kBackward ? factors_shape_.elements() * size_of(type_) : 0;
    return body_.scratch_bytes(phase) + aligned_bytes(gradient);
  }

  int64_t inner_bytes() const override { return body_.bytes(); }

 private:
  static const Tape* lent(const Op* lender) {
    const auto* other = dynamic_cast<const ScaleOp*>(lender);
    return other ? &other->body_ : nullptr;
  }

  Shape factors_shape_, body_out_;
  Compute on_;
  DType type_;
  Tape body_;
  Tensor factors_;  // the latest output of the body: one row of factors for each row of x
};

class Scale : public Composite {
 public:
  explicit Scale(const LayerSpec& spec) : Composite(spec, "scale", net_layer_types()) {
    add_branch(spec, spec.config, "body", spec.name + ".");
    if (body().size() == 0)
      spec.config.error("body", "'body' is empty, wanted layers: body = [{ name = ..., type = ... }]");
    const Shape out = body().out();
    const int64_t wanted = spec.in[spec.in.rank() - 1];
    if (out.elements() != wanted || out[out.rank() - 1] != wanted)
      spec.config.error("body", concat("the body's output is ", out, ", wanted a factor for each of the ", wanted,
                                       spec.in.rank() == 3 ? " channels" : " features",
                                       "; begin it with global_avg_pool and end it with a dense layer of out = ",
                                       wanted, " and an activation"));
    check_names(spec, "body");
  }

  Shape out_shape(const Shape& in) const override {
    check_input(in);
    return in;
  }

  double flops(const Shape& in) const override { return static_cast<double>(in.elements()) + Composite::flops(in); }

  BoundOp bind_at(const BindOptions& options, std::span<const std::unique_ptr<Layer>>, const Shape& in,
                  const Compute& on) override {
    out_shape(in);
    return {std::make_unique<ScaleOp>(body(), in, on, options), 1};
  }

  Described describe(const Shape&) override { return {type(), {}, {}}; }

 private:
  Net& body() { return branches_[0]; }
};

}  // namespace

std::unique_ptr<Layer> make_scale(const LayerSpec& spec) { return std::make_unique<Scale>(spec); }

}  // namespace owt
