// Memory of a device, and copies between memories. For everyday use see tensor.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/core/check.h"
#include "src/core/device.h"
#include "src/core/stream.h"

namespace owt {

// There is not enough memory. The message says what was asked for and what is free.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, int64_t asked, int64_t free, int64_t total)
      : Error(message), asked_bytes(asked), free_bytes(free), total_bytes(total) {}

  int64_t asked_bytes, free_bytes, total_bytes;  // free and total: 0 where unknown
};

// Not initialised, aligned to 64 bytes at least. Throws OutOfMemory. On a GPU: the calling host thread's.
std::shared_ptr<std::byte> allocate(Cpu, int64_t bytes);
std::shared_ptr<std::byte> allocate(Cuda, int64_t bytes);
// Host memory that the device can read and write while the host does something else.
std::shared_ptr<std::byte> allocate_shared_with(Cpu, int64_t bytes);
std::shared_ptr<std::byte> allocate_shared_with(Cuda, int64_t bytes);

// Bytes of host memory that allocate() has given out in this process: those in use, and the most that ever were since
// the count was restarted. For tests of what has to do with little.
struct HostMemory {
  int64_t in_use, most;
};
HostMemory host_memory();
void restart_host_memory_peak();

// Queued on the stream, which belongs to the device of the tag. With Cuda either side may be host memory.
void copy_bytes(Cpu, const void* from, void* to, int64_t bytes, const Stream& stream);
void copy_bytes(Cuda, const void* from, void* to, int64_t bytes, const Stream& stream);
void zero_bytes(Cpu, void* to, int64_t bytes, const Stream& stream);
void zero_bytes(Cuda, void* to, int64_t bytes, const Stream& stream);

// A stream of the calling host thread for work outside a step; blocks nobody but those who wait for it.
const Stream& setup_stream(Device device);

}  // namespace owt
