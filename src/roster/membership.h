// This process as a worker of a run with a roster (roster.h): from which it gets its rank in each world.
#pragma once

#include <optional>
#include <string>

#include "src/roster/run_address.h"

namespace owt {

// Whether this process was started for such a run: the environment variable OWT_ROSTER is HOST:PORT of the roster.
bool has_roster();

// Comes to the roster, and returns in the first world: launch() then says which ranks it has. Throws Error if the
// roster cannot be reached or has no room, or if the other workers do not come.
void come_to_roster();

// The world that this process is in.
struct RunWorld {
  int number = 0;      // 0: the first of the run
  int least = 1;       // workers that every world has
  std::string change;  // from the world before, for people; empty in the first
};
const RunWorld& run_world();
RunAddress run_address();  // for ask_roster()

// Whether the roster wants all workers to leave this world after their current step. If it wants this worker to leave
// the run, leave_requested() (src/comm/signals.h) is true from then on. Never blocks; for the rank's thread.
bool roster_calls();

// Whether the roster can no longer be reached, or has ended the run.
bool roster_is_gone();

// Reports to the roster that the run has ended well here.
void finish_run();

// Why this process leaves its world, after leave_processes() (src/comm/processes.h).
struct WorldEnd {
  std::string why;          // empty: a change in order
  std::optional<int> lost;  // the rank that was lost
  bool leaves = false;      // this worker leaves the run
  bool did_steps = false;
};
// Returns in the next world; false: this worker has left the run. Throws Error if the run has ended, or has given up
// this worker.
bool next_world(const WorldEnd& end);

}  // namespace owt
