// Sums of the ranks' tensors.
//   sum[i] = addends[0][i] + addends[1][i] + ...   for i in [0, elements), added in this order
// Elements are f32, f64 or bf16; bf16 are added as f32 and rounded once, to nearest even. `sum` may be any one of the
// addends (on a GPU: one of the first 256), and must not overlap the others. There is at least one addend.
#pragma once

#include <cstdint>
#include <vector>

#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

void sum_up(Cpu, DType dtype, const std::vector<const void*>& addends, int64_t elements, void* sum, const Stream&);
// Queued on the stream. With more than 256 addends, bf16 are rounded once more for each further 255.
void sum_up(Cuda, DType dtype, const std::vector<const void*>& addends, int64_t elements, void* sum,
            const Stream& stream);

}  // namespace owt
