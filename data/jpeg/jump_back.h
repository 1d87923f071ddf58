// Errors of libjpeg and libpng. They are C libraries, so exceptions must not pass through them. They report an error
// through a function that must not return; it jumps back to guarded().
#pragma once

#include <csetjmp>
#include <cstdio>

namespace owt {

struct JumpBack {
  std::jmp_buf place;
  char reason[256];

  // Jumps to the latest guarded() of this thread, which must still be active.
  [[noreturn]] void jump(const char* why) {
    if (why != reason) std::snprintf(reason, sizeof reason, "%s", why);
    std::longjmp(place, 1);
  }
};

// Runs step(). False if the library gave up; back.reason says why. No object with a destructor may live between this
// call and the library's calls, so step() stores its results outside itself.
template <class Step>
bool guarded(JumpBack& back, Step step) {
  if (setjmp(back.place) != 0) return false;
  step();
  return true;
}

}  // namespace owt
