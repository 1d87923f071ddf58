#include "src/core/threads.h"

#include <sched.h>

#include <cmath>
#include <fstream>

#include "src/core/check.h"

namespace owt {

namespace {

// What a container may use, in cores, where a quota is set; else a large number.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 1 << 20;  // "max 100000"
  return static_cast<int>(std::ceil(quota / period));
}

}  // namespace

int hardware_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : omp_get_num_procs();
  return std::max(1, std::min(allowed, quota_cores()));
}

void set_team_size(int threads) {
  OWT_CHECK(threads >= 1);
  // oneDNN would wait for the threads that a team cut short by OMP_THREAD_LIMIT never gets.
  omp_set_num_threads(std::min(threads, omp_get_thread_limit()));
}

}  // namespace owt
