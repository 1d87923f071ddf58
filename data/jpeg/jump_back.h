// Errors of libjpeg and libpng, which are C and may not be unwound by an exception: they report them through a function
// that must not return, and jump from there back to guarded().
#pragma once

#include <csetjmp>
#include <cstdio>

namespace owt {

struct JumpBack {
  std::jmp_buf place;
  char reason[256];

  // To the latest guarded() of this thread, which must still run.
  [[noreturn]] void jump(const char* why) {
    if (why != reason) std::snprintf(reason, sizeof reason, "%s", why);
    std::longjmp(place, 1);
  }
};

// False where the library gave up; back.reason says why. Nothing with a destructor may live between this and the
// library's calls, so step() keeps what it makes outside itself.
template <class Step>
bool guarded(JumpBack& back, Step step) {
  if (setjmp(back.place) != 0) return false;
  step();
  return true;
}

}  // namespace owt
