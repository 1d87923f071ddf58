// Devices, errors and memory of the CUDA runtime.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/simulated_gpu/kernels.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/simulated_gpu/streams.h"

namespace simulated_gpu {
namespace {

constexpr int kMultiprocessors = 8;
constexpr int kOldestCapability = 75;  // kernels are compiled for this one and newer ones

std::atomic<int>& device_count() {
  static std::atomic<int> count = [] {
    const char* wanted = std::getenv("OWT_SIMULATED_GPUS");
    return wanted ? std::atoi(wanted) : 1;
  }();
  return count;
}

std::atomic<int>& capability() {
  static std::atomic<int> capability = 90;
  return capability;
}

std::atomic<size_t>& l2_cache() {
  static std::atomic<size_t> bytes = 1 << 16;
  return bytes;
}

std::atomic<int>& driver_version() {
  static std::atomic<int> version = CUDART_VERSION;
  return version;
}

std::atomic<size_t> zeroed = 0;  // bytes
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

struct Copy {
  std::byte* to;
  size_t to_pitch;
  const std::byte* from;
  size_t from_pitch;
  size_t width, rows;  // bytes of a row

  void run() const {
    for (size_t row = 0; row < rows; ++row) std::memcpy(to + row * to_pitch, from + row * from_pitch, width);
  }
  size_t to_bytes() const { return (rows - 1) * to_pitch + width; }
  size_t from_bytes() const { return (rows - 1) * from_pitch + width; }
};

enum class Place { kDevice, kPinned, kPageable, kNowhere };

// kNowhere: on a device, but not within one live allocation.
Place place_of(const void* begin, size_t bytes) {
  if (on_a_device(begin)) return on_a_device(begin, bytes) ? Place::kDevice : Place::kNowhere;
  return is_pinned(begin) ? Place::kPinned : Place::kPageable;
}

bool kind_fits(cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    default:
      return kind == cudaMemcpyDefault;
  }
}

cudaError_t check_copy(const Copy& copy, cudaMemcpyKind kind, Place to, Place from) {
  if (!copy.to || !copy.from || to == Place::kNowhere || from == Place::kNowhere) return cudaErrorInvalidValue;
  if (copy.rows > 1 && (copy.width > copy.to_pitch || copy.width > copy.from_pitch)) return cudaErrorInvalidPitchValue;
  return kind_fits(kind, to == Place::kDevice, from == Place::kDevice) ? cudaSuccess : cudaErrorInvalidMemcpyDirection;
}

bool nothing_to_do(const Copy& copy) { return copy.width == 0 || copy.rows == 0; }

cudaError_t copy_now(const Copy& copy, cudaMemcpyKind kind) {
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return status;
  if (nothing_to_do(copy)) return cudaSuccess;
  const Place to = place_of(copy.to, copy.to_bytes()), from = place_of(copy.from, copy.from_bytes());
  if (const cudaError_t status = check_copy(copy, kind, to, from); status != cudaSuccess) return status;
  drain_device(current_device, Which::kBlocking);
  {
    const MemoryAccess access;
    copy.run();
  }
  close_unused_memory();
  return cudaSuccess;
}

// Pageable memory is read or written before the call returns; pinned memory when the stream reaches the copy.
cudaError_t copy_on_stream(const Copy& copy, cudaMemcpyKind kind, cudaStream_t stream) {
  if (nothing_to_do(copy)) return cudaSuccess;
  const Place to = place_of(copy.to, copy.to_bytes()), from = place_of(copy.from, copy.from_bytes());
  if (const cudaError_t status = check_copy(copy, kind, to, from); status != cudaSuccess) return status;
  const bool staged = from == Place::kPageable, waits = to == Place::kPageable;
  if (staged || waits)
    if (const cudaError_t status = refuse_in_capture(stream); status != cudaSuccess) return status;
  if (!staged) {
    const cudaError_t status = enqueue(stream, {"cudaMemcpyAsync"}, [copy] { copy.run(); });
    return status == cudaSuccess && waits ? cudaStreamSynchronize(stream) : status;
  }
  auto stage = std::make_shared<std::vector<std::byte>>(copy.width * copy.rows);
  Copy{stage->data(), copy.width, copy.from, copy.from_pitch, copy.width, copy.rows}.run();
  const Copy from_stage{copy.to, copy.to_pitch, stage->data(), copy.width, copy.width, copy.rows};
  const cudaError_t status = enqueue(stream, {"cudaMemcpyAsync"}, [from_stage, stage] { from_stage.run(); });
  return status == cudaSuccess && waits ? cudaStreamSynchronize(stream) : status;
}

Copy flat(void* to, const void* from, size_t bytes) {
  return {static_cast<std::byte*>(to), bytes, static_cast<const std::byte*>(from), bytes, bytes, 1};
}

Copy rows_of(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows) {
  return {static_cast<std::byte*>(to), to_pitch, static_cast<const std::byte*>(from), from_pitch, width, rows};
}

cudaError_t check_fill(void* to, size_t bytes) {
  const Place place = place_of(to, bytes);
  return place == Place::kDevice || place == Place::kPinned ? cudaSuccess : cudaErrorInvalidValue;
}

bool is_device(int device) { return device >= 0 && device < device_count(); }

}  // namespace

void set_devices(int count) { device_count() = count; }
void set_capability(int value) { capability() = value; }
void set_l2_cache(size_t bytes) { l2_cache() = bytes; }
void set_driver(int version) { driver_version() = version; }
int devices() { return device_count(); }
size_t zeroed_bytes() { return zeroed; }

cudaError_t report(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

}  // namespace simulated_gpu

