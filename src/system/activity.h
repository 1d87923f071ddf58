// Activity of this process's rank, for observers on other threads (comm/watch.h): signs of work, and what the rank
// waits for.
#pragma once

#include <cstdint>

namespace owt {

enum class WaitsFor : int {
  kNothing,  // it works, as far as is known
  kOthers,   // a collective
  kData,     // the images of the next step, or the bytes of a file
  kDevice,   // a GPU, which may itself be waiting in a collective
};

// Records a sign of work: a layer begins, a row was read, a message has arrived, a block is written. Any thread may
// call it; it costs almost nothing.
void note_work();

struct Activity {
  uint64_t works = 0;  // signs of work since the process started
  WaitsFor waits_for = WaitsFor::kNothing;
  bool operator==(const Activity&) const = default;
};
Activity activity();

// Makes the calling thread the one that does the work of the rank. Waits of other threads are ignored from then on.
void this_thread_is_the_rank();
bool is_this_thread_the_rank();

// For its own lifetime, records what the calling thread waits for.
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
