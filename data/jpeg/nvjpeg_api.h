// The part of nvJPEG's interface that is used. nvJPEG's own header is not needed to build owt.
// Source: NVIDIA, "nvJPEG" (docs.nvidia.com/cuda/nvjpeg), CUDA 12 and 13.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

extern "C" {

enum nvjpegStatus_t {
  NVJPEG_STATUS_SUCCESS = 0,
  NVJPEG_STATUS_INVALID_PARAMETER = 2,
  NVJPEG_STATUS_BAD_JPEG = 3,
  NVJPEG_STATUS_JPEG_NOT_SUPPORTED = 4,
  NVJPEG_STATUS_ALLOCATOR_FAILURE = 5,
  NVJPEG_STATUS_ARCH_MISMATCH = 7,
};
enum nvjpegBackend_t {
  NVJPEG_BACKEND_GPU_HYBRID = 2,  // kernels, also for Huffman codes if a batch is large
  NVJPEG_BACKEND_HARDWARE = 3,    // the GPU's engines for baseline JPEG; some GPUs have none
};
enum nvjpegOutputFormat_t {
  NVJPEG_OUTPUT_Y = 2,     // the luma, in channel[0]
  NVJPEG_OUTPUT_RGBI = 5,  // red, green, blue of each pixel, in channel[0]
};
struct nvjpegImage_t {
  unsigned char* channel[4];  // on the GPU
  size_t pitch[4];            // bytes from one row to the next
};

using nvjpegHandle_t = struct nvjpegHandle*;
using nvjpegJpegState_t = struct nvjpegJpegState*;

// The allocators may be null: then it uses CUDA's. Handle and state belong to the current GPU.
nvjpegStatus_t nvjpegCreateEx(nvjpegBackend_t backend, void* device_allocator, void* pinned_allocator, unsigned flags,
                              nvjpegHandle_t* handle);
nvjpegStatus_t nvjpegDestroy(nvjpegHandle_t handle);
nvjpegStatus_t nvjpegJpegStateCreate(nvjpegHandle_t handle, nvjpegJpegState_t* state);
nvjpegStatus_t nvjpegJpegStateDestroy(nvjpegJpegState_t state);
// Must be called before batches of another size, and after a batch that failed. No batch may be under way. The number
// of threads is ignored.
nvjpegStatus_t nvjpegDecodeBatchedInitialize(nvjpegHandle_t handle, nvjpegJpegState_t state, int batch_size,
                                             int max_cpu_threads, nvjpegOutputFormat_t format);
// Queues the decoding of files in host memory. Some errors appear here, others only on the GPU.
nvjpegStatus_t nvjpegDecodeBatched(nvjpegHandle_t handle, nvjpegJpegState_t state, const unsigned char* const* data,
                                   const size_t* lengths, nvjpegImage_t* destinations, cudaStream_t stream);
}
