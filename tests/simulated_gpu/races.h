// The order of the threads of a block for ThreadSanitizer, in race_test. Other programs do not have ThreadSanitizer's
// functions: there these do nothing.
//
// ThreadSanitizer sees a thread of its own (a fiber) for each thread of a block, although one host thread runs them in
// turn. These functions state the order that a GPU guarantees; ThreadSanitizer assumes no other.
#pragma once

extern "C" {
[[gnu::weak]] void __tsan_acquire(void* event);
[[gnu::weak]] void __tsan_release(void* event);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace simulated_gpu {

inline bool finds_races() { return __tsan_switch_to_fiber != nullptr; }

// All that the calling threads did before release(event) is before all that others do after acquire(event).
inline void release(void* event) {
  if (__tsan_release) __tsan_release(event);
}
inline void acquire(void* event) {
  if (__tsan_acquire) __tsan_acquire(event);
}

}  // namespace simulated_gpu
