#include <numeric>

#include "src/core/columns.h"
#include "src/core/grid.h"
#include "src/core/launch.cuh"

namespace owt {
namespace {

// Extents and strides are in units of T.
template <class T>
__global__ void copy_rows(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t width) {
  wait_for_previous_kernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * width; i += stride) {
    const int64_t row = i / width, column = i - row * width;
    to[row * to_stride + column] = from[row * from_stride + column];
  }
}

template <class T>
void copy_as(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows, int64_t width,
             const Stream& stream) {
  constexpr auto kEach = static_cast<int64_t>(sizeof(T));
  launch(copy_rows<T>, striding_blocks_for(rows * width / kEach), kBlockThreads, stream, static_cast<const T*>(from),
         from_stride / kEach, static_cast<T*>(to), to_stride / kEach, rows, width / kEach);
}

}  // namespace

void copy_columns(Cuda, const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows, int64_t width,
                  const Stream& stream) {
  // Copies in the widest units that every extent, stride and address allows.
  const auto at = [](const void* place) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(place) % 16); };
  int64_t unit = 16;
  for (const int64_t value : {width, from_stride, to_stride, at(from), at(to)}) unit = std::gcd(unit, value);
  if (unit == 16) return copy_as<uint4>(from, from_stride, to, to_stride, rows, width, stream);
  if (unit >= 4) return copy_as<uint32_t>(from, from_stride, to, to_stride, rows, width, stream);
  copy_as<uint16_t>(from, from_stride, to, to_stride, rows, width, stream);
}

}  // namespace owt
