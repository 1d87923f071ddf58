#include "layers/conv_cpu/conv_workspace.h"

#include <algorithm>
#include <array>

#include "src/core/tensor.h"

namespace owt {

void* conv_workspace(ConvBuffer buffer, size_t bytes) {
  static thread_local std::array<Tensor, static_cast<size_t>(ConvBuffer::kCount)> buffers;
  Tensor& memory = buffers[static_cast<size_t>(buffer)];
  const int64_t wanted = std::max<int64_t>(static_cast<int64_t>(bytes), 64);
  if (!memory.defined() || memory.bytes() < wanted) {
    memory = {};  // free first: there may not be room for both
    memory = Tensor({wanted}, DType::kU8);
  }
  return memory.raw();
}

}  // namespace owt
