#include "layers/gpu/cudnn.h"

#include <algorithm>
#include <map>
#include <memory>

#include "src/core/cuda.h"
#include "src/system/check.h"

namespace owt {
namespace {

struct DestroyHandle {
  void operator()(cudnnContext* handle) const { cudnnDestroy(handle); }
};

const char* cure(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case 1000:
      return "the libraries libcudnn*.so.9 must be of one version and match the driver; look at LD_LIBRARY_PATH";
    case 3000:
      return "cuDNN has no code for it on this GPU; use another precision or --device cpu";
    case 4000:
      return "use a smaller batch if memory is short; else clear the plan cache, ~/.cache/owt or $OWT_CACHE";
    default:
      return "the last checkpoint is kept; if it happens again, run with CUDNN_LOGLEVEL_DBG=2 for cuDNN's own account";
  }
}

}  // namespace

std::string cudnn_last_words() {
  char words[512] = {};
  cudnnGetLastErrorString(words, sizeof words);
  return words;
}

void detail::check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string words = cudnn_last_words(), at = working_on();
  fail("cuDNN: ", cudnnGetErrorString(status), " in ", call, at.empty() ? "" : ", at " + at,
       words.empty() ? "" : " (" + words + ")", "; ", cure(status));
}

cudnnHandle_t cudnn_handle(const Stream& stream) {
  thread_local std::map<int, std::unique_ptr<cudnnContext, DestroyHandle>> handles;
  int gpu = 0;
  OWT_CUDA(cudaGetDevice(&gpu));
  auto& handle = handles[gpu];
  if (!handle) {
    cudnnHandle_t created = nullptr;
    OWT_CUDNN(cudnnCreate(&created));
    handle.reset(created);
  }
  OWT_CUDNN(cudnnSetStream(handle.get(), cuda_stream(stream)));
  return handle.get();
}

cudnnDataType_t cudnn_type(DType dtype) {
  OWT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "cuDNN is given f32 or bf16, not ", name_of(dtype));
  return dtype == DType::kF32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  OWT_CUDNN(cudnnBackendCreateDescriptor(type, &descriptor_));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_) cudnnBackendDestroyDescriptor(descriptor_);
}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void CudnnDescriptor::set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                              const void* values) {
  OWT_CUDNN(cudnnBackendSetAttribute(descriptor_, name, type, count, values));
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
  set_raw(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, bool value) {
  set_raw(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, float value) { set_raw(name, CUDNN_TYPE_FLOAT, 1, &value); }

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set_raw(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
  set_raw(name, CUDNN_TYPE_HANDLE, 1, &value);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const std::string& text) {
  set_raw(name, CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text.data());
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::span<void* const> pointers) {
  set_raw(name, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(pointers.size()), pointers.data());
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::span<const CudnnDescriptor* const> values) {
  std::vector<cudnnBackendDescriptor_t> descriptors;
  for (const CudnnDescriptor* value : values) descriptors.push_back(value->descriptor_);
  set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(descriptors.size()), descriptors.data());
}

void CudnnDescriptor::finalize() { OWT_CUDNN(cudnnBackendFinalize(descriptor_)); }

cudnnStatus_t CudnnDescriptor::try_finalize() { return cudnnBackendFinalize(descriptor_); }

int64_t CudnnDescriptor::get_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                 void* values) const {
  int64_t got = 0;
  OWT_CUDNN(cudnnBackendGetAttribute(descriptor_, name, type, count, &got, values));
  return got;
}

int64_t CudnnDescriptor::count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
  return get_raw(name, type, 0, nullptr);
}

int64_t CudnnDescriptor::integer(cudnnBackendAttributeName_t name) const {
  int64_t value = 0;
  get_raw(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

std::string CudnnDescriptor::text(cudnnBackendAttributeName_t name) const {
  std::string text(static_cast<size_t>(count(name, CUDNN_TYPE_CHAR)), '\0');
  const int64_t got = get_raw(name, CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text.data());
  text.resize(static_cast<size_t>(got));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

int64_t CudnnDescriptor::fill(cudnnBackendAttributeName_t name, std::span<CudnnDescriptor> into) const {
  std::vector<cudnnBackendDescriptor_t> descriptors;
  for (const CudnnDescriptor& descriptor : into) descriptors.push_back(descriptor.descriptor_);
  return get_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(descriptors.size()), descriptors.data());
}

}  // namespace owt
