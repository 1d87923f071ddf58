#include "src/core/tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "src/core/check.h"

namespace owt {
namespace {

constexpr size_t kAlignment = 64, kHugePage = 2 << 20;

std::shared_ptr<std::byte> allocate(int64_t bytes) {
  const bool large = bytes >= static_cast<int64_t>(kHugePage);
  const size_t alignment = large ? kHugePage : kAlignment;
  const size_t size = (static_cast<size_t>(bytes) + alignment) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size);
  if (!memory) fail("out of memory: ", bytes >> 20, " MiB asked for; use a smaller batch or a smaller network");
  // Weights and activations are walked from end to end; huge pages are worth about 5 % there.
  if (large) madvise(memory, size, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

}  // namespace

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
    case DType::kI64:
    case DType::kF64:
      return 8;
    default:
      return 4;
  }
}

Tensor::Tensor(const Shape& shape, DType dtype, Device device) : shape_(shape), dtype_(dtype), device_(device) {
  OWT_CHECK_EQ(device, Device::kCpu);
  memory_ = allocate(bytes());
}

void Tensor::check_type(DType wanted) const {
  OWT_CHECK(defined(), "tensor ", shape_, " has no memory");
  OWT_CHECK(dtype_ == wanted, "tensor ", shape_, " has another element type");
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  OWT_CHECK(0 <= begin && begin <= end && end <= shape_.rows(), "rows ", begin, " to ", end, " of ", shape_);
  return part(begin * shape_.row_elements(), shape_.with_rows(end - begin));
}

Tensor Tensor::reshaped(const Shape& shape) const {
  OWT_CHECK_EQ(shape.elements(), elements(), "reshaping ", shape_, " to ", shape);
  return part(0, shape);
}

Tensor Tensor::part(int64_t first, const Shape& shape) const {
  OWT_CHECK(first >= 0 && first + shape.elements() <= elements(), "part ", shape, " at ", first, " of ", shape_);
  Tensor view = *this;
  view.shape_ = shape;
  view.offset_ += first * size_of(dtype_);
  return view;
}

Tensor Tensor::clone() const {
  Tensor copy(shape_, dtype_, device_);
  copy.copy_from(*this);
  return copy;
}

void Tensor::zero() {
  if (bytes() > 0) std::memset(raw(), 0, static_cast<size_t>(bytes()));
}

void Tensor::copy_from(const Tensor& other) {
  OWT_CHECK_EQ(other.bytes(), bytes(), "copying ", other.shape_, " to ", shape_);
  if (bytes() > 0) std::memcpy(raw(), other.raw(), static_cast<size_t>(bytes()));
}

}  // namespace owt
