// The checked longjmp of a hardened C library takes a jump to another stack for an error.
#undef _FORTIFY_SOURCE

#include "tests/simulated_gpu/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace simulated_gpu {
namespace {

constexpr size_t kStackBytes = 128 << 10, kStacksPerSlab = 32;
constexpr uint64_t kCanary = 0x5afe57ac4b10c4edULL;

// Sanitizers must be told about a change of stacks: once before it, and once after it on the new stack.
void leave(Context& from, Context& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.sanitizer, to.stack, to.stack_bytes);
#elif defined(__SANITIZE_THREAD__)
  if (!from.sanitizer) from.sanitizer = __tsan_get_current_fiber();
  if (!to.sanitizer) to.sanitizer = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(to.sanitizer, 0);
#else
  static_cast<void>(from);
  static_cast<void>(to);
#endif
}

void arrive([[maybe_unused]] void* sanitizer, [[maybe_unused]] Context& from) {
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(sanitizer, &stack, &bytes);
  from.stack = const_cast<void*>(stack);
  from.stack_bytes = bytes;
#endif
}

}  // namespace

Fiber::Fiber(std::byte* stack, size_t stack_bytes, Context* scheduler) : scheduler_(scheduler) {
  self_.stack = stack;
  self_.stack_bytes = stack_bytes;
  std::memcpy(stack, &kCanary, sizeof kCanary);
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  if (self_.sanitizer) __tsan_destroy_fiber(self_.sanitizer);
#endif
}

void Fiber::entry(unsigned low, unsigned high) {
  auto* fiber = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(low) | static_cast<uintptr_t>(high) << 32);
  arrive(nullptr, *fiber->scheduler_);
  for (;;) {
    (*fiber->work_)();
    fiber->working_ = false;
    fiber->yield();
  }
}

void Fiber::switch_contexts(Context& from, Context& to) {
  leave(from, to);
  if (_setjmp(from.registers) == 0) _longjmp(to.registers, 1);
  arrive(from.sanitizer, to);
}

void Fiber::yield() { switch_contexts(self_, *scheduler_); }

bool Fiber::resume(const std::function<void()>& work) {
  if (!working_) {
    working_ = true;
    work_ = &work;
  }
  if (started_) {
    switch_contexts(*scheduler_, self_);
  } else {
    started_ = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = self_.stack;
    context.uc_stack.ss_size = self_.stack_bytes;
    context.uc_link = nullptr;
    const auto address = reinterpret_cast<uintptr_t>(this);
    makecontext(&context, reinterpret_cast<void (*)()>(&Fiber::entry), 2, static_cast<unsigned>(address),
                static_cast<unsigned>(address >> 32));
    leave(*scheduler_, self_);
    if (_setjmp(scheduler_->registers) == 0) setcontext(&context);
    arrive(scheduler_->sanitizer, self_);
  }
  if (std::memcmp(self_.stack, &kCanary, sizeof kCanary) != 0) {
    std::fprintf(stderr, "simulated GPU: a thread of a kernel used more than %zu KiB of stack\n", kStackBytes >> 10);
    std::abort();
  }
  return !working_;
}

FiberPool::FiberPool() = default;

FiberPool::~FiberPool() {
  fibers_.clear();
  for (std::byte* slab : slabs_) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(slab, kStackBytes * kStacksPerSlab);  // the next owner of these pages starts clean
#endif
    munmap(slab, kStackBytes * kStacksPerSlab);
  }
}

Fiber* FiberPool::take() {
  if (idle_.empty()) {
    void* slab = mmap(nullptr, kStackBytes * kStacksPerSlab, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) std::abort();
    slabs_.push_back(static_cast<std::byte*>(slab));
    for (size_t i = 0; i < kStacksPerSlab; ++i) {
      fibers_.push_back(std::make_unique<Fiber>(slabs_.back() + i * kStackBytes, kStackBytes, &scheduler_));
      idle_.push_back(fibers_.back().get());
    }
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

}  // namespace simulated_gpu
