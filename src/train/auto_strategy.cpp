#include "src/train/auto_strategy.h"

#include <mutex>
#include <optional>

#include "src/comm/threads.h"
#include "src/parallel/measure_network.h"
#include "src/train/measure_compute.h"
#include "src/train/run.h"

namespace owt {

Choice choose_here(const Settings& settings, int threads) {
  PlanRequest request = settings.plan_request();
  request.on = settings.compute();
  const std::vector<int64_t> rows = rows_to_measure(request);
  std::mutex mutex;
  std::optional<Choice> choice;  // the same on every rank; the first to have it keeps it for this process
  run_ranks(
      request.ranks, threads_per_rank(threads, request.ranks),
      [&](Communicator& comm) {
        const Network network = measure_network(comm, request.on.device);
        const auto compute = measured_compute(measure_compute(settings, comm, rows));
        Choice mine = choose_strategy(settings.model, request, network, *compute);
        const std::lock_guard lock(mutex);
        if (!choice) choice = std::move(mine);
      },
      request.on.device);
  return *choice;
}

}  // namespace owt
