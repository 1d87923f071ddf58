// What the rank of this process is doing, for those who watch it from other threads (comm/watch.h): signs of work, and
// what it waits for.
#pragma once

#include <cstdint>

namespace owt {

enum class WaitsFor : int {
  kNothing,  // it works, as far as anybody can tell
  kOthers,   // a collective
  kData,     // the images of the next step, or the bytes of a file
  kDevice,   // a GPU, which may itself be waiting in a collective
};

// A sign of work: a layer begins, a row was read, a message has arrived, a block is written. By any thread; costs next
// to nothing.
void note_work();

struct Activity {
  uint64_t works = 0;  // signs so far
  WaitsFor waits_for = WaitsFor::kNothing;
  bool operator==(const Activity&) const = default;
};
Activity activity();

// The calling thread does the work of the rank from now on; what others wait for is no news.
void this_thread_is_the_rank();
bool is_this_thread_the_rank();

// Says what the calling thread waits for, for its own lifetime.
class Waits {
 public:
  explicit Waits(WaitsFor what);
  ~Waits();
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

 private:
  WaitsFor outer_;
};

}  // namespace owt
