#include "tests/simulated_gpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/simulated_gpu/runtime.h"

namespace simulated_gpu {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPlainMemory = true;  // so that the sanitizer sees each allocation's ends
#else
constexpr bool kPlainMemory = false;
#endif

constexpr size_t kRangeBytes = size_t{16} << 30;  // addresses of a device
constexpr size_t kGranule = 512;
constexpr size_t kPage = 2 << 20, kKeptBytes = 256 << 20;
constexpr size_t kFilledWhenFreed = 1 << 20;  // shows a use of freed memory; an allocation is filled as a whole
constexpr size_t kFence = 512;                // bytes after each allocation that must not change
constexpr int kFresh = 0xff, kFenceByte = 0xa5;

size_t round_up(size_t bytes, size_t granule) { return (bytes + granule - 1) / granule * granule; }

size_t memory_from_environment() {
  const char* mebibytes = std::getenv("OWT_SIMULATED_GPU_MEMORY");
  return (mebibytes ? std::strtoull(mebibytes, nullptr, 10) : 8192) << 20;
}

// First fit in one range of addresses.
struct Range {
  std::byte* begin = nullptr;
  std::map<size_t, size_t> free;  // offset to bytes
  size_t used = 0;
  size_t in_use = 0;  // bytes at its beginning, in whole pages, that can be accessible; bytes after them never are
};

class Memory {
 public:
  // Never destroyed: streams may still work while the program exits.
  static Memory& instance() {
    static Memory& memory = *new Memory;
    return memory;
  }

  cudaError_t allocate(int device, size_t bytes, void** memory) {
    const std::lock_guard lock(mutex_);
    Range& range = range_of(device);
    const size_t granules = round_up(bytes, kGranule);
    if (granules < bytes || range.used + granules > limit_) return cudaErrorMemoryAllocation;
    std::byte* begin = kPlainMemory ? plain(bytes) : place(range, granules + kFence);
    if (!begin) return cudaErrorMemoryAllocation;
    range.used += granules;
    live_[begin] = {begin, bytes, device};
    const MemoryAccess access;
    std::memset(begin, kFresh, kPlainMemory ? bytes : granules);
    if (!kPlainMemory) std::memset(begin + bytes, kFenceByte, granules - bytes + kFence);
    *memory = begin;
    return cudaSuccess;
  }

  cudaError_t free(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(static_cast<std::byte*>(memory));
    if (found == live_.end()) return cudaErrorInvalidValue;
    const Allocation allocation = found->second;
    Range& range = range_of(allocation.device);
    const size_t granules = round_up(allocation.bytes, kGranule);
    range.used -= granules;
    live_.erase(found);
    if (kPlainMemory) {
      std::free(memory);
      return cudaSuccess;
    }
    const MemoryAccess access;
    check_fence(allocation, granules);
    std::memset(allocation.begin, kFresh, std::min(granules, kFilledWhenFreed));
    give_back(range, static_cast<size_t>(allocation.begin - range.begin), granules + kFence);
    give_pages_back(range);
    return cudaSuccess;
  }

  std::optional<Allocation> find(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto* byte = static_cast<const std::byte*>(address);
    auto after = live_.upper_bound(const_cast<std::byte*>(byte));
    if (after == live_.begin()) return {};
    const Allocation& allocation = std::prev(after)->second;
    if (byte >= allocation.begin + allocation.bytes) return {};
    return allocation;
  }

  bool in_a_range(const void* address) {
    const std::lock_guard lock(mutex_);
    for (const auto& [device, range] : ranges_)
      if (range.begin && address >= range.begin && address < range.begin + kRangeBytes) return true;
    return false;
  }

  void info(int device, size_t* free, size_t* total) {
    const std::lock_guard lock(mutex_);
    const size_t used = range_of(device).used;
    *total = limit_;
    *free = used < limit_ ? limit_ - used : 0;
  }

  void set_limit(size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes < kRangeBytes ? bytes : kRangeBytes;
  }

  void open() {
    const std::lock_guard lock(guard_mutex_);
    ++users_;
    if (!accessible_) set_accessible(true);
  }

  void close() {
    const std::lock_guard lock(guard_mutex_);
    --users_;
  }

  void close_unused() {
    const std::lock_guard lock(guard_mutex_);
    if (users_ == 0 && accessible_) set_accessible(false);
  }

 private:
  Memory() {
    const char* guard = std::getenv("OWT_SIMULATED_GPU_GUARD");
    guarded_ = !guard || std::strcmp(guard, "0") != 0;
    accessible_ = !guarded_;
  }

  Range& range_of(int device) {
    Range& range = ranges_[device];
    if (kPlainMemory || range.begin) return range;
    void* begin = mmap(nullptr, kRangeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
      std::perror("simulated GPU: no range of addresses for device memory");
      std::abort();
    }
    madvise(begin, kRangeBytes, MADV_HUGEPAGE);  // large pages: the protection changes often
    range.begin = static_cast<std::byte*>(begin);
    range.free[0] = kRangeBytes;
    const std::lock_guard lock(guard_mutex_);
    guarded_ranges_.push_back(&range);
    return range;
  }

