#include "layers/local.h"

#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"

namespace owt {
namespace {

// Every pass is a matrix product for each position: C[i,j] = sum over t of A[i,t] * B[j,t], in f32, from tiles in
// shared memory. A and B are read from the tensors directly; images are never copied into patches.
constexpr int kTile = 16;

struct LocalExtents {
  int m, n, k, items;  // items: positions, or pixels
};

// A Work has the functions a(item, i, t), b(item, j, t) and put(item, i, j, sum). A block computes a tile of C.
template <class Work>
__global__ void local_product(Work work, LocalExtents extents) {
  wait_for_previous_kernel();
  __shared__ float a[kTile][kTile + 1], b[kTile][kTile + 1];
  const int item = static_cast<int>(blockIdx.x), x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int i = static_cast<int>(blockIdx.y) * kTile + y, j = static_cast<int>(blockIdx.z) * kTile + x;
  const int row_of_b = static_cast<int>(blockIdx.z) * kTile + y;
  float sum = 0;
  for (int first = 0; first < extents.k; first += kTile) {
    const int t = first + x;
    a[y][x] = i < extents.m && t < extents.k ? work.a(item, i, t) : 0.0f;
    b[y][x] = row_of_b < extents.n && t < extents.k ? work.b(item, row_of_b, t) : 0.0f;
    __syncthreads();
    for (int s = 0; s < kTile; ++s) sum += a[y][s] * b[x][s];
    __syncthreads();
  }
  if (i < extents.m && j < extents.n) work.put(item, i, j, sum);
}

template <class Work>
void queue_product(const Work& work, const LocalExtents& extents, const Stream& stream) {
  const dim3 grid(static_cast<unsigned>(extents.items), blocks_for(extents.m, kTile), blocks_for(extents.n, kTile));
  launch(local_product<Work>, grid, dim3(kTile, kTile), stream, work, extents);
}

// The geometry in the form that kernels use.
struct LocalGeometry {
  int in_h, in_w, in_c, out_h, out_w, out_c, kernel_h, kernel_w, stride_h, stride_w, top, left;

  explicit LocalGeometry(const ConvGeometry& g)
      : in_h(static_cast<int>(g.in_h)),
        in_w(static_cast<int>(g.in_w)),
        in_c(static_cast<int>(g.in_c)),
        out_h(static_cast<int>(g.out_h)),
        out_w(static_cast<int>(g.out_w)),
        out_c(static_cast<int>(g.out_c)),
        kernel_h(static_cast<int>(g.kernel_h)),
        kernel_w(static_cast<int>(g.kernel_w)),
        stride_h(static_cast<int>(g.stride_h)),
        stride_w(static_cast<int>(g.stride_w)),
        top(static_cast<int>(g.top)),
        left(static_cast<int>(g.left)) {}

  __host__ __device__ int positions() const { return out_h * out_w; }
  __host__ __device__ int pixels() const { return in_h * in_w; }
  __host__ __device__ int patch() const { return kernel_h * kernel_w * in_c; }

