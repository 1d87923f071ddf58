// Memory of the simulated devices, and page-locked memory of the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <optional>

namespace simulated_gpu {

struct Allocation {
  std::byte* begin;
  size_t bytes;
  int device;
};

cudaError_t allocate_device(int device, size_t bytes, void** memory);
cudaError_t free_device(void* memory);
// The live allocation of a device that contains this address.
std::optional<Allocation> device_allocation(const void* address);
bool on_a_device(const void* address);              // in a device's range of addresses, allocated or not
bool on_a_device(const void* begin, size_t bytes);  // within one live allocation
void memory_info(int device, size_t* free, size_t* total);

cudaError_t allocate_pinned(size_t bytes, void** memory);
cudaError_t free_pinned(void* memory);
bool is_pinned(const void* address);

// While one lives, the memory of all devices can be touched by every thread. A change of that is slow, so the memory
// stays accessible afterwards, until the host has waited for a stream or an event.
class MemoryAccess {
 public:
  MemoryAccess();
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;
};

void close_unused_memory();  // the host has waited

}  // namespace simulated_gpu
