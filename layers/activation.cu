#include "layers/activation.h"

#include "layers/activation_formulas.h"
#include "layers/gpu/element_packs.cuh"

namespace owt {
namespace {

struct DeviceMath {
  using Value = float;
  OWT_ON_DEVICES static float exp(float x) { return expf(x); }
  OWT_ON_DEVICES static float expm1(float x) { return expm1f(x); }
};

template <class T, int N, class Formula>
__global__ void activation_forward(int64_t elements, Formula formula, const T* x, T* y) {
  wait_for_previous_kernel();
  map_pack<T, N>(
      elements, [&](float value) { return formula.value(value); }, y, x);
}

// of: y if the formula takes y, else x.
template <class T, int N, class Formula>
__global__ void activation_backward(int64_t elements, Formula formula, const T* of, const T* dy, T* dx) {
  wait_for_previous_kernel();
  map_pack<T, N>(
      elements, [&](float value, float gradient) { return formula.gradient(value, gradient); }, dx, of, dy);
}

template <class T, class Formula>
class CudaActivation : public Op {
 public:
  explicit CudaActivation(Formula formula) : formula_(formula) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    with_packs<T>(
        x.elements(),
        [&](auto width, unsigned blocks) {
          launch(activation_forward<T, width, Formula>, blocks, kBlockThreads, *pass.stream, x.elements(), formula_,
                 from, to);
        },
        from, to);
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    const T *of = (Formula::kFromOutput ? y : x).template data<T>(), *from = dy.data<T>();
    T* to = dx->data<T>();
    with_packs<T>(
        dy.elements(),
        [&](auto width, unsigned blocks) {
          launch(activation_backward<T, width, Formula>, blocks, kBlockThreads, *pass.stream, dy.elements(), formula_,
                 of, from, to);
        },
        of, from, to);
  }

 private:
  Formula formula_;
};

}  // namespace

std::unique_ptr<Op> bind_activation(Cuda cuda, const ActivationSettings& settings) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision), [&](auto element) {
    with_formula<DeviceMath>(settings, [&](auto formula) {
      op = std::make_unique<CudaActivation<decltype(element), decltype(formula)>>(formula);
    });
  });
  return op;
}

}  // namespace owt
