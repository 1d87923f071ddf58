// The nvJPEG functions in use. For .cu files of this folder.
#pragma once

#include "data/jpeg/nvjpeg_api.h"
#include "src/system/lazy_library.h"

namespace owt {

// The library has CUDA's version.
inline LazyLibrary nvjpeg_library(CUDART_VERSION >= 13000 ? "libnvjpeg.so.13" : "libnvjpeg.so.12", "nvJPEG",
                                  "NVIDIA's package libnvjpeg, or with pip nvidia-nvjpeg",
                                  "set data.decoder = \"cpu\"");

OWT_LAZY(nvjpeg_library, nvjpegCreateEx)
OWT_LAZY(nvjpeg_library, nvjpegDecodeBatched)
OWT_LAZY(nvjpeg_library, nvjpegDecodeBatchedInitialize)
OWT_LAZY(nvjpeg_library, nvjpegDestroy)
OWT_LAZY(nvjpeg_library, nvjpegJpegStateCreate)
OWT_LAZY(nvjpeg_library, nvjpegJpegStateDestroy)

}  // namespace owt
