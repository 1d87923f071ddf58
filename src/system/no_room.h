// Writes that fail because the disk is full. They may succeed later.
#pragma once

#include <exception>
#include <string>

#include "src/system/check.h"

namespace owt {

// Thrown by files.h if the disk, a quota or the limit on file sizes has no room for a write.
class NoRoom : public Error {
 public:
  using Error::Error;
};

// Whether an error code of the system means that there is no room.
bool says_no_room(int error);
// Throws NoRoom or Error. error: a code of the system; hint: what to do about it, "; ...".
[[noreturn]] void fail_to_write(const std::string& path, int error, const std::string& hint = "");

// Work in parts: after a part that had no room the others are skipped. The exception is thrown only by rethrow().
class FirstNoRoom {
 public:
  template <class Work>
  void unless_full(const Work& work) {
    if (first_) return;
    try {
      work();
    } catch (const NoRoom&) {
      first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace owt
