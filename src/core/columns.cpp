#include "src/core/columns.h"

#include <algorithm>
#include <cstring>

#include "src/core/dispatch.h"
#include "src/core/threads.h"

namespace owt {
namespace {

int64_t row_bytes(const Tensor& tensor) { return tensor.shape().row_elements() * size_of(tensor.dtype()); }

}  // namespace

void copy_columns(const Tensor& from, int64_t from_first, Tensor& to, int64_t to_first, int64_t width,
                  const Stream& stream) {
  OWT_CHECK_EQ(from.shape().rows(), to.shape().rows());
  OWT_CHECK(from.dtype() == to.dtype(), name_of(from.dtype()), " to ", name_of(to.dtype()));
  const int64_t each = size_of(from.dtype());
  const auto* source = static_cast<const std::byte*>(from.raw()) + from_first * each;
  auto* target = static_cast<std::byte*>(to.raw()) + to_first * each;
  if (width == 0 || from.shape().rows() == 0) return;
  dispatch(to.device(), [&](auto tag) {
    copy_columns(tag, source, row_bytes(from), target, row_bytes(to), to.shape().rows(), width * each, stream);
  });
}

void copy_columns(Cpu, const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows, int64_t width,
                  const Stream&) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  parallel_for(rows, std::max<int64_t>(1, (1 << 18) / width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(target + i * to_stride, source + i * from_stride, static_cast<size_t>(width));
  });
}

}  // namespace owt
