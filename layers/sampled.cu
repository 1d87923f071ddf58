#include "layers/sampled.h"

#include <algorithm>

#include "layers/base/packed_rows.cuh"
#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"

namespace owt {
namespace {

constexpr int kGatheredAtOnce = 4;  // loads of a thread that are under way together
constexpr int64_t kGatherChunk = int64_t{kGatheredAtOnce} * kBlockThreads;
constexpr int64_t kClearedRows = 32;  // rows per thread

// Rows are `width` units; a block copies kGatherChunk of them.
template <class Unit>
__global__ void gather_units(int64_t units, int64_t width, const int32_t* rows, const Unit* from, Unit* to) {
  wait_for_previous_kernel();
  const int64_t begin = blockIdx.x * kGatherChunk;
  const PackedPlaces places(rows, width, begin);
  Unit some[kGatheredAtOnce]{};
#pragma unroll
  for (int j = 0; j < kGatheredAtOnce; ++j) {
    const unsigned i = static_cast<unsigned>(j) * kBlockThreads + threadIdx.x;
    if (begin + i >= units) break;
    if (const int64_t place = places.of(i); place != kNoPlace) some[j] = from[place];
  }
#pragma unroll
  for (int j = 0; j < kGatheredAtOnce; ++j) {
    const int64_t i = begin + static_cast<int64_t>(j) * kBlockThreads + threadIdx.x;
    if (i < units) to[i] = some[j];
  }
}

template <class Unit>
void gather(const Tensor& from, const SampledRows& sampled, Tensor& to, const Stream& stream) {
  const int64_t units = to.bytes() / static_cast<int64_t>(sizeof(Unit));
  launch(gather_units<Unit>, static_cast<unsigned>((units + kGatherChunk - 1) / kGatherChunk), kBlockThreads, stream,
         units, units / sampled.most(), sampled.rows.data<int32_t>(), static_cast<const Unit*>(from.raw()),
         static_cast<Unit*>(to.raw()));
}

// A thread for some rows of a column.
template <class T>
__global__ void clear_columns_without_row(int64_t rows, int64_t columns, const int32_t* sampled, T* y) {
  wait_for_previous_kernel();
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= columns || sampled[c] != kNoRow) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) y[row * columns + c] = from_float<T>(kNoLogit);
}

}  // namespace

void gather_rows(Cuda, const Tensor& from, const SampledRows& sampled, Tensor& to, const Stream& stream) {
  if (to.elements() == 0) return;
  const int64_t row_bytes = to.bytes() / sampled.most();
  const auto holds = [&](int64_t bytes) {
    const auto divides = [&](const void* address) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; };
    return row_bytes % bytes == 0 && divides(from.raw()) && divides(to.raw());
  };
  if (holds(16)) return gather<uint4>(from, sampled, to, stream);
  with_element(to.dtype(), [&](auto element) { gather<decltype(element)>(from, sampled, to, stream); });
}

void clear_columns(Cuda, const SampledRows& sampled, Tensor& y, const Stream& stream) {
  const int64_t rows = y.shape().rows(), columns = sampled.most();
  constexpr int64_t kMostGridRows = 65535;  // the most blocks of a grid's second dimension
  const dim3 grid(blocks_for(columns),
                  static_cast<unsigned>(std::min((rows + kClearedRows - 1) / kClearedRows, kMostGridRows)));
  with_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    launch(clear_columns_without_row<T>, grid, kBlockThreads, stream, rows, columns, sampled.rows.data<int32_t>(),
           y.data<T>());
  });
}

}  // namespace owt
