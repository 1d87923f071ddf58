// parallel_for() (src/core/threads.h) for functions that may throw.
#pragma once

#include <exception>
#include <mutex>

#include "src/core/threads.h"

namespace owt {

// Runs parallel_for(). When all threads are done, throws one of the exceptions of the function.
template <class Function>
void parallel_for_or_throw(int64_t items, int64_t grain, const Function& function) {
  std::mutex mutex;
  std::exception_ptr error;
  parallel_for(items, grain, [&](int64_t begin, int64_t end) {
    try {
      function(begin, end);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace owt