  void set_accessible(bool accessible) {
    if (!accessible && !guarded_) return;
    for (const Range* range : guarded_ranges_)
      set_protection(range->begin, range->in_use, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
    accessible_ = accessible;
  }

  static void set_protection(std::byte* begin, size_t bytes, int protection) {
    if (mprotect(begin, bytes, protection) == 0) return;
    std::perror("simulated GPU: mprotect");
    std::abort();
  }

  // Host memory, aligned like cudaMalloc's; its end is the end of the request.
  static std::byte* plain(size_t bytes) {
    void* memory = nullptr;
    return posix_memalign(&memory, 256, bytes) == 0 ? static_cast<std::byte*>(memory) : nullptr;
  }

  std::byte* place(Range& range, size_t bytes) {
    for (auto piece = range.free.begin(); piece != range.free.end(); ++piece) {
      if (piece->second < bytes) continue;
      const auto [offset, size] = *piece;
      range.free.erase(piece);
      if (size > bytes) range.free[offset + bytes] = size - bytes;
      if (offset + bytes > range.in_use) use(range, round_up(offset + bytes, kPage));
      return range.begin + offset;
    }
    return nullptr;
  }

  static void give_back(Range& range, size_t offset, size_t bytes) {
    auto after = range.free.upper_bound(offset);
    if (after != range.free.end() && after->first == offset + bytes) {
      bytes += after->second;
      after = range.free.erase(after);
    }
    if (after != range.free.begin() && std::prev(after)->first + std::prev(after)->second == offset)
      std::prev(after)->second += bytes;
    else
      range.free[offset] = bytes;
  }

  // From here on the protection of the first `bytes` bytes may change. More pages make each change slower.
  void use(Range& range, size_t bytes) {
    const std::lock_guard lock(guard_mutex_);
    if (bytes < range.in_use) {
      set_protection(range.begin + bytes, range.in_use - bytes, PROT_NONE);
      madvise(range.begin + bytes, range.in_use - bytes, MADV_DONTNEED);
    } else if (accessible_) {
      set_protection(range.begin + range.in_use, bytes - range.in_use, PROT_READ | PROT_WRITE);
    }
    range.in_use = bytes;
  }

  // Returns the pages after the last allocation if there are many.
  void give_pages_back(Range& range) {
    const auto last = std::prev(range.free.end());
    const size_t end = round_up(last->first, kPage);
    if (last->first + last->second == kRangeBytes && range.in_use >= end + kKeptBytes) use(range, end);
  }

  static void check_fence(const Allocation& allocation, size_t granules) {
    for (size_t i = allocation.bytes; i < granules + kFence; ++i)
      if (allocation.begin[i] != std::byte{kFenceByte}) {
        std::fprintf(stderr, "simulated GPU: a write past the end of device memory: byte %zu of an allocation of %zu\n",
                     i, allocation.bytes);
        std::abort();
      }
  }

  std::mutex mutex_;
  size_t limit_ = memory_from_environment();
  std::map<int, Range> ranges_;
  std::map<std::byte*, Allocation> live_;
  std::mutex guard_mutex_;
  std::vector<const Range*> guarded_ranges_;
  size_t users_ = 0;
  bool guarded_ = true;
  bool accessible_ = false;
};

class PinnedMemory {
 public:
  static PinnedMemory& instance() {
    static PinnedMemory& memory = *new PinnedMemory;
    return memory;
  }

  cudaError_t allocate(size_t bytes, void** memory) {
    const size_t rounded = round_up(bytes > 0 ? bytes : 1, 64);
    *memory = std::aligned_alloc(64, rounded);
    if (!*memory) return cudaErrorMemoryAllocation;
    std::memset(*memory, kFresh, rounded);
    const std::lock_guard lock(mutex_);
    live_[static_cast<std::byte*>(*memory)] = bytes;
    return cudaSuccess;
  }

  cudaError_t free(void* memory) {
    const std::lock_guard lock(mutex_);
    if (live_.erase(static_cast<std::byte*>(memory)) == 0) return cudaErrorInvalidValue;
    std::free(memory);
    return cudaSuccess;
  }

  bool contains(const void* address) {
    const std::lock_guard lock(mutex_);
    auto* byte = static_cast<std::byte*>(const_cast<void*>(address));
    const auto after = live_.upper_bound(byte);
    return after != live_.begin() && byte < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, size_t> live_;
};

}  // namespace

cudaError_t allocate_device(int device, size_t bytes, void** memory) {
  return Memory::instance().allocate(device, bytes, memory);
}
cudaError_t free_device(void* memory) { return Memory::instance().free(memory); }
std::optional<Allocation> device_allocation(const void* address) { return Memory::instance().find(address); }
bool on_a_device(const void* address) {
  return kPlainMemory ? device_allocation(address).has_value() : Memory::instance().in_a_range(address);
}
bool on_a_device(const void* begin, size_t bytes) {
  const auto allocation = device_allocation(begin);
  return allocation && static_cast<const std::byte*>(begin) + bytes <= allocation->begin + allocation->bytes;
}
void memory_info(int device, size_t* free, size_t* total) { Memory::instance().info(device, free, total); }
void set_memory(size_t bytes) { Memory::instance().set_limit(bytes); }

cudaError_t allocate_pinned(size_t bytes, void** memory) { return PinnedMemory::instance().allocate(bytes, memory); }
cudaError_t free_pinned(void* memory) { return PinnedMemory::instance().free(memory); }
bool is_pinned(const void* address) { return PinnedMemory::instance().contains(address); }

MemoryAccess::MemoryAccess() { Memory::instance().open(); }
MemoryAccess::~MemoryAccess() { Memory::instance().close(); }
void close_unused_memory() { Memory::instance().close_unused(); }

}  // namespace simulated_gpu
