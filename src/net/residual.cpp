#include "src/net/residual.h"

#include <algorithm>
#include <optional>

#include "layers/base/prepared_op.h"
#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"
#include "src/net/composite.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per thread that are worth waking it for

class ResidualOp : public PreparedOp {
 public:
  // Without a shortcut the second branch is x.
  ResidualOp(Net& body, Net* shortcut, bool relu, const Shape& in, const Compute& on, const Layer::BindOptions& options)
      : ResidualOp(body, shortcut, relu, in, on, options.wants_dx, dynamic_cast<const ResidualOp*>(options.lender)) {}

  ResidualOp(Net& body, Net* shortcut, bool relu, const Shape& in, const Compute& on, bool wants_dx,
             const ResidualOp* lender)
      : in_(in),
        out_(body.out().batch_of(in.rows())),
        on_(on),
        type_(activation_type(on.precision)),
        relu_(relu),
        body_(body, in.rows(), on, nullptr, Tape::Scratch::kOfPass, wants_dx, lender ? &lender->body_ : nullptr) {
    body_.forget_in_evaluation();
    if (shortcut)
      shortcut_.emplace(*shortcut, in.rows(), on, nullptr, Tape::Scratch::kOfPass, wants_dx,
                        lender ? &*lender->shortcut_ : nullptr);
  }

  // The body runs last, since it may leave its output in scratch memory.
  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    b_ = shortcut_ ? shortcut_->forward(pass, x) : x;
    a_ = body_.forward(pass, x);
    dispatch(on_, [&](auto tag) { add_branches(tag, a_, b_, relu_, y, *pass.stream); });
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    Tensor gradient = gradient_of_sum(pass, dy);
    body_.backward(pass, x, gradient, dx);
    if (body_.overwrites_dy()) gradient = gradient_of_sum(pass, dy);
    Tensor other = gradient;
    if (shortcut_) {
      other = pass.scratch_at(shortcut_->scratch_bytes(Phase::kBackward), in_, type_);
      shortcut_->backward(pass, x, gradient, dx ? &other : nullptr);
    }
    if (!dx) return;
    dispatch(on_, [&](auto tag) { add_branches(tag, *dx, other, false, *dx, *pass.stream); });
  }

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
  Tensor gradient_of_sum(const Pass& pass, const Tensor& dy) const {
    const bool overwritten = body_.overwrites_dy() || (shortcut_ && shortcut_->overwrites_dy());
    if (!relu_ && !overwritten) return dy;
    Tensor gradient = pass.scratch_at(branch_bytes(Phase::kBackward), out_, type_);
    if (relu_)
      dispatch(on_, [&](auto tag) { where_sum_is_positive(tag, a_, b_, dy, gradient, *pass.stream); });
    else
      gradient.copy_from(dy, *pass.stream);
    return gradient;
  }

  Shape in_, out_;
  Compute on_;
  DType type_;
  bool relu_;
  Tape body_;
  std::optional<Tape> shortcut_;
  Tensor a_, b_;  // the last addends
};

class Residual : public Composite {
 public:
  explicit Residual(const LayerSpec& spec) : Composite(spec, "residual"), relu_(spec.config.boolean("relu", true)) {
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

  double flops(const Shape& in) const override {
    return static_cast<double>(out_shape(in).elements()) + Composite::flops(in);
  }

  BoundOp bind_at(const BindOptions& options, std::span<const std::unique_ptr<Layer>>, const Shape& in,
                  const Compute& on) override {
    out_shape(in);
    return {std::make_unique<ResidualOp>(body(), shortcut().size() > 0 ? &shortcut() : nullptr, relu_, in, on, options),
            1};
  }

  Described describe(const Shape&) override { return {type(), {{"relu", int64_t{relu_}}}, {}}; }

 private:
  Net& body() { return branches_[0]; }
  Net& shortcut() { return branches_[1]; }

  bool relu_;
};

// Calls function(i) for every element, shared among the threads.
template <class Function>
void for_each_element(int64_t elements, const Function& function) {
  parallel_for(elements, kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) function(i);
  });
}

}  // namespace

std::unique_ptr<Layer> make_residual(const LayerSpec& spec) { return std::make_unique<Residual>(spec); }

void add_branches(Cpu, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream&) {
  with_cpu_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>();
    T* to = y.data<T>();
    if (!relu) return for_each_element(y.elements(), [=](int64_t i) { keep(first[i] + second[i], to[i]); });
    for_each_element(y.elements(), [=](int64_t i) {
      const float sum = first[i] + second[i];
      keep(sum < 0 ? 0.0f : sum, to[i]);
    });
  });
}

void where_sum_is_positive(Cpu, const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& dx, const Stream&) {
  with_cpu_element(dx.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    for_each_element(dx.elements(), [=](int64_t i) {
      const float gradient = from[i];  // always loaded, so that the choice needs no branch
      keep(first[i] + second[i] > 0 ? gradient : 0.0f, to[i]);
    });
  });
}

}  // namespace owt
