#include "src/core/tensor.h"

#include "src/core/dispatch.h"
#include "src/core/memory.h"
#include "src/core/poison.h"
#include "src/system/check.h"

namespace owt {

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

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
    case DType::kI64:
      return "i64";
    case DType::kF64:
      return "f64";
  }
  return "";
}

DType activation_type(Precision precision) { return precision == Precision::kBf16 ? DType::kBF16 : DType::kF32; }

namespace {

void poison_new(const Tensor& tensor, Device device) {
  if (!poisons()) return;
  const Stream& stream = setup_stream(device);
  poison(tensor, stream);
  stream.synchronize();
}

}  // namespace

Tensor::Tensor(const Shape& shape, DType dtype, Device device) : shape_(shape), dtype_(dtype), device_(device) {
  memory_ = dispatch(device, [&](auto tag) { return allocate(tag, bytes()); });
  poison_new(*this, device);
}

Tensor Tensor::shared_with(Device device, const Shape& shape, DType dtype) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.memory_ = dispatch(device, [&](auto tag) { return allocate_shared_with(tag, tensor.bytes()); });
  poison_new(tensor, Device::kCpu);
  return tensor;
}

void Tensor::check_type(DType wanted) const {
  OWT_CHECK(defined(), "tensor ", shape_, " has no memory");
  OWT_CHECK(dtype_ == wanted, "tensor ", shape_, " holds ", name_of(dtype_), ", not ", name_of(wanted));
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

Tensor Tensor::viewed_as(DType dtype) const {
  OWT_CHECK_EQ(bytes() % size_of(dtype), 0);
  Tensor view = *this;
  view.shape_ = {bytes() / size_of(dtype)};
  view.dtype_ = dtype;
  return view;
}

Tensor Tensor::clone() const {
  Tensor copy(shape_, dtype_, device_);
  copy.copy_from(*this);
  return copy;
}

void Tensor::zero(const Stream& stream) {
  dispatch(device_, [&](auto tag) { zero_bytes(tag, raw(), bytes(), stream); });
}

void Tensor::copy_from(const Tensor& other, const Stream& stream) {
  OWT_CHECK_EQ(other.bytes(), bytes(), "copying ", other.shape_, " to ", shape_);
  const Device device = device_ == Device::kCpu ? other.device_ : device_;
  dispatch(device, [&](auto tag) { copy_bytes(tag, other.raw(), raw(), bytes(), stream); });
}

void Tensor::zero() {
  const Stream& stream = setup_stream(device_);
  zero(stream);
  stream.synchronize();
}

void Tensor::copy_from(const Tensor& other) {
  const Stream& stream = setup_stream(device_ == Device::kCpu ? other.device_ : device_);
  copy_from(other, stream);
  stream.synchronize();
}

Tensor Tensor::to(Device device) const {
  if (device == device_) return *this;
  Tensor copy(shape_, dtype_, device);
  copy.copy_from(*this);
  return copy;
}

}  // namespace owt