using namespace simulated_gpu;

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
#define NAME(error) \
  case error:       \
    return #error;
    NAME(cudaSuccess)
    NAME(cudaErrorInvalidValue)
    NAME(cudaErrorMemoryAllocation)
    NAME(cudaErrorInvalidConfiguration)
    NAME(cudaErrorInvalidPitchValue)
    NAME(cudaErrorInvalidMemcpyDirection)
    NAME(cudaErrorNoDevice)
    NAME(cudaErrorInvalidDevice)
    NAME(cudaErrorInvalidResourceHandle)
    NAME(cudaErrorIllegalState)
    NAME(cudaErrorNotReady)
    NAME(cudaErrorPeerAccessAlreadyEnabled)
    NAME(cudaErrorStreamCaptureUnsupported)
    NAME(cudaErrorStreamCaptureInvalidated)
    NAME(cudaErrorStreamCaptureMerge)
    NAME(cudaErrorStreamCaptureUnmatched)
    NAME(cudaErrorStreamCaptureUnjoined)
    NAME(cudaErrorStreamCaptureIsolation)
    NAME(cudaErrorStreamCaptureWrongThread)
    NAME(cudaErrorCapturedEvent)
#undef NAME
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    default:
      return cudaGetErrorName(status);
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  if (driver_version() < CUDART_VERSION) return report(cudaErrorInsufficientDriver);
  return report(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return report(devices() == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (devices() == 0) return report(cudaErrorNoDevice);
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return report(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Simulated GPU");
  size_t free = 0;
  memory_info(device, &free, &properties->totalGlobalMem);
  properties->major = capability() / 10;
  properties->minor = capability() % 10;
  properties->multiProcessorCount = kMultiprocessors;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = kMostSharedBytes;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->regsPerBlock = 65536;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->l2CacheSize = static_cast<int>(l2_cache());
  properties->memoryBusWidth = 6144;
  properties->pciBusID = device + 1;
  properties->asyncEngineCount = 3;
  properties->concurrentKernels = 1;
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (!kernel) return report(cudaErrorInvalidDeviceFunction);
  if (capability() < kOldestCapability) return report(cudaErrorNoKernelImageForDevice);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->ptxVersion = capability();
  return cudaSuccess;
}

// Limited by threads only: a simulated kernel needs no registers.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t) {
  if (!kernel || threads < 1 || threads > 1024) return report(cudaErrorInvalidValue);
  *blocks = std::min(2048 / threads, 32);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, device); status != cudaSuccess) return status;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      return cudaSuccess;
    case cudaDevAttrClockRate:
      *value = 1980000;  // kHz
      return cudaSuccess;
    case cudaDevAttrMemoryClockRate:
      *value = 3201000;  // kHz
      return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = properties.memoryBusWidth;
      return cudaSuccess;
    default:
      return report(cudaErrorInvalidValue);
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int device) {
  if (!is_device(device)) return report(cudaErrorInvalidDevice);
  std::snprintf(bus, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = devices() > 0 ? driver_version().load() : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return report(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return report(is_device(peer) && peer != current_device ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return report(status);
  drain_device(current_device, Which::kAll);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (!memory) return report(cudaErrorInvalidValue);
  if (devices() == 0) return report(cudaErrorNoDevice);
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return report(status);
  *memory = nullptr;
  return report(bytes == 0 ? cudaSuccess : allocate_device(current_device, bytes, memory));
}

cudaError_t cudaFree(void* memory) {
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return report(status);
  if (!memory) return cudaSuccess;
  const auto allocation = device_allocation(memory);
  if (!allocation || allocation->begin != memory) return report(cudaErrorInvalidValue);
  drain_device(allocation->device, Which::kAll);
  return report(free_device(memory));
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (devices() == 0) return report(cudaErrorNoDevice);
  memory_info(current_device, free, total);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (!memory) return report(cudaErrorInvalidValue);
  if (devices() == 0) return report(cudaErrorNoDevice);
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return report(status);
  return report(allocate_pinned(bytes, memory));
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaHostAlloc(memory, bytes, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return report(status);
  if (!memory) return cudaSuccess;
  for (int device = 0; device < devices(); ++device) drain_device(device, Which::kAll);
  return report(free_pinned(memory));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  const auto allocation = device_allocation(address);
  attributes->type = allocation           ? cudaMemoryTypeDevice
                     : is_pinned(address) ? cudaMemoryTypeHost
                                          : cudaMemoryTypeUnregistered;
  attributes->device = allocation ? allocation->device : attributes->type == cudaMemoryTypeHost ? current_device : -2;
  if (allocation || attributes->type == cudaMemoryTypeHost) attributes->devicePointer = const_cast<void*>(address);
  if (!allocation) attributes->hostPointer = const_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return report(copy_now(flat(to, from, bytes), kind));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return report(copy_on_stream(flat(to, from, bytes), kind, stream));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return report(copy_on_stream(flat(to, from, bytes), cudaMemcpyDeviceToDevice, stream));
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                         cudaMemcpyKind kind) {
  return report(copy_now(rows_of(to, to_pitch, from, from_pitch, width, rows), kind));
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return report(copy_on_stream(rows_of(to, to_pitch, from, from_pitch, width, rows), kind, stream));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return report(status);
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t status = check_fill(to, bytes); status != cudaSuccess) return report(status);
  drain_device(current_device, Which::kBlocking);
  {
    const MemoryAccess access;
    std::memset(to, value, bytes);
  }
  close_unused_memory();
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t status = check_fill(to, bytes); status != cudaSuccess) return report(status);
  return report(enqueue(stream, {"cudaMemsetAsync"}, [to, value, bytes] {
    std::memset(to, value, bytes);
    if (value == 0) zeroed += bytes;
  }));
}
