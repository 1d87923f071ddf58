// Work shared among the threads of one rank. Each rank is a host thread with its own team of OpenMP threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>

#include "src/core/shape.h"

namespace owt {

// Cores that this process may run on: those of its affinity, and no more than control groups give it the time of.
int hardware_cores();
// Threads for the work of one process where the user names no number: $OMP_NUM_THREADS, of a list the first, else 0.
int threads_of_environment();
// Those, or one for each core.
int default_threads();
// A warning where threads are more than cores; `who`: "100 compute threads".
void warn_of_crowd(int threads, const std::string& who);
inline int team_size() { return omp_get_max_threads(); }
void set_team_size(int threads);  // for the calling host thread, >= 1; OMP_THREAD_LIMIT at most
// Throws Error where the threads of so many teams, of which each has a host thread already, cannot be started. libgomp
// would end the process in its own words.
void check_teams(int teams, int threads);
void start_team();  // starts the threads of the calling host thread's team, which otherwise its first work does

// function(begin, end) over [0, items) in equal contiguous parts, one per thread; fewer parts when one would be smaller
// than `grain` items. The parts depend on the team size only. The function must not throw.
template <class Function>
void parallel_for(int64_t items, int64_t grain, const Function& function) {
  const int parts = static_cast<int>(std::clamp<int64_t>(items / std::max<int64_t>(grain, 1), 1, team_size()));
  if (parts == 1) {
    if (items > 0) function(int64_t{0}, items);
    return;
  }
  // Always the whole team: libgomp ends threads when a team shrinks, and starts them anew when it grows.
#pragma omp parallel
  {
    for (int p = omp_get_thread_num(); p < parts; p += omp_get_num_threads()) {
      const Slice part = split(items, parts, p);
      function(part.begin, part.end);
    }
  }
}

}  // namespace owt