  // Value t of the window at a position of an image.
  template <class T>
  __device__ float seen(const T* x, int position, int row, int t) const {
    const int c = t % in_c, v = t / in_c % kernel_w, u = t / in_c / kernel_w;
    const int h = position / out_w * stride_h - top + u, w = position % out_w * stride_w - left + v;
    if (h < 0 || h >= in_h || w < 0 || w >= in_w) return 0;
    return to_float(x[(static_cast<int64_t>(row) * pixels() + h * in_w + w) * in_c + c]);
  }
  __device__ int64_t output(int position, int row, int o) const {
    return (static_cast<int64_t>(row) * positions() + position) * out_c + o;
  }
  __device__ int64_t weight(int position, int o, int t) const {
    return (static_cast<int64_t>(o) * positions() + position) * patch() + t;
  }
};

// y: rows x outputs.
template <class T>
struct LocalForward {
  LocalGeometry g;
  const T* x;
  const float *weights, *bias;
  T* y;
  __device__ float a(int p, int row, int t) const { return g.seen(x, p, row, t); }
  __device__ float b(int p, int o, int t) const { return weights[g.weight(p, o, t)]; }
  __device__ void put(int p, int row, int o, float sum) const {
    y[g.output(p, row, o)] = from_float<T>(sum + (bias ? bias[static_cast<int64_t>(o) * g.positions() + p] : 0.0f));
  }
};

// dweight: outputs x values of a window, followed by the bias, whose factor is 1.
template <class T, class Gradient>
struct LocalWeights {
  LocalGeometry g;
  const T *x, *dy;
  Gradient *weights, *bias;  // null: no gradient
  float beta, bias_beta;
  __device__ float a(int p, int o, int row) const { return to_float(dy[g.output(p, row, o)]); }
  __device__ float b(int p, int t, int row) const { return t < g.patch() ? g.seen(x, p, row, t) : 1.0f; }
  __device__ void put(int p, int o, int t, float sum) const {
    if (t == g.patch())
      add(bias ? bias + static_cast<int64_t>(o) * g.positions() + p : nullptr, bias_beta, sum);
    else
      add(weights ? weights + g.weight(p, o, t) : nullptr, beta, sum);
  }
  __device__ static void add(Gradient* to, float beta, float sum) {
    if (to) *to = from_float<Gradient>(beta == 0 ? sum : beta * to_float(*to) + sum);
  }
};

// dx of a pixel: rows x channels, summed over its possible places in a window and the outputs there.
template <class T>
struct LocalData {
  LocalGeometry g;
  const T* dy;
  const float* weights;
  T* dx;
  // The position whose window has the pixel at this place, or -1.
  __device__ int position(int pixel, int place) const {
    const int h = pixel / g.in_w + g.top - place / g.kernel_w, w = pixel % g.in_w + g.left - place % g.kernel_w;
    if (h < 0 || w < 0 || h % g.stride_h != 0 || w % g.stride_w != 0) return -1;
    const int i = h / g.stride_h, j = w / g.stride_w;
    return i < g.out_h && j < g.out_w ? i * g.out_w + j : -1;
  }
  __device__ float a(int pixel, int row, int t) const {
    const int p = position(pixel, t / g.out_c);
    return p < 0 ? 0.0f : to_float(dy[g.output(p, row, t % g.out_c)]);
  }
  __device__ float b(int pixel, int c, int t) const {
    const int place = t / g.out_c, p = position(pixel, place);
    return p < 0 ? 0.0f : weights[g.weight(p, t % g.out_c, place * g.in_c + c)];
  }
  __device__ void put(int pixel, int row, int c, float sum) const {
    dx[(static_cast<int64_t>(row) * g.pixels() + pixel) * g.in_c + c] = from_float<T>(sum);
  }
};

template <class T>
class CudaLocal : public Op {
 public:
  CudaLocal(const ConvGeometry& geometry, Param& weight, Param* bias)
      : g_(geometry), weight_(weight), bias_(bias && bias->part.size() > 0 ? bias : nullptr) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    const LocalForward<T> work{g_, x.data<T>(), weight_.value.data(), bias_ ? bias_->value.data() : nullptr,
                               y.data<T>()};
    queue_product(work, {rows_of(x), g_.out_c, g_.patch(), g_.positions()}, *pass.stream);
  }

  void backward_data(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    if (g_.out_c == 0) return dx->zero(*pass.stream);
    const LocalData<T> work{g_, dy.data<T>(), weight_.value.data(), dx->data<T>()};
    queue_product(work, {rows_of(dy), g_.in_c, g_.kernel_h * g_.kernel_w * g_.out_c, g_.pixels()}, *pass.stream);
  }

  void backward_weights(const Pass& pass, const Tensor& x, const Tensor& dy) override {
    const bool weighs = learns(weight_.role), biased = bias_ && learns(bias_->role);
    if (!weighs && !biased) return;
    with_element((weighs ? weight_ : *bias_).grad_type, [&](auto element) {
      using Gradient = decltype(element);
      const LocalWeights<T, Gradient> work{g_,
                                           x.data<T>(),
                                           dy.data<T>(),
                                           weighs ? weight_.grad.data<Gradient>() : nullptr,
                                           biased ? bias_->grad.data<Gradient>() : nullptr,
                                           weighs ? weight_.take_beta() : 0,
                                           biased ? bias_->take_beta() : 0};
      queue_product(work, {g_.out_c, g_.patch() + 1, rows_of(x), g_.positions()}, *pass.stream);
    });
  }

 private:
  static int rows_of(const Tensor& batch) { return static_cast<int>(batch.shape().rows()); }

  LocalGeometry g_;
  Param& weight_;
  Param* bias_;
};

}  // namespace

std::unique_ptr<Op> bind_local(Cuda cuda, const ConvGeometry& geometry, int64_t, Param& weight, Param* bias) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision),
               [&](auto element) { op = std::make_unique<CudaLocal<decltype(element)>>(geometry, weight, bias); });
  return op;
}

}  // namespace owt
