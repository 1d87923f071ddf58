#include "layers/cosine.h"

#include <algorithm>

#include "layers/loss/softmax_rows.cuh"
#include "src/core/grid.h"

namespace owt {
namespace {

constexpr int64_t kMostGridRows = 65535;  // the most blocks of a grid's second dimension

// The sum of a[i] * b[i]; all threads of the block get it.
template <class A, class B>
__device__ float dot_in_block(const A* a, const B* b, int64_t elements) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < elements; i += blockDim.x) sum += to_float(a[i]) * to_float(b[i]);
  return reduce_block(sum, Sum{});
}

// A block per row.
template <class T>
__global__ void invert_row_norms(int64_t width, const T* of, float* inverses) {
  wait_for_previous_kernel();
  const T* const row = of + blockIdx.x * width;
  const float square = dot_in_block(row, row, width);
  if (threadIdx.x == 0) inverses[blockIdx.x] = square < static_cast<float>(kLeastSquare) ? 0.0f : 1 / sqrtf(square);
}

template <class T>
__global__ void scale_rows_and_columns(int64_t rows, int64_t columns, const T* from, const float* of_rows,
                                       const float* of_columns, T* to) {
  wait_for_previous_kernel();
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= columns) return;
  const float of_column = of_columns[c];
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    to[row * columns + c] = from_float<T>(to_float(from[row * columns + c]) * (of_rows[row] * of_column));
}

// A block per row.
template <class T, class G>
__global__ void remove_row_radial(int64_t width, const T* of, const float* inverses, G* gradient) {
  wait_for_previous_kernel();
  const int64_t first = blockIdx.x * width;
  const float inverse = inverses[blockIdx.x];
  // The product first: the square of an inverse norm may be too large for a float.
  const float length = dot_in_block(of + first, gradient + first, width) * inverse * inverse;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    gradient[first + i] = from_float<G>(to_float(gradient[first + i]) - length * to_float(of[first + i]));
}

}  // namespace

void invert_norms(Cuda, const Tensor& of, Tensor& inverses, const Stream& stream) {
  const int64_t width = of.shape().row_elements();
  with_element(of.dtype(), [&](auto element) {
    using T = decltype(element);
    launch(invert_row_norms<T>, static_cast<unsigned>(of.shape().rows()), threads_for(width), stream, width,
           of.data<T>(), inverses.data());
  });
}

void scale_by_norms(Cuda, const Tensor& from, const Tensor& of_rows, const Tensor& of_columns, Tensor& to,
                    const Stream& stream) {
  const int64_t rows = from.shape().rows(), columns = from.shape().row_elements();
  const dim3 grid(blocks_for(columns), static_cast<unsigned>(std::min(rows, kMostGridRows)));
  with_element(from.dtype(), [&](auto element) {
    using T = decltype(element);
    launch(scale_rows_and_columns<T>, grid, kBlockThreads, stream, rows, columns, from.data<T>(), of_rows.data(),
           of_columns.data(), to.data<T>());
  });
}

void remove_radial(Cuda, const Tensor& of, const Tensor& inverses, Tensor& gradient, const Stream& stream) {
  const int64_t width = of.shape().row_elements();
  with_element(of.dtype(), [&](auto element) {
    with_element(gradient.dtype(), [&](auto of_gradient) {
      using T = decltype(element);
      using G = decltype(of_gradient);
      launch(remove_row_radial<T, G>, static_cast<unsigned>(of.shape().rows()), threads_for(width), stream, width,
             of.data<T>(), inverses.data(), gradient.data<G>());
    });
  });
}

}  // namespace owt
