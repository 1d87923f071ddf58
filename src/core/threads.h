// Work shared among the threads of one rank. Each rank is a host thread with its own team of OpenMP threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>

#include "src/core/shape.h"

namespace owt {

// Cores that this process may use, limited by its affinity and by the quotas of control groups.
int hardware_cores();
// Threads of one process if the user sets no number: $OMP_NUM_THREADS, the first number if it is a list, or 0.
int threads_of_environment();
// threads_of_environment(), or one thread per core if that is 0.
int default_threads();
// Warns if there are more threads than cores; `who`: "100 compute threads".
void warn_of_crowd(int threads, const std::string& who);
inline int team_size() { return omp_get_max_threads(); }
void set_team_size(int threads);  // for the calling host thread; >= 1; limited by OMP_THREAD_LIMIT
// Throws Error if the threads of `teams` teams cannot be started; each team's host thread exists already. libgomp would
// end the process with its own message.
void check_teams(int teams, int threads);
void start_team();  // starts the team of the calling host thread, which otherwise starts with its first work

// Calls function(begin, end) over [0, items) in equal contiguous parts, one per thread, and fewer if a part would be
// smaller than `grain` items. The parts depend on the team size only. The function must not throw.
template <class Function>
void parallel_for(int64_t items, int64_t grain, const Function& function) {
  const int parts = static_cast<int>(std::clamp<int64_t>(items / std::max<int64_t>(grain, 1), 1, team_size()));
  if (parts == 1) {
    if (items > 0) function(int64_t{0}, items);
    return;
  }
  // Always the whole team: libgomp ends threads when a team shrinks, and starts new ones when it grows.
#pragma omp parallel
  {
    for (int p = omp_get_thread_num(); p < parts; p += omp_get_num_threads()) {
      const Slice part = split(items, parts, p);
      function(part.begin, part.end);
    }
  }
}

// Calls function(item, thread) for every item in [0, items). The threads of the team do so at the same time. For the
// functions that they call, each is the only thread of a team. The function must not throw.
template <class Function>
void for_each_alone(int64_t items, const Function& function) {
#pragma omp parallel
  {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    omp_set_num_threads(1);
#pragma omp parallel num_threads(1)
    for (int64_t item = thread; item < items; item += threads) function(item, thread);
  }
}

}  // namespace owt
