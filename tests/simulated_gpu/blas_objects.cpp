#include "tests/simulated_gpu/blas_objects.h"

namespace simulated_gpu {
namespace {

template <class T>
std::span<std::byte> bytes(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

std::span<std::byte> field(Layout& layout, cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return bytes(layout.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return bytes(layout.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return bytes(layout.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return bytes(layout.cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return bytes(layout.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return bytes(layout.batch_count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return bytes(layout.batch_stride);
    default:
      return {};
  }
}

std::span<std::byte> field(Description& description, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return bytes(description.compute_type);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return bytes(description.scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return bytes(description.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return bytes(description.transa);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return bytes(description.transb);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return bytes(description.transc);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return bytes(description.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return bytes(description.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return bytes(description.bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return bytes(description.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return bytes(description.aux_ld);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return bytes(description.sm_count_target);
    default:
      return {};
  }
}

std::span<std::byte> field(Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return bytes(preference.search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return bytes(preference.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return bytes(preference.reduction_schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return bytes(preference.alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return bytes(preference.alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return bytes(preference.alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return bytes(preference.alignment[3]);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return bytes(preference.max_waves);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return bytes(preference.implementations);
    default:
      return {};
  }
}

std::span<std::byte> field(Algorithm& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return bytes(algorithm.id);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return bytes(algorithm.stages);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return bytes(algorithm.split);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return bytes(algorithm.scheme);
    default:
      return {};
  }
}

}  // namespace simulated_gpu
