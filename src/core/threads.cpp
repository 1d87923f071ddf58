#include "src/core/threads.h"

#include <sched.h>

#include <cmath>
#include <cstdlib>

#include "src/system/check.h"
#include "src/system/host_limits.h"
#include "src/system/joined_threads.h"
#include "src/system/log.h"

namespace owt {

int hardware_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : omp_get_num_procs();
  static const double quota = std::min(quota_of_cores(), 1e6);
  return std::max(1, std::min(allowed, static_cast<int>(std::ceil(quota))));
}

int threads_of_environment() {
  const char* const said = std::getenv("OMP_NUM_THREADS");
  return said ? std::clamp(std::atoi(said), 0, 4096) : 0;  // libgomp itself warns if it is not a number
}

int default_threads() {
  const int said = threads_of_environment();
  return said > 0 ? said : hardware_cores();
}

void warn_of_crowd(int threads, const std::string& who) {
  const int cores = hardware_cores();
  if (threads > cores)
    log_warn("{} on {} core{}: they take turns, which is slower than one for each core", who, cores,
             cores == 1 ? "" : "s");
}

void set_team_size(int threads) {
  OWT_CHECK(threads >= 1);
  // oneDNN would wait for threads that a team limited by OMP_THREAD_LIMIT never gets.
  omp_set_num_threads(std::min(threads, omp_get_thread_limit()));
}

void check_teams(int teams, int threads) {
  const int more = teams * (std::min(threads, omp_get_thread_limit()) - 1);
  check_threads(more, "compute thread", "use fewer --threads");
}

void start_team() {
#pragma omp parallel
  {}
}

}  // namespace owt
