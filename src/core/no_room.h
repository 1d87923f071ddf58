// Writes that fail for lack of room, which may be there later.
#pragma once

#include <exception>
#include <string>

#include "src/core/check.h"

namespace owt {

// What files.h throws where the disk, a quota or the limit of file sizes has no room for a write.
class NoRoom : public Error {
 public:
  using Error::Error;
};

// Whether an error of the system says that.
bool says_no_room(int error);
// Throws NoRoom or Error. error: of the system; hint: what to do about it, "; ...".
[[noreturn]] void fail_to_write(const std::string& path, int error, const std::string& hint = "");

// Work in parts: after a part that had no room the others are skipped, without an exception before rethrow().
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
