// The objects of cuBLASLt's handles, and their attributes.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace simulated_gpu {

constexpr uint64_t kMagic = 0x51b1a5a190ULL;
constexpr size_t kSplitWorkspace = size_t{1} << 20;

struct Layout {
  cudaDataType type;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch_count = 1;
  int64_t batch_stride = 0;
};

struct Description {
  int32_t compute_type, scale_type;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N, transc = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int32_t bias_type = -1;
  void* aux = nullptr;
  int64_t aux_ld = 0;
  int32_t sm_count_target = 0;
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment[4] = {256, 256, 256, 256};  // for A, B, C, D
  float max_waves = 0;
  uint64_t implementations = ~0ULL;
};

// What an opaque algorithm holds.
struct Algorithm {
  uint64_t magic;
  int32_t id, stages, split, scheme;
  uint64_t workspace;
  uint16_t alignment[4];
  uint64_t unused[3];
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

// The field that an attribute names; empty for attributes that are not simulated.
std::span<std::byte> field(Layout& layout, cublasLtMatrixLayoutAttribute_t attribute);
std::span<std::byte> field(Description& description, cublasLtMatmulDescAttributes_t attribute);
std::span<std::byte> field(Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute);
std::span<std::byte> field(Algorithm& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute);

template <class Object, class Attribute>
cublasStatus_t set_field(Object* object, Attribute attribute, const void* value, size_t size) {
  if (!object || !value) return CUBLAS_STATUS_INVALID_VALUE;
  const auto to = field(*object, attribute);
  if (to.empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (to.size() != size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to.data(), value, size);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Object, class Attribute>
cublasStatus_t get_field(Object* object, Attribute attribute, void* value, size_t size, size_t* written) {
  if (!object) return CUBLAS_STATUS_INVALID_VALUE;
  const auto from = field(*object, attribute);
  if (from.empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (written) *written = from.size();
  if (size == 0) return written ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  if (!value || size != from.size()) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, from.data(), size);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace simulated_gpu
