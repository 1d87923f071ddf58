#include "src/core/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace owt {
namespace {

constexpr size_t kAlignment = 64, kHugePage = 2 << 20;

}  // namespace

std::shared_ptr<std::byte> allocate(Cpu, int64_t bytes) {
  const bool large = bytes >= static_cast<int64_t>(kHugePage);
  const size_t alignment = large ? kHugePage : kAlignment;
  const size_t size = (static_cast<size_t>(bytes) + alignment) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size);
  if (!memory)
    throw OutOfMemory(
        concat("out of memory: ", bytes >> 20, " MiB asked for; use a smaller batch or a smaller network"), bytes, 0,
        0);
  // Weights and activations are walked from end to end; huge pages are worth about 5 % there.
  if (large) madvise(memory, size, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

std::shared_ptr<std::byte> allocate_shared_with(Cpu, int64_t bytes) { return allocate(Cpu{}, bytes); }

void copy_bytes(Cpu, const void* from, void* to, int64_t bytes, const Stream&) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void zero_bytes(Cpu, void* to, int64_t bytes, const Stream&) {
  if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
}

const Stream& setup_stream(Device device) {
  static const Stream cpu;
  if (device == Device::kCpu) return cpu;
  thread_local const Stream cuda{Device::kCuda};
  return cuda;
}

}  // namespace owt
