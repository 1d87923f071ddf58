// The cuDNN functions that owt uses. For .cu files.
#pragma once

#include <cudnn_graph.h>

#include "src/system/lazy_library.h"

namespace owt {

inline LazyLibrary cudnn_library(OWT_LIBRARY_FILE("libcudnn", CUDNN_MAJOR), "cuDNN",
                                 "NVIDIA's package libcudnn9, or with pip owt[cuda13]");

OWT_LAZY(cudnn_library, cudnnBackendCreateDescriptor)
OWT_LAZY(cudnn_library, cudnnBackendDestroyDescriptor)
OWT_LAZY(cudnn_library, cudnnBackendExecute)
OWT_LAZY(cudnn_library, cudnnBackendFinalize)
OWT_LAZY(cudnn_library, cudnnBackendGetAttribute)
OWT_LAZY(cudnn_library, cudnnBackendSetAttribute)
OWT_LAZY(cudnn_library, cudnnCreate)
OWT_LAZY(cudnn_library, cudnnDestroy)
OWT_LAZY(cudnn_library, cudnnGetErrorString)
OWT_LAZY(cudnn_library, cudnnGetLastErrorString)
OWT_LAZY(cudnn_library, cudnnGetVersion)
OWT_LAZY(cudnn_library, cudnnSetStream)

}  // namespace owt
