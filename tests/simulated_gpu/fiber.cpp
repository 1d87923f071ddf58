#include "tests/simulated_gpu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/simulated_gpu/races.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// switch_stacks(&left, to): pushes the callee-saved registers, stores the stack pointer in `left`, switches to the
// stack `to` and pops its registers. Tests switch stacks some hundred million times; setjmp and longjmp would be slow.
extern "C" void simulated_gpu_switch_stacks(void** left, void* to);
extern "C" void simulated_gpu_begin_fiber();  // calls %r12 with %rbx
asm(R"(
.text
.type simulated_gpu_switch_stacks, @function
simulated_gpu_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simulated_gpu_switch_stacks, . - simulated_gpu_switch_stacks
.type simulated_gpu_begin_fiber, @function
simulated_gpu_begin_fiber:
  movq %rbx, %rdi
  call *%r12
  ud2
.size simulated_gpu_begin_fiber, . - simulated_gpu_begin_fiber
)");

namespace simulated_gpu {
namespace {

// Not a power of two, so that the used ends of the stacks lie in different sets of the caches.
constexpr size_t kStackBytes = (128 << 10) + 4160, kStacksPerSlab = 32;
constexpr uint64_t kCanary = 0x5afe57ac4b10c4edULL;

// Sanitizers must be notified of a change of stacks: before it, and after it on the new stack.
void leave(Context& from, Context& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.sanitizer, to.stack, to.stack_bytes);
#endif
  if (!finds_races()) return;
  constexpr unsigned kWithoutOrder = 1;  // __tsan_switch_to_fiber_no_sync
  if (!from.sanitizer) from.sanitizer = __tsan_get_current_fiber();
  if (!to.sanitizer) to.sanitizer = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(to.sanitizer, kWithoutOrder);
}

void arrive([[maybe_unused]] void* sanitizer, [[maybe_unused]] Context& from) {
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(sanitizer, &stack, &bytes);
  if (from.stack) return;  // known, and the switch may have come from another fiber
  from.stack = const_cast<void*>(stack);
  from.stack_bytes = bytes;
#endif
}

}  // namespace

Fiber::Fiber(std::byte* stack, size_t stack_bytes, Context* scheduler) : scheduler_(scheduler) {
  self_.stack = stack;
  self_.stack_bytes = stack_bytes;
  // The layout that switch_stacks() leaves: %r15, %r14, %r13, %r12, %rbx, %rbp, return address. Stacks are aligned to
  // 16.
  auto** const top = reinterpret_cast<void**>(stack + stack_bytes) - 2;
  top[-4] = reinterpret_cast<void*>(&Fiber::entry);
  top[-3] = this;
  top[-1] = reinterpret_cast<void*>(&simulated_gpu_begin_fiber);
  self_.pointer = top - 7;
  std::memcpy(stack, &kCanary, sizeof kCanary);
}

Fiber::~Fiber() {
  if (finds_races() && self_.sanitizer) __tsan_destroy_fiber(self_.sanitizer);
}

void Fiber::entry(Fiber* fiber) {
  arrive(nullptr, *fiber->scheduler_);
  for (;;) {
    (*fiber->work_)();
    fiber->working_ = false;
    if (std::memcmp(fiber->self_.stack, &kCanary, sizeof kCanary) != 0) {
      std::fprintf(stderr, "simulated GPU: a thread of a kernel used more than %zu KiB of stack\n", kStackBytes >> 10);
      std::abort();
    }
    fiber->yield();
  }
}

void Fiber::switch_contexts(Context& from, Context& to) {
  leave(from, to);
  simulated_gpu_switch_stacks(&from.pointer, to.pointer);
  arrive(from.sanitizer, to);
}

void Fiber::yield() { switch_contexts(self_, *scheduler_); }

void Fiber::resume(const std::function<void()>& work) {
  if (!working_) {
    working_ = true;
    work_ = &work;
  }
  switch_contexts(*scheduler_, self_);
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
