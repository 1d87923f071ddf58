// The cuBLASLt functions in use. For .cu files of this folder.
#pragma once

#include <cublasLt.h>

#include "src/system/lazy_library.h"

namespace owt {

inline LazyLibrary cublas_library(OWT_LIBRARY_FILE("libcublasLt", CUBLAS_VER_MAJOR), "cuBLASLt",
                                  "NVIDIA's package libcublas, or with pip owt[cuda13]");

OWT_LAZY(cublas_library, cublasLtCreate)
OWT_LAZY(cublas_library, cublasLtDestroy)
OWT_LAZY(cublas_library, cublasLtGetStatusName)
OWT_LAZY(cublas_library, cublasLtGetStatusString)
OWT_LAZY(cublas_library, cublasLtGetVersion)
OWT_LAZY(cublas_library, cublasLtMatmul)
OWT_LAZY(cublas_library, cublasLtMatmulAlgoCheck)
OWT_LAZY(cublas_library, cublasLtMatmulAlgoGetHeuristic)
OWT_LAZY(cublas_library, cublasLtMatmulDescCreate)
OWT_LAZY(cublas_library, cublasLtMatmulDescDestroy)
OWT_LAZY(cublas_library, cublasLtMatmulDescSetAttribute)
OWT_LAZY(cublas_library, cublasLtMatmulPreferenceCreate)
OWT_LAZY(cublas_library, cublasLtMatmulPreferenceDestroy)
OWT_LAZY(cublas_library, cublasLtMatmulPreferenceSetAttribute)
OWT_LAZY(cublas_library, cublasLtMatrixLayoutCreate)
OWT_LAZY(cublas_library, cublasLtMatrixLayoutDestroy)

}  // namespace owt
