#include "src/core/threads.h"

#include <sched.h>

#include "src/core/check.h"

namespace owt {

int hardware_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, omp_get_num_procs());
}

void set_team_size(int threads) {
  OWT_CHECK(threads >= 1);
  omp_set_num_threads(threads);
}

}  // namespace owt
