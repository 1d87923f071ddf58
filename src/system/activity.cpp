#include "src/system/activity.h"

#include <atomic>

namespace owt {
namespace {

std::atomic<uint64_t> works{0};
std::atomic<WaitsFor> waits{WaitsFor::kNothing};
thread_local bool is_the_rank = false;

}  // namespace

void note_work() { works.fetch_add(1, std::memory_order_relaxed); }
Activity activity() { return {works.load(), waits.load()}; }
void this_thread_is_the_rank() { is_the_rank = true; }
bool is_this_thread_the_rank() { return is_the_rank; }

Waits::Waits(WaitsFor what) : outer_(waits.load()) {
  if (is_the_rank) waits.store(what);
}

Waits::~Waits() {
  if (is_the_rank) waits.store(outer_);
}

}  // namespace owt
