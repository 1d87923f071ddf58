// The NCCL functions in use. For .cu files of this folder.
#pragma once

#include <nccl.h>

#include "src/system/lazy_library.h"

namespace owt {

inline LazyLibrary nccl_library(OWT_LIBRARY_FILE("libnccl", NCCL_MAJOR), "NCCL",
                                "NVIDIA's package libnccl2, or with pip owt[cuda13]");

OWT_LAZY(nccl_library, ncclAllGather)
OWT_LAZY(nccl_library, ncclAllReduce)
OWT_LAZY(nccl_library, ncclBroadcast)
OWT_LAZY(nccl_library, ncclCommAbort)
OWT_LAZY(nccl_library, ncclCommDestroy)
OWT_LAZY(nccl_library, ncclCommFinalize)
OWT_LAZY(nccl_library, ncclCommGetAsyncError)
OWT_LAZY(nccl_library, ncclCommInitRankConfig)
OWT_LAZY(nccl_library, ncclGetErrorString)
OWT_LAZY(nccl_library, ncclGetLastError)
OWT_LAZY(nccl_library, ncclGetUniqueId)
OWT_LAZY(nccl_library, ncclGroupEnd)
OWT_LAZY(nccl_library, ncclGroupStart)
OWT_LAZY(nccl_library, ncclRecv)
OWT_LAZY(nccl_library, ncclReduce)
OWT_LAZY(nccl_library, ncclReduceScatter)
OWT_LAZY(nccl_library, ncclSend)

}  // namespace owt
