#include "layers/relu.h"

#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kReluGrain = 1 << 14;  // fewest elements per thread for which a thread is worth waking

class ReluOp : public Op {
 public:
  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      const T* from = x.data<T>();
      T* to = y.data<T>();
      parallel_for(x.elements(), kReluGrain, [=](int64_t begin, int64_t end) {
      // simd: x and y may be the same memory, which would keep the compiler from vectorising.
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
          const float value = from[i];
          keep(value < 0 ? 0.0f : value, to[i]);  // NaN stays NaN
        }
      });
    });
  }

  void backward_data(const Pass&, const Tensor&, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_cpu_element(y.dtype(), [&](auto element) {
      using T = decltype(element);
      const T *out = y.data<T>(), *from = dy.data<T>();
      T* to = dx->data<T>();
      parallel_for(y.elements(), kReluGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
          const float gradient = from[i];  // loaded in any case, so that the selection needs no branch
          keep(out[i] > 0 ? gradient : 0.0f, to[i]);
        }
      });
    });
  }
};

class Relu : public Layer {
 public:
  using Layer::Layer;
  Shape out_shape(const Shape& in) const override { return in; }
  Columns columns() const override { return Columns::kKeeps; }
  Content reads_of_output() const override { return Content::kSigns; }
  std::optional<Content> in_place() const override { return Content::kValues; }
  std::unique_ptr<Op> bind(const Shape&, const Compute& on) override {
    return dispatch(on, [](auto tag) { return bind_relu(tag); });
  }
};

}  // namespace

std::unique_ptr<Layer> make_relu(const LayerSpec& spec) { return std::make_unique<Relu>(spec.name, "relu"); }

std::unique_ptr<Op> bind_relu(Cpu) { return std::make_unique<ReluOp>(); }

}  // namespace owt
