// cuBLASLt's entry points and the checks of a product.
//
// Stricter than cuBLASLt where its documentation is silent: epilogues need a D in column order. RELU is max(x, 0),
// which turns NaN into 0. The first algorithm adds in double precision, the second in single precision; the third needs
// a workspace.
#include <algorithm>
#include <atomic>
#include <memory>

#include "tests/simulated_gpu/blas_objects.h"
#include "tests/simulated_gpu/matmul.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/runtime.h"

namespace simulated_gpu {
namespace {

ElementType element_type(int32_t type) {
  return type == CUDA_R_32F ? ElementType::kF32 : type == CUDA_R_16BF ? ElementType::kBf16 : ElementType::kNone;
}

Matrix matrix(const Layout& layout) {
  return {element_type(layout.type),
          layout.order == CUBLASLT_ORDER_ROW,
          static_cast<int64_t>(layout.rows),
          static_cast<int64_t>(layout.cols),
          layout.ld,
          layout.batch_stride};
}

bool is_whole(const Layout& layout) {
  const auto least = static_cast<int64_t>(layout.order == CUBLASLT_ORDER_ROW ? layout.cols : layout.rows);
  return layout.rows > 0 && layout.cols > 0 && layout.ld >= least && layout.batch_count >= 1;
}

bool known_epilogue(uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      return true;
    default:
      return false;
  }
}

// The types that cuBLASLt documents for products of f32 and bf16 with sums in f32.
cublasStatus_t check_types(const Description& description, const Layout& a, const Layout& b, const Layout& c,
                           const Layout& d) {
  const bool fast = description.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                    description.compute_type == CUBLAS_COMPUTE_32F_FAST_16BF;
  const bool plain =
      description.compute_type == CUBLAS_COMPUTE_32F || description.compute_type == CUBLAS_COMPUTE_32F_PEDANTIC;
  if ((!fast && !plain) || description.scale_type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a.type != b.type || c.type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool f32 = a.type == CUDA_R_32F && d.type == CUDA_R_32F;
  const bool bf16 = a.type == CUDA_R_16BF && (d.type == CUDA_R_16BF || d.type == CUDA_R_32F);
  return f32 || (bf16 && plain) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t check_extents(const Product& product, const Layout& a, const Layout& b, const Layout& c,
                             const Layout& d) {
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (!is_whole(*layout)) return CUBLAS_STATUS_INVALID_VALUE;
    if (layout->order != CUBLASLT_ORDER_COL && layout->order != CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (layout->batch_count != d.batch_count) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const int64_t k_of_a = product.transpose_a ? product.a.rows : product.a.cols;
  const bool fits = product.k() == k_of_a && product.m() == product.d.rows && product.n() == product.d.cols &&
                    c.rows == d.rows && c.cols == d.cols && c.order == d.order;
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t check_epilogue(const Description& description, const Layout& d) {
  const uint32_t epilogue = description.epilogue;
  if (!known_epilogue(epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (d.order != CUBLASLT_ORDER_COL || d.batch_count != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (description.bias_type != -1 && description.bias_type != static_cast<int32_t>(d.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool masked = (epilogue & 128) != 0;
  if (masked && (description.aux_ld % 128 != 0 || description.aux_ld < static_cast<int64_t>(d.rows)))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check(const Description& description, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                     Product* product) {
  for (const int32_t transpose : {description.transa, description.transb})
    if (transpose != CUBLAS_OP_N && transpose != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (description.transc != CUBLAS_OP_N) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (const auto status = check_types(description, a, b, c, d); status != CUBLAS_STATUS_SUCCESS) return status;
  product->a = matrix(a);
  product->b = matrix(b);
  product->c = matrix(c);
  product->d = matrix(d);
  product->transpose_a = description.transa == CUBLAS_OP_T;
  product->transpose_b = description.transb == CUBLAS_OP_T;
  product->batches = d.batch_count;
  product->tf32 = description.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
  product->bf16 = description.compute_type == CUBLAS_COMPUTE_32F_FAST_16BF;
  product->epilogue = description.epilogue;
  product->bias = description.bias;
  product->mask = description.aux;
  product->mask_ld = description.aux_ld;
  if (const auto status = check_extents(*product, a, b, c, d); status != CUBLAS_STATUS_SUCCESS) return status;
  return check_epilogue(description, d);
}

cublasStatus_t check_pointers(const Product& product, const Algorithm& algorithm) {
  if (!product.a_data || !product.b_data || !product.d_data) return CUBLAS_STATUS_INVALID_VALUE;
  const bool needs_bias = (product.epilogue & (4u | 16u | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) != 0;
  const bool needs_mask = (product.epilogue & 128u) != 0;
  if ((needs_bias && !product.bias) || (needs_mask && !product.mask)) return CUBLAS_STATUS_INVALID_VALUE;
  if (product.c_data == product.d_data && product.c.ld != product.d.ld) return CUBLAS_STATUS_INVALID_VALUE;
  const void* pointers[4] = {product.a_data, product.b_data, product.c_data, product.d_data};
  const Matrix* matrices[4] = {&product.a, &product.b, &product.c, &product.d};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(pointers[i]) % algorithm.alignment[i] != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (pointers[i] && !on_a_device(pointers[i], matrices[i]->bytes(product.batches)))
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// cuBLASLt does not clear the unused bytes of an algorithm: seen on an H200 with 13.1.
std::atomic<uint64_t> proposed = 0;

Algorithm algorithm(int32_t id, const Preference& preference) {
  Algorithm algorithm{kMagic,
                      id,
                      id,
                      id == 2 ? 4 : 1,
                      id == 2 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0,
                      id == 2 ? kSplitWorkspace : 0,
                      {},
                      {}};
  for (int i = 0; i < 4; ++i)
    algorithm.alignment[i] = static_cast<uint16_t>(std::clamp(preference.alignment[i], 1u, 16u));
  return algorithm;
}

template <class Handle, class Object>
Object* object_of(Handle handle) {
  return reinterpret_cast<Object*>(handle);
}

float scalar(const Description& description, const void* value) {
  float host = 0;  // on the device it is read when the product runs
  if (description.pointer_mode == CUBLASLT_POINTER_MODE_HOST) std::memcpy(&host, value, sizeof host);
  return host;
}

}  // namespace
}  // namespace simulated_gpu

using namespace simulated_gpu;

struct cublasLtContext {
  int device;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{device};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    default:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return cublasLtGetStatusName(status);
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{.type = type, .rows = rows, .cols = cols, .ld = ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete object_of<cublasLtMatrixLayout_t, Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t size) {
  return set_field(object_of<cublasLtMatrixLayout_t, Layout>(layout), attribute, value, size);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* value, size_t size,
                                                size_t* written) {
  return get_field(object_of<cublasLtMatrixLayout_t, Layout>(layout), attribute, value, size, written);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute_type,
                                        cudaDataType_t scale_type) {
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(
      new Description{.compute_type = compute_type, .scale_type = static_cast<int32_t>(scale_type)});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete object_of<cublasLtMatmulDesc_t, Description>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t size) {
  return set_field(object_of<cublasLtMatmulDesc_t, Description>(description), attribute, value, size);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, void* value, size_t size,
                                              size_t* written) {
  return get_field(object_of<cublasLtMatmulDesc_t, Description>(description), attribute, value, size, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete object_of<cublasLtMatmulPreference_t, Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  return set_field(object_of<cublasLtMatmulPreference_t, Preference>(preference), attribute, value, size);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    size_t size, size_t* written) {
  return get_field(reinterpret_cast<Algorithm*>(const_cast<cublasLtMatmulAlgo_t*>(algo)), attribute, value, size,
                   written);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (!handle || !description || !a || !b || !c || !d || !algo || !result) return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm chosen;
  std::memcpy(&chosen, algo, sizeof chosen);
  if (chosen.magic != kMagic) return CUBLAS_STATUS_INVALID_VALUE;
  Product product;
  result->algo = *algo;
  result->workspaceSize = chosen.workspace;
  result->state =
      check(*object_of<cublasLtMatmulDesc_t, Description>(description), *object_of<cublasLtMatrixLayout_t, Layout>(a),
            *object_of<cublasLtMatrixLayout_t, Layout>(b), *object_of<cublasLtMatrixLayout_t, Layout>(c),
            *object_of<cublasLtMatrixLayout_t, Layout>(d), &product);
  return result->state;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (!handle || !description || !a || !b || !c || !d || !preference || wanted <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  Product product;
  const auto status =
      check(*object_of<cublasLtMatmulDesc_t, Description>(description), *object_of<cublasLtMatrixLayout_t, Layout>(a),
            *object_of<cublasLtMatrixLayout_t, Layout>(b), *object_of<cublasLtMatrixLayout_t, Layout>(c),
            *object_of<cublasLtMatrixLayout_t, Layout>(d), &product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Preference& limits = *object_of<cublasLtMatmulPreference_t, Preference>(preference);
  const bool may_split =
      limits.workspace >= kSplitWorkspace && (limits.reduction_schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  for (int32_t id = 0; id < (may_split ? 3 : 2) && *found < wanted; ++id) {
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    Algorithm chosen = algorithm(id, limits);
    chosen.unused[0] = ++proposed;
    std::memcpy(&result.algo, &chosen, sizeof chosen);
    result.workspaceSize = chosen.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a_data, cublasLtMatrixLayout_t a, const void* b_data,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c_data, cublasLtMatrixLayout_t c,
                              void* d_data, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (!handle || !description || !a || !b || !c || !d || !alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
  const Description& settings = *object_of<cublasLtMatmulDesc_t, Description>(description);
  Product product;
  product.a_data = a_data;
  product.b_data = b_data;
  product.c_data = c_data;
  product.d_data = d_data;
  const auto status =
      check(settings, *object_of<cublasLtMatrixLayout_t, Layout>(a), *object_of<cublasLtMatrixLayout_t, Layout>(b),
            *object_of<cublasLtMatrixLayout_t, Layout>(c), *object_of<cublasLtMatrixLayout_t, Layout>(d), &product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm chosen = algorithm(0, {});
  if (algo) std::memcpy(&chosen, algo, sizeof chosen);
  if (chosen.magic != kMagic) return CUBLAS_STATUS_INVALID_VALUE;
  if (chosen.workspace > workspace_bytes || (chosen.workspace > 0 && !on_a_device(workspace, chosen.workspace)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (const auto pointers = check_pointers(product, chosen); pointers != CUBLAS_STATUS_SUCCESS) return pointers;
  int device = -1;
  if (cudaStreamGetDevice(stream, &device) != cudaSuccess || device != handle->device)
    return CUBLAS_STATUS_INVALID_VALUE;
  product.in_single_precision = chosen.id == 1;
  product.alpha = scalar(settings, alpha);
  product.beta = scalar(settings, beta);
  const bool on_device = settings.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  if (!on_device && product.beta != 0 && !c_data) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t queued =
      enqueue(stream, {"cublasLtMatmul"}, [product, on_device, alpha, beta, workspace, chosen]() mutable {
        if (on_device) {
          product.alpha = *static_cast<const float*>(alpha);
          product.beta = *static_cast<const float*>(beta);
        }
        if (chosen.workspace > 0) std::memset(workspace, 0xff, chosen.workspace);  // it is the product's to spoil
        product.run();
      });
  return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
