#include "layers/relu.h"

#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"

namespace owt {
namespace {

template <class T>
__device__ T positive_part(T x) {
  return to_float(x) < 0 ? from_float<T>(0) : x;  // NaN stays NaN
}
template <class T>
__device__ T where_positive(T y, T dy) {
  return to_float(y) > 0 ? dy : from_float<T>(0);
}

// Elements are dealt to threads in packs; the threads behind the last pack take one each of the elements behind it.
__device__ int64_t this_thread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
template <int N>
int64_t threads_of_packs(int64_t elements) {
  return elements / N + elements % N;
}

template <class T, int N>
__global__ void relu_forward(int64_t elements, const T* x, T* y) {
  const int64_t thread = this_thread(), packs = elements / N;
  if (thread < packs) {
    Pack<T, N> pack = load_pack<T, N>(x + thread * N);
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = positive_part(pack.at[j]);
    store_pack(y + thread * N, pack);
  } else if (const int64_t i = packs * N + thread - packs; i < elements) {
    y[i] = positive_part(x[i]);
  }
}

template <class T, int N>
__global__ void relu_backward(int64_t elements, const T* y, const T* dy, T* dx) {
  const int64_t thread = this_thread(), packs = elements / N;
  if (thread < packs) {
    const Pack<T, N> out = load_pack<T, N>(y + thread * N);
    Pack<T, N> pack = load_pack<T, N>(dy + thread * N);
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = where_positive(out.at[j], pack.at[j]);
    store_pack(dx + thread * N, pack);
  } else if (const int64_t i = packs * N + thread - packs; i < elements) {
    dx[i] = where_positive(y[i], dy[i]);
  }
}

template <class T>
class CudaRelu : public Op {
 public:
  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    if (hold_packs<kPack<T>>(from, to))
      run<kPack<T>>(pass, x.elements(), from, to);
    else
      run<1>(pass, x.elements(), from, to);
  }

  void backward_data(const Pass& pass, const Tensor&, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    const T *out = y.data<T>(), *from = dy.data<T>();
    T* to = dx->data<T>();
    if (hold_packs<kPack<T>>(out, from, to))
      run<kPack<T>>(pass, y.elements(), out, from, to);
    else
      run<1>(pass, y.elements(), out, from, to);
  }

 private:
  template <int N>
  void run(const Pass& pass, int64_t elements, const T* x, T* y) {
    launch(relu_forward<T, N>, blocks_for(threads_of_packs<N>(elements)), kBlockThreads, *pass.stream, elements, x, y);
  }
  template <int N>
  void run(const Pass& pass, int64_t elements, const T* y, const T* dy, T* dx) {
    launch(relu_backward<T, N>, blocks_for(threads_of_packs<N>(elements)), kBlockThreads, *pass.stream, elements, y, dy,
           dx);
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
