#include "src/net/residual.h"

#include <algorithm>
#include <optional>

#include "layers/base/masking_op.h"
#include "layers/base/prepared_op.h"
#include "layers/branch_sums.h"
#include "layers/relu.h"
#include "src/core/dispatch.h"
#include "src/net/composite.h"
#include "src/net/layer_types.h"
#include "src/system/check.h"

namespace owt {
namespace {

class BlockOp : public PreparedOp, public MaskingOp {
 public:
  // Without a shortcut the second branch is x.
  BlockOp(Net& body, Net* shortcut, bool relu, const Shape& in, const Compute& on, const Layer::BindOptions& options)
      : BlockOp(body, shortcut, relu, in, on, options.wants_dx, dynamic_cast<const BlockOp*>(options.lender)) {}

  BlockOp(Net& body, Net* shortcut, bool relu, const Shape& in, const Compute& on, bool wants_dx, const BlockOp* lender)
      : in_(in),
        out_(body.out().batch_of(in.rows())),
        on_(on),
        type_(activation_type(on.precision)),
        relu_(relu ? dispatch(on, [](auto tag) { return bind_relu(tag); }) : nullptr),
        body_(body, in.rows(), on, nullptr, Tape::Scratch::kOfPass, wants_dx, lender ? &lender->body_ : nullptr) {
    body_.forget_in_evaluation();
    sums_in_body_ = body_.sum_in_last_op();
    if (shortcut)
      shortcut_.emplace(*shortcut, in.rows(), on, nullptr, Tape::Scratch::kOfPass, wants_dx,
                        lender ? &*lender->shortcut_ : nullptr);
  }

  // The body runs last, since it may leave its output in scratch memory.
  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    const Tensor b = shortcut_ ? shortcut_->forward(pass, x) : x;
    if (sums_in_body_) return body_.forward_sum(pass, x, b, relu_ != nullptr, y);
    const Tensor a = body_.forward(pass, x);
    dispatch(on_, [&](auto tag) { add_branches(tag, a, b, relu_ != nullptr, y, *pass.stream); });
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    Tensor gradient = gradient_of_sum(pass, y, dy);
    body_.backward(pass, x, gradient, dx);
    if (body_.overwrites_dy()) gradient = gradient_of_sum(pass, y, dy);
    Tensor other = gradient;
    if (shortcut_) {
      other = pass.scratch_at(shortcut_->scratch_bytes(Phase::kBackward), in_, type_);
      shortcut_->backward(pass, x, gradient, dx ? &other : nullptr);
    }
    if (!dx) return;
    dispatch(on_, [&](auto tag) {
      if (masks_dx_)
        add_where_positive(tag, *dx, other, x, *dx, *pass.stream);
      else
        add_branches(tag, *dx, other, false, *dx, *pass.stream);
    });
  }

  std::optional<Mask> mask() const override { return relu_ ? std::optional(Mask{}) : std::nullopt; }
  bool mask_dx(const Mask& before) override { return masks_dx_ = !before.bias; }

  void prepare_backward(bool wants_dx) override {
    body_.prepare_backward(wants_dx);
    if (shortcut_) shortcut_->prepare_backward(wants_dx);
  }

  // Scratch memory of one branch at a time; in backward the shortcut's is followed by the gradient of its input. In
  // backward, then the gradient that both branches get.
  int64_t scratch_bytes(Phase phase) const override {
    return branch_bytes(phase) + (phase == Phase::kBackward ? aligned_bytes(bytes_of(out_)) : 0);
  }

  int64_t inner_bytes() const override { return body_.bytes() + (shortcut_ ? shortcut_->bytes() : 0); }

 private:
  int64_t bytes_of(const Shape& shape) const { return shape.elements() * size_of(type_); }

  int64_t branch_bytes(Phase phase) const {
    int64_t shortcut = shortcut_ ? shortcut_->scratch_bytes(phase) : 0;
    if (shortcut_ && phase == Phase::kBackward) shortcut += aligned_bytes(bytes_of(in_));
    return std::max(body_.scratch_bytes(phase), shortcut);
  }

  // dy belongs to the caller, and a branch may overwrite its gradient.
  Tensor gradient_of_sum(const Pass& pass, const Tensor& y, const Tensor& dy) const {
    const bool overwritten = body_.overwrites_dy() || (shortcut_ && shortcut_->overwrites_dy());
    const bool masks = relu_ && !dy_is_masked();
    if (!masks && !overwritten) return dy;
    Tensor gradient = pass.scratch_at(branch_bytes(Phase::kBackward), out_, type_);
    if (masks)
      relu_->backward_data(pass, y, y, dy, &gradient);
    else
      gradient.copy_from(dy, *pass.stream);
    return gradient;
  }

  Shape in_, out_;
  Compute on_;
  DType type_;
  std::unique_ptr<Op> relu_;   // null: none
  bool sums_in_body_ = false;  // the last op of the body computes y
  bool masks_dx_ = false;
  Tape body_;
  std::optional<Tape> shortcut_;
};

class Residual : public Composite {
 public:
  explicit Residual(const LayerSpec& spec)
      : Composite(spec, "residual", net_layer_types()), relu_(spec.config.boolean("relu", true)) {
    add_branch(spec, spec.config, "body", spec.name + ".");
    add_branch(spec, spec.config, "shortcut", spec.name + ".");
    if (body().size() == 0)
      spec.config.error("body", "'body' is empty, wanted layers: body = [{ name = ..., type = ... }]");
    if (body().out() != shortcut().out())
      spec.config.error("shortcut",
                        concat("the body's output is ", body().out(), ", the shortcut's ", shortcut().out(),
                               ", and they are to be added; give the shortcut a layer that makes them alike, "
                               "such as a convolution with kernel 1"));
    check_names(spec, "body");
  }

  Shape out_shape(const Shape& in) const override {
    check_input(in);
    return branches()[0].out().batch_of(in.rows());
  }

  Content reads_of_output() const override { return relu_ ? Content::kSigns : Content::kNothing; }

  double flops(const Shape& in) const override {
    return static_cast<double>(out_shape(in).elements()) + Composite::flops(in);
  }

  BoundOp bind_at(const BindOptions& options, std::span<const std::unique_ptr<Layer>>, const Shape& in,
                  const Compute& on) override {
    out_shape(in);
    return {std::make_unique<BlockOp>(body(), shortcut().size() > 0 ? &shortcut() : nullptr, relu_, in, on, options),
            1};
  }

  Described describe(const Shape&) override { return {type(), {{"relu", int64_t{relu_}}}, {}}; }

 private:
  Net& body() { return branches_[0]; }
  Net& shortcut() { return branches_[1]; }

  bool relu_;
};

}  // namespace

std::unique_ptr<Layer> make_residual(const LayerSpec& spec) { return std::make_unique<Residual>(spec); }

}  // namespace owt
