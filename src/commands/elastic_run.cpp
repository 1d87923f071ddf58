#include "src/commands/elastic_run.h"

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/comm/signals.h"
#include "src/roster/membership.h"
#include "src/system/log.h"

namespace owt {

TrainOutcome train_through_changes(const std::function<TrainOutcome(RunMemory*)>& train) {
  if (!has_roster()) return train(nullptr);
  catch_leave_signal();
  RunMemory memory;
  while (true) {
    WorldEnd end;
    memory.did_steps = false;
    try {
      TrainOutcome outcome = train(&memory);
      if (outcome.finished && launch().rank == 0) finish_run();
      if (!outcome.workers_change) return outcome;
      leave_processes(/*in_order=*/true);
      end.leaves = memory.leaves;
    } catch (const std::exception& e) {
      if (!is_loss(e)) throw;
      end.why = e.what();
      end.lost = lost_rank();
      leave_processes(/*in_order=*/false);
    }
    end.did_steps = memory.did_steps;
    if (!next_world(end)) return TrainOutcome{.left = true};
    log_quiet(launch().rank != 0);
  }
}

}  // namespace owt
