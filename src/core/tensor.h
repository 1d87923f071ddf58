// Tensor: a shape, an element type and memory on a device.
//
// Copies of a Tensor and the views rows() and reshaped() share memory. A `const Tensor&` is read-only. Memory is
// contiguous, aligned to 64 bytes, and not initialised. Only the GPU may access the elements of a tensor on a GPU:
// data() and raw() are addresses there.
#pragma once

#include <cstddef>
#include <memory>

#include "src/core/device.h"
#include "src/core/shape.h"
#include "src/core/stream.h"

namespace owt {

enum class DType { kF32, kBF16, kI32, kU8, kI64, kF64 };
int64_t size_of(DType dtype);                // bytes of one element
const char* name_of(DType dtype);            // "f32", ...
DType activation_type(Precision precision);  // kBF16 for bf16, otherwise kF32

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(const Shape& shape, DType dtype = DType::kF32, Device device = Device::kCpu);
  // On the CPU, in memory that `device` can copy from and to asynchronously.
  static Tensor shared_with(Device device, const Shape& shape, DType dtype);

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool defined() const { return memory_ != nullptr; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype_); }

  // The elements; T must match dtype().
  template <class T = float>
  T* data() {
    check_type(DTypeOf<T>::value);
    return static_cast<T*>(raw());
  }
  template <class T = float>
  const T* data() const {
    check_type(DTypeOf<T>::value);
    return static_cast<const T*>(raw());
  }
  void* raw() { return memory_.get() + offset_; }
  const void* raw() const { return memory_.get() + offset_; }

  Tensor rows(int64_t begin, int64_t end) const;  // view of dimension 0
  Tensor reshaped(const Shape& shape) const;      // view with the same number of elements
  Tensor part(int64_t first,
              const Shape& shape) const;  // view of shape.elements() elements, starting at element `first`
  Tensor viewed_as(DType dtype) const;    // view of the same bytes as elements of another type, in one dimension
  Tensor clone() const;

  // Queued on a stream of this tensor's device, or of the other tensor's device if that is the GPU.
  void zero(const Stream& stream);
  void copy_from(const Tensor& other, const Stream& stream);  // same number of bytes; devices may differ
  // The same, and the host waits. On a GPU not for use within a step, nor while queued work uses the memory.
  void zero();
  void copy_from(const Tensor& other);
  Tensor to(Device device) const;  // a copy on that device; this tensor itself if it is already there

 private:
  void check_type(DType wanted) const;

  Shape shape_;
  DType dtype_ = DType::kF32;
  Device device_ = Device::kCpu;
  std::shared_ptr<std::byte> memory_;
  int64_t offset_ = 0;  // bytes
};

}  // namespace owt
