// Errors and checks.
//
// Error carries one line for the user: what was found, what was wanted, and the cure. The program prints it as
// `owt: error: ...` and exits with 1. fail() is for what a user can cause; OWT_CHECK is for what only our own code
// can break, so its message starts with the place in the source.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace owt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The parts, printed one after the other, as one string.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(concat(parts...));
}

// What the calling thread works on, for errors of libraries that do not know it: "conv1, forward". Empty outside
// Working.
std::string working_on();

// Names it for its own lifetime; `what` and `how` must outlive it.
class Working {
 public:
  Working(std::string_view what, std::string_view how);
  ~Working();
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  std::string_view outer_what_, outer_how_;
};

namespace detail {
template <class... Parts>
[[noreturn]] void check_failed(const char* file, int line, const std::string& what, const Parts&... parts) {
  const std::string note = concat(parts...);
  throw Error(concat(file, ":", line, ": ", what, note.empty() ? "" : "; ", note));
}
}  // namespace detail

#define OWT_CHECK(condition, ...)                                                                          \
  do {                                                                                                     \
    if (!(condition))                                                                                      \
      ::owt::detail::check_failed(__FILE__, __LINE__, "not true: " #condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)

#define OWT_CHECK_EQ(found, wanted, ...)                                                                          \
  do {                                                                                                            \
    const auto& owt_found = (found);                                                                              \
    const auto& owt_wanted = (wanted);                                                                            \
    if (!(owt_found == owt_wanted))                                                                               \
      ::owt::detail::check_failed(__FILE__, __LINE__,                                                             \
                                  ::owt::concat(#found " is ", owt_found, ", wanted ", owt_wanted) __VA_OPT__(, ) \
                                      __VA_ARGS__);                                                               \
  } while (false)

}  // namespace owt
