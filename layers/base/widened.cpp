#include "layers/base/widened.h"

#include <array>

#include "layers/base/prepared_op.h"
#include "src/core/conversions.h"
#include "src/core/cpu_bf16.h"

namespace owt {
namespace {

// Memory shared by all widened ops of a host thread; it grows to the largest request. `dy` stays valid from
// backward_data to backward_weights, because the f32 op may have stored its address.
enum class Buffer { kX, kY, kDy, kDx };

Tensor room(Buffer buffer, const Shape& shape) {
  static thread_local std::array<Tensor, 4> buffers;
  Tensor& memory = buffers[static_cast<size_t>(buffer)];
  const int64_t bytes = shape.elements() * size_of(DType::kF32);
  if (!memory.defined() || memory.bytes() < bytes) {
    memory = {};  // free first: there may not be room for both
    memory = Tensor({bytes}, DType::kU8);
  }
  return memory.part(0, {bytes}).viewed_as(DType::kF32).reshaped(shape);
}

class WidenedOp : public PreparedOp {
 public:
  WidenedOp(Param& weight, const std::function<std::unique_ptr<Op>(Param&)>& bind)
      : weight_(weight), widened_(weight), op_(bind(widened_)) {
    widened_.value = {};
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    renew_weight(pass);
    Tensor y32 = room(Buffer::kY, y.shape());
    op_->forward(pass, widen(pass, x, Buffer::kX), y32);
    round_to_bf16(Cpu{}, y32, y, *pass.stream);
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    renew_weight(pass);
    dy32_ = widen(pass, dy, Buffer::kDy);
    Tensor dx32 = dx ? room(Buffer::kDx, dx->shape()) : Tensor();
    op_->backward_data(pass, x, y, dy32_, dx ? &dx32 : nullptr);  // reads neither x nor y
    if (dx) round_to_bf16(Cpu{}, dx32, *dx, *pass.stream);
  }

  void backward_weights(const Pass& pass, const Tensor& x, const Tensor&) override {
    widened_.keeps_grad = weight_.keeps_grad;
    widened_.update = weight_.update;
    widened_.grad = weight_.grad;
    if (weight_.keeps_grad) widened_.grad_is_zero = weight_.take_beta() == 0;
    op_->backward_weights(pass, widen(pass, x, Buffer::kX), dy32_);
    dy32_ = {};
  }

  int64_t scratch_bytes(Phase phase) const override { return op_->scratch_bytes(phase); }

  void prepare_backward(bool wants_dx) override {
    if (auto* const op = dynamic_cast<PreparedOp*>(op_.get())) op->prepare_backward(wants_dx);
  }

 private:
  static Tensor widen(const Pass& pass, const Tensor& bf16, Buffer buffer) {
    Tensor f32 = room(buffer, bf16.shape());
    widen_to_f32(Cpu{}, bf16, f32, *pass.stream);
    return f32;
  }

  void renew_weight(const Pass& pass) {
    if (widened_.value.defined() && widened_.version == weight_.version) return;
    if (!widened_.value.defined()) widened_.value = Tensor(weight_.shape());
    round_as_bf16(Cpu{}, weight_.value, widened_.value, *pass.stream);
    widened_.version = weight_.version;
  }

  Param& weight_;
  Param widened_;  // a weight with the same values rounded to bf16
  std::unique_ptr<Op> op_;
  Tensor dy32_;
};

}  // namespace

bool must_widen(Cpu on) { return on.precision == Precision::kBf16 && !cpu_has_bf16(); }

std::unique_ptr<Op> widened(Param& weight, const std::function<std::unique_ptr<Op>(Param& weight)>& bind) {
  return std::make_unique<WidenedOp>(weight, bind);
}

}  // namespace owt
