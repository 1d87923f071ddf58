// cuDNN's backend (graph) API: errors, handles, descriptors. For .cu files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layers/gpu/cudnn_library.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

// Checks a cuDNN call. Throws Error with the call, the current operation, cuDNN's message and the cure.
#define OWT_CUDNN(call) ::owt::detail::check_cudnn((call), #call)

namespace owt {

// The calling host thread's handle for its current GPU; the next execution with it is queued on the stream.
cudnnHandle_t cudnn_handle(const Stream& stream);

// cuDNN's last message to this host thread, which is cleared. May be empty.
std::string cudnn_last_words();

cudnnDataType_t cudnn_type(DType dtype);  // f32 or bf16

// A descriptor: set its attributes, then finalize it; it is constant from then on.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = nullptr; }
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  void set(cudnnBackendAttributeName_t name, std::span<const int64_t> values);
  void set(cudnnBackendAttributeName_t name, int64_t value) { set(name, std::span<const int64_t>(&value, 1)); }
  void set(cudnnBackendAttributeName_t name, bool value);
  void set(cudnnBackendAttributeName_t name, float value);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  void set(cudnnBackendAttributeName_t name, const std::string& text);
  void set(cudnnBackendAttributeName_t name, std::span<void* const> pointers);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void set(cudnnBackendAttributeName_t name, std::span<const CudnnDescriptor* const> values);
  // For enumerations that have their own attribute type.
  template <class Enum>
  void set_enum(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Enum value) {
    set_raw(name, type, 1, &value);
  }

  void finalize();
  cudnnStatus_t try_finalize();  // for descriptors that cuDNN may not support

  int64_t integer(cudnnBackendAttributeName_t name) const;
  std::string text(cudnnBackendAttributeName_t name) const;
  // All values of an enumeration attribute.
  template <class Enum>
  std::vector<Enum> enums(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    std::vector<Enum> values(static_cast<size_t>(count(name, type)));
    get_raw(name, type, static_cast<int64_t>(values.size()), values.data());
    return values;
  }
  int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
  // Fills `into`; returns how many of its descriptors have a value.
  int64_t fill(cudnnBackendAttributeName_t name, std::span<CudnnDescriptor> into) const;

 private:
  void set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  int64_t get_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  void* values) const;

  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

namespace detail {
void check_cudnn(cudnnStatus_t status, const char* call);
}

}  // namespace owt
