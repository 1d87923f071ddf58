// Device memory, and copies between memories. Most code uses tensor.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/core/device.h"
#include "src/core/stream.h"
#include "src/system/check.h"

namespace owt {

// Not enough memory. The message states the requested and the free bytes.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, int64_t asked, int64_t free, int64_t total)
      : Error(message), asked_bytes(asked), free_bytes(free), total_bytes(total) {}

  int64_t asked_bytes, free_bytes, total_bytes;  // free and total are 0 if unknown
};

// Uninitialised, aligned to at least 64 bytes. Throws OutOfMemory. On a GPU: the calling host thread's GPU.
std::shared_ptr<std::byte> allocate(Cpu, int64_t bytes);
std::shared_ptr<std::byte> allocate(Cuda, int64_t bytes);
// Host memory that the device can read and write while the host works.
std::shared_ptr<std::byte> allocate_shared_with(Cpu, int64_t bytes);
std::shared_ptr<std::byte> allocate_shared_with(Cuda, int64_t bytes);

// Bytes of host memory from allocate() in this process: the current amount, the maximum since the last restart, and the
// sum of all allocations, which does not depend on the order of threads. For tests of memory use.
struct HostMemory {
  int64_t in_use, most, allocated;
};
HostMemory host_memory();
void restart_host_memory_peak();

// Queued on the stream, which belongs to the device of the tag. With Cuda either side may be host memory.
void copy_bytes(Cpu, const void* from, void* to, int64_t bytes, const Stream& stream);
void copy_bytes(Cuda, const void* from, void* to, int64_t bytes, const Stream& stream);
void zero_bytes(Cpu, void* to, int64_t bytes, const Stream& stream);
void zero_bytes(Cuda, void* to, int64_t bytes, const Stream& stream);

// A stream of the calling host thread for work outside a step. It blocks only threads that wait for it.
const Stream& setup_stream(Device device);

}  // namespace owt
