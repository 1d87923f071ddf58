#include "layers/sampled.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kGatherBytes = 1 << 16;  // fewest bytes per thread for which a thread is worth waking

// The rows that the packed layer holds. All ops of the layer share it.
class PackedRows {
 public:
  PackedRows(std::vector<Param*> whole, std::vector<Param*> packed)
      : whole_(std::move(whole)), packed_(std::move(packed)) {
    OWT_CHECK_EQ(whole_.size(), packed_.size());
    for (size_t p = 0; p < whole_.size(); ++p) whole_[p]->most_grad_rows = packed_[p]->part.size();
  }

  void allocate(const Compute& on) {
    for (size_t p = 0; p < whole_.size(); ++p) {
      whole_[p]->allocate(on);
      packed_[p]->grad = whole_[p]->grad;
      packed_[p]->grad_type = whole_[p]->grad_type;
      packed_[p]->allocate(on);
    }
  }

  // Packs the rows of the sample, unless they are there already. A recorded step packs the rows of its own sample,
  // because every step begins with a draw.
  template <class OnDevice>
  void take(OnDevice on, const SampledRows& sampled, const Stream& stream) {
    const std::pair now(sampled.draw, whole_.front()->version);
    if (holds_ == now) return;
    for (size_t p = 0; p < whole_.size(); ++p) {
      gather_rows(on, whole_[p]->value, sampled, packed_[p]->value, stream);
      if (packed_[p]->copy16.defined()) gather_rows(on, whole_[p]->copy16, sampled, packed_[p]->copy16, stream);
      ++packed_[p]->version;
    }
    holds_ = now;
  }

  // Around both passes of backward: an op may add to its gradients in either.
  void begin_gradients() {
    for (size_t p = 0; p < whole_.size(); ++p) packed_[p]->grad_is_zero = whole_[p]->grad_is_zero;
  }
  void end_gradients() {
    for (size_t p = 0; p < whole_.size(); ++p) whole_[p]->grad_is_zero = packed_[p]->grad_is_zero;
  }

 private:
  std::vector<Param*> whole_, packed_;
  std::optional<std::pair<uint64_t, uint64_t>> holds_;  // SampledRows::draw and Param::version
};

template <class OnDevice>
class SampledOp : public Op {
 public:
  SampledOp(OnDevice on, std::unique_ptr<Op> whole, std::unique_ptr<Op> packed, PackedRows& rows)
      : on_(on), whole_(std::move(whole)), packed_(std::move(packed)), rows_(rows) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    if (!pass.sampled) return whole_->forward(pass, x, y);
    rows_.take(on_, *pass.sampled, *pass.stream);
    Tensor part = sampled_part(y, pass.sampled->most());
    packed_->forward(pass, x, part);
    clear_columns(on_, *pass.sampled, part, *pass.stream);
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (!pass.sampled) return whole_->backward_data(pass, x, y, dy, dx);
    const int64_t most = pass.sampled->most();
    rows_.begin_gradients();
    packed_->backward_data(pass, x, sampled_part(y, most), sampled_part(dy, most), dx);
  }

  void backward_weights(const Pass& pass, const Tensor& x, const Tensor& dy) override {
    OWT_CHECK(pass.sampled, "the gradient holds sampled rows only");
    packed_->backward_weights(pass, x, sampled_part(dy, pass.sampled->most()));
    rows_.end_gradients();
  }

  int64_t scratch_bytes(Phase phase) const override {
    const int64_t packed = packed_->scratch_bytes(phase);
    return phase == Phase::kForward ? std::max(packed, whole_->scratch_bytes(phase)) : packed;
  }

 private:
  OnDevice on_;
  std::unique_ptr<Op> whole_, packed_;
  PackedRows& rows_;
};

class Sampled : public Layer {
 public:
  Sampled(std::unique_ptr<Layer> whole, std::unique_ptr<Layer> packed)
      : Layer(whole->name(), whole->type()),
        whole_(std::move(whole)),
        packed_(std::move(packed)),
        rows_(whole_->params(), packed_->params()) {}

  Shape out_shape(const Shape& in) const override { return whole_->out_shape(in); }
  double flops(const Shape& in) const override { return packed_->flops(in); }
  std::vector<Param*> params() override { return whole_->params(); }
  Columns columns() const override { return whole_->columns(); }
  int64_t scratch_bytes(const Shape& in, const Compute& on) const override { return packed_->scratch_bytes(in, on); }

  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    rows_.allocate(on);
    return dispatch(on, [&](auto tag) -> std::unique_ptr<Op> {
      return std::make_unique<SampledOp<decltype(tag)>>(tag, bind_whole(in, on), packed_->bind(in, on), rows_);
    });
  }

 private:
  // Only evaluates. So a GPU need not choose a product for the gradient of all rows, with memory for it.
  std::unique_ptr<Op> bind_whole(const Shape& in, const Compute& on) {
    Param& weight = *whole_->params()[0];
    const bool keeps_grad = std::exchange(weight.keeps_grad, false);
    std::unique_ptr<Op> op = whole_->bind(in, on);
    weight.keeps_grad = keeps_grad;
    return op;
  }

  std::unique_ptr<Layer> whole_, packed_;
  PackedRows rows_;
};

}  // namespace

std::unique_ptr<Layer> make_sampled(std::unique_ptr<Layer> whole, std::unique_ptr<Layer> packed) {
  return std::make_unique<Sampled>(std::move(whole), std::move(packed));
}

void gather_rows(Cpu, const Tensor& from, const SampledRows& sampled, Tensor& to, const Stream&) {
  if (to.elements() == 0) return;
  const int64_t bytes = to.bytes() / to.shape().rows();
  const auto* const rows = sampled.rows.data<int32_t>();
  const auto* const source = static_cast<const std::byte*>(from.raw());
  auto* const target = static_cast<std::byte*>(to.raw());
  parallel_for(sampled.most(), std::max<int64_t>(1, kGatherBytes / bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (rows[i] == kNoRow)
        std::memset(target + i * bytes, 0, static_cast<size_t>(bytes));
      else
        std::memcpy(target + i * bytes, source + rows[i] * bytes, static_cast<size_t>(bytes));
    }
  });
}

void clear_columns(Cpu, const SampledRows& sampled, Tensor& y, const Stream&) {
  const int64_t count = sampled.count(), most = sampled.most();
  with_cpu_element(y.dtype(), [&](auto element) {
    auto* const to = y.data<decltype(element)>();
    for (int64_t row = 0; row < y.shape().rows(); ++row)
      std::fill(to + row * most + count, to + (row + 1) * most, decltype(element)(kNoLogit));
  });
}

}  // namespace owt
