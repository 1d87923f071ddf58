#include "src/net/hint.h"

#include <algorithm>

#include "layers/base/prepared_op.h"
#include "layers/branch_sums.h"
#include "src/core/dispatch.h"
#include "src/net/composite.h"
#include "src/net/layer_types.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

// The output has the input's memory where the net allows that.
void pass_on(const Tensor& x, Tensor& y, const Stream& stream) {
  if (x.raw() != y.raw()) y.copy_from(x, stream);
}

class TapOp : public Op {
 public:
  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    pass_on(x, y, *pass.stream);
    if (pass.mode == Mode::kEval && pass.hint.defined()) Tensor(pass.hint).copy_from(x, *pass.stream);
  }
  void backward_data(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (dx) pass_on(dy, *dx, *pass.stream);
  }
};

class HintOp : public PreparedOp {
 public:
  HintOp(Net& body, double weight, const Shape& in, const Compute& on, const Layer::BindOptions& options)
      : in_(in),
        projected_(body.out().batch_of(in.rows())),
        weight_(weight),
        on_(on),
        type_(activation_type(on.precision)),
        body_(body, in.rows(), on, nullptr, Tape::Scratch::kOfPass, options.wants_dx, lent(options.lender)) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override { pass_on(x, y, *pass.stream); }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    OWT_CHECK(pass.hint.defined(), "there is no teacher's activation for the hint");
    OWT_CHECK_EQ(pass.hint.shape(), projected_, "the teacher's activation");
    const double values = static_cast<double>(projected_.row_elements());
    const auto factor = static_cast<float>(2 * weight_ / (values * static_cast<double>(pass.step_rows)));
    Tensor gradient = pass.scratch_at(inner_scratch(), projected_, type_);
    const Tensor& projected = body_.forward(pass, x);
    dispatch(on_, [&](auto tag) { scale_difference(tag, projected, pass.hint, factor, gradient, *pass.stream); });
    if (!dx) return body_.backward(pass, x, gradient, nullptr);
    Tensor of_hint = pass.scratch_at(inner_scratch() + bytes_of(projected_), in_, type_);
    body_.backward(pass, x, gradient, &of_hint);
    dispatch(on_, [&](auto tag) { add_branches(tag, dy, of_hint, false, *dx, *pass.stream); });
  }

  void prepare_backward(bool wants_dx) override { body_.prepare_backward(wants_dx); }
  int64_t scratch_bytes(Phase phase) const override {
    return phase == Phase::kBackward ? inner_scratch() + bytes_of(projected_) + bytes_of(in_) : 0;
  }
  int64_t inner_bytes() const override { return body_.bytes(); }

 private:
  static const Tape* lent(const Op* lender) {
    const auto* other = dynamic_cast<const HintOp*>(lender);
    return other ? &other->body_ : nullptr;
  }
  int64_t bytes_of(const Shape& shape) const { return aligned_bytes(shape.elements() * size_of(type_)); }
  // The body runs forward and backward in backward.
  int64_t inner_scratch() const {
    return std::max(body_.scratch_bytes(Phase::kForward), body_.scratch_bytes(Phase::kBackward));
  }

  Shape in_, projected_;
  double weight_;
  Compute on_;
  DType type_;
  Tape body_;
};

class Hint : public Composite {
 public:
  explicit Hint(const LayerSpec& spec) : Composite(spec, kHintLayer, net_layer_types()) {
    if (!spec.config.given("body")) return;
    add_branch(spec, spec.config, "body", spec.name + ".");
    weight_ = spec.config.number("weight", {.low = 0, .high = 1e6});
  }

  Shape out_shape(const Shape& in) const override { return in; }
  std::optional<Content> in_place() const override { return Content::kValues; }
  Content reads_of_output() const override { return branches_.empty() ? Content::kNothing : Content::kValues; }

  BoundOp bind_at(const BindOptions& options, std::span<const std::unique_ptr<Layer>>, const Shape& in,
                  const Compute& on) override {
    if (branches_.empty()) return {std::make_unique<TapOp>(), 1};
    return {std::make_unique<HintOp>(branches_[0], weight_, in, on, options), 1};
  }

 private:
  double weight_ = 0;
};

}  // namespace

LayerType hint_type() {
  return {kHintLayer, [](const LayerSpec& spec) -> std::unique_ptr<Layer> { return std::make_unique<Hint>(spec); }};
}

Config hint_table(int64_t channels, double weight) {
  const std::string begin = concat("name = '", kHintLayer, "'\ntype = '", kHintLayer, "'\n");
  if (channels == 0) return Config::text(begin, "the teacher's hint");
  return Config::text(concat(begin, "weight = ", format("{:.17g}", weight),
                             "\nbody = [{ name = 'project', type = 'conv', ", "kernel = 1, out = ", channels, " }]\n"),
                      "loss.distill.hint");
}

bool is_of_hint(const std::string& tensor) { return tensor.starts_with(concat(kHintLayer, ".")); }

}  // namespace owt
