#include "layers/prelu.h"

#include <algorithm>
#include <vector>

#include "src/core/dispatch.h"
#include "src/core/simd.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kPreluGrain = 1 << 14;  // fewest elements per thread for which a thread is worth waking
constexpr int64_t kMostPreluChunks = 32;  // limit on the number of chunks of positions with separate sums

class PreluOp : public Op {
 public:
  PreluOp(Param& weight, const Shape& in)
      : weight_(weight),
        channels_(in[in.rank() - 1]),
        positions_(channels_ == 0 ? 0 : in.elements() / channels_),
        slopes_(static_cast<size_t>(channels_)) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override { scale(x, x, y); }
  void backward_data(const Pass&, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (dx) scale(x, dy, *dx);
  }

  void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override {
    if (!learns(weight_.role)) return;
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      add_to_grad(sums_of(x.data<T>(), dy.data<T>()));
    });
  }

 private:
  bool shared() const { return weight_.full_shape.elements() == 1; }

  // to = from where sign > 0, else slope of the channel * from.
  void scale(const Tensor& sign, const Tensor& from, Tensor& to) {
    for (size_t c = 0; c < slopes_.size(); ++c) slopes_[c] = weight_.value.data()[shared() ? 0 : c];
    with_cpu_element(from.dtype(), [&](auto element) {
      using T = decltype(element);
      scale(sign.data<T>(), from.data<T>(), to.data<T>());
    });
  }
  template <class T>
  void scale(const T* sign, const T* from, T* to) const {
    const float* slopes = slopes_.data();
    parallel_for(positions_, kPreluGrain / std::max<int64_t>(1, channels_), [=, this](int64_t begin, int64_t end) {
      for (int64_t p = begin * channels_; p < end * channels_; p += channels_)
        for_each_vector(channels_, [=](int64_t c, auto lanes) {
          const Vector value = load(from + p + c, lanes);
          const Vector scaled = value * load(slopes + c, lanes);
          store(load(sign + p + c, lanes) > 0.0f ? value : scaled, to + p + c, lanes);
        });
    });
  }

  // The sums of dy * x over positions where x is not positive, per channel. Chunks of positions are summed separately
  // and then added in order. The chunks depend only on the number of positions.
  template <class T>
  std::vector<double> sums_of(const T* x, const T* dy) const {
    const int64_t chunks = std::clamp<int64_t>(positions_ * channels_ / kPreluGrain, 1, kMostPreluChunks);
    std::vector<double> sums(static_cast<size_t>(chunks * channels_));
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const Slice part = split(positions_, static_cast<int>(chunks), static_cast<int>(chunk));
        add_products({part.begin * channels_, part.end * channels_}, x, dy, sums.data() + chunk * channels_);
      }
    });
    for (int64_t i = channels_; i < chunks * channels_; ++i)
      sums[static_cast<size_t>(i % channels_)] += sums[static_cast<size_t>(i)];
    sums.resize(static_cast<size_t>(channels_));
    return sums;
  }
  template <class T>
  void add_products(const Slice& elements, const T* x, const T* dy, double* __restrict sums) const {
    for (int64_t p = elements.begin; p < elements.end; p += channels_)
      for (int64_t c = 0; c < channels_; ++c) {
        const float value = x[p + c], product = value * dy[p + c];
        sums[c] += static_cast<double>(value > 0 ? 0.0f : product);
      }
  }

  void add_to_grad(const std::vector<double>& sums) {
    const float beta = weight_.take_beta();
    float* grad = weight_.grad.data();
    for (int64_t i = 0; i < weight_.grad.elements(); ++i) grad[i] = beta == 0 ? 0 : beta * grad[i];
    for (size_t c = 0; c < sums.size(); ++c) grad[shared() ? 0 : c] += static_cast<float>(sums[c]);
  }

  Param& weight_;
  int64_t channels_, positions_;
  std::vector<float> slopes_;  // one for each channel
};

class Prelu : public Layer {
 public:
  explicit Prelu(const LayerSpec& spec) : Layer(spec.name, "activation"), channels_(spec.in[spec.in.rank() - 1]) {
    shared_ = spec.config.boolean("shared", false);
    weight_.name = spec.name + ".weight";
    weight_.full_shape = weight_.file_shape = {shared_ ? 1 : channels_};
    weight_.part = shared_ ? Slice{0, 1} : spec.part.value_or(Slice{0, channels_});
    weight_.init.value = 0.25;
    weight_.decay_mult = 0;
    Config table = spec.config.table("weight");
    read_multipliers(table, weight_);
    table.finish("prelu's weight");
  }

  Shape out_shape(const Shape& in) const override { return in; }
  double flops(const Shape& in) const override { return static_cast<double>(in.elements()); }
  std::vector<Param*> params() override { return {&weight_}; }
  // The gradient of a shared slope is a sum over all columns.
  Columns columns() const override { return shared_ ? Columns::kMixes : Columns::kKeeps; }
  Described describe(const Shape&) override { return {"prelu", {}, params()}; }
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    OWT_CHECK_EQ(in[in.rank() - 1], shared_ ? channels_ : weight_.part.size(), "layer '", name(), "'");
    return dispatch(on, [&](auto tag) { return bind_prelu(tag, weight_, in); });
  }

 private:
  int64_t channels_;
  bool shared_ = false;
  Param weight_;
};

}  // namespace

std::unique_ptr<Layer> make_prelu(const LayerSpec& spec) { return std::make_unique<Prelu>(spec); }

std::unique_ptr<Op> bind_prelu(Cpu, Param& weight, const Shape& in) { return std::make_unique<PreluOp>(weight, in); }

}  // namespace owt
