// The order of the threads of a block for ThreadSanitizer, in race_test. Elsewhere these functions do nothing.
//
// ThreadSanitizer sees a thread of its own (a fiber) for each thread of a block, although one host thread runs them in
// turn. These functions state the order that a GPU guarantees; ThreadSanitizer assumes no other.
#pragma once

#ifdef OWT_RACES
#include <sanitizer/tsan_interface.h>
#endif

namespace simulated_gpu {

#ifdef OWT_RACES
inline constexpr bool kRaces = true;
// All that the calling threads did before release(event) is before all that others do after acquire(event).
inline void release(void* event) { __tsan_release(event); }
inline void acquire(void* event) { __tsan_acquire(event); }
#else
inline constexpr bool kRaces = false;
inline void release(void*) {}
inline void acquire(void*) {}
#endif

}  // namespace simulated_gpu
