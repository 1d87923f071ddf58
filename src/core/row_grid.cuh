// Kernels over rows of items, one thread per item: short rows share a block, long rows take several.
//
// A thread finds its row and item without a division. A division would cost more than the rest of a thread's work in
// pooling or normalisation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <cuda_runtime.h>

#include "src/core/grid.h"
#include "src/system/check.h"

namespace owt {

struct RowGrid {
  dim3 grid, block;  // blocks have at most kBlockThreads threads
};

// Empty if there are no rows or no items.
inline RowGrid row_grid(int64_t rows, int64_t items) {
  if (rows == 0 || items == 0) return {dim3(0), dim3(1)};
  OWT_CHECK(rows > 0 && rows < std::numeric_limits<int>::max(), rows, " rows of items");
  OWT_CHECK(items > 0 && items <= int64_t{kBlockThreads} * 65535, "a row of ", items, " items");
  const unsigned parts = blocks_for(items);
  const auto across = static_cast<unsigned>((items + parts - 1) / parts);  // equal parts: no block is nearly empty
  const unsigned down = std::max(1u, kBlockThreads / across);
  return {dim3(blocks_for(rows, down), parts), dim3(across, down)};
}

// What the calling thread works on; `inside` is false for the threads beyond the last row or item.
struct RowItem {
  int row, item;
  bool inside;
};

__device__ inline RowItem row_item(int rows, int items) {
  RowItem at;
  at.row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  at.item = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  at.inside = at.row < rows && at.item < items;
  return at;
}

}  // namespace owt
