#include "src/core/memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace owt {
namespace {

constexpr size_t kAlignment = 64, kHugePage = 2 << 20;

std::atomic<int64_t> bytes_in_use{0}, most_bytes{0}, allocated_bytes{0};

void count(int64_t bytes) {
  const int64_t now = bytes_in_use.fetch_add(bytes) + bytes;
  int64_t most = most_bytes.load();
  while (most < now && !most_bytes.compare_exchange_weak(most, now)) {
  }
}

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
  // Weights and activations are read and written sequentially; huge pages gain about 5 % there.
  if (large) madvise(memory, size, MADV_HUGEPAGE);
  count(bytes);
  allocated_bytes += bytes;
  return {static_cast<std::byte*>(memory), [bytes](std::byte* p) {
            std::free(p);
            count(-bytes);
          }};
}

HostMemory host_memory() { return {bytes_in_use.load(), most_bytes.load(), allocated_bytes.load()}; }
void restart_host_memory_peak() { most_bytes.store(bytes_in_use.load()); }

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
