#include "layers/relu.h"

#include "layers/gpu/element_packs.cuh"

namespace owt {
namespace {

template <class T, int N>
__global__ void relu_forward(int64_t elements, const T* x, T* y) {
  wait_for_previous_kernel();
  map_pack<T, N>(
      elements, [](float value) { return value < 0 ? 0.0f : value; }, y, x);  // NaN stays NaN
}

template <class T, int N>
__global__ void relu_backward(int64_t elements, const T* y, const T* dy, T* dx) {
  wait_for_previous_kernel();
  map_pack<T, N>(
      elements, [](float out, float gradient) { return out > 0 ? gradient : 0.0f; }, dx, y, dy);
}

template <class T>
class CudaRelu : public Op {
 public:
  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    with_packs<T>(
        x.elements(),
        [&](auto width, unsigned blocks) {
          launch(relu_forward<T, width>, blocks, kBlockThreads, *pass.stream, x.elements(), from, to);
        },
        from, to);
  }

  void backward_data(const Pass& pass, const Tensor&, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    const T *out = y.data<T>(), *from = dy.data<T>();
    T* to = dx->data<T>();
    with_packs<T>(
        y.elements(),
        [&](auto width, unsigned blocks) {
          launch(relu_backward<T, width>, blocks, kBlockThreads, *pass.stream, y.elements(), out, from, to);
        },
        out, from, to);
  }
};

}  // namespace

std::unique_ptr<Op> bind_relu(Cuda cuda) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision),
               [&](auto element) { op = std::make_unique<CudaRelu<decltype(element)>>(); });
  return op;
}

}  // namespace owt
