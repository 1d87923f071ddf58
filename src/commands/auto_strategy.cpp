#include "src/commands/auto_strategy.h"

#include <sstream>

#include "src/comm/processes.h"
#include "src/commands/measure_compute.h"
#include "src/predict/choose.h"
#include "src/predict/measure_network.h"
#include "src/system/log.h"
#include "src/train/memory_check.h"

namespace owt {
namespace {

// Relative to the mean of the ranks' times, which measure_compute() returns.
std::vector<double> in_units_of_the_mean(std::vector<double> speeds) {
  double seconds = 0;
  for (const double speed : speeds) seconds += 1 / speed;
  for (double& speed : speeds) speed *= seconds / static_cast<double>(speeds.size());
  return speeds;
}

Choice choose_here(const Settings& settings, const Session& session, std::optional<Network>& links) {
  PlanRequest request = settings.plan_request();
  request.on = settings.compute();
  request.speeds = in_units_of_the_mean(request.speeds);
  const std::vector<int64_t> rows = rows_to_measure(request);
  Choice choice;
  session.run(request.ranks, [&](Communicator& comm) {
    const Network network = measure_network(comm, request.on.device);
    const ComputeSamples samples = measure_compute(settings, comm, rows);
    if (comm.rank() != 0) return;
    choice = choose_strategy(settings.model, request, network, *measured_compute(samples));
    links = network;
  });
  return choice;
}

}  // namespace

std::optional<Network> settle_strategy(Settings& settings, const Session& session) {
  std::optional<Network> links;
  if (!settings.parallel.automatic) return links;
  settings.parallel.automatic = false;
  if (settings.parallel.workers > 1) {
    check_memory_of_whole_networks(settings);
    log_info("strategy auto: timing layers and collectives");
    const Choice choice = choose_here(settings, session, links);
    std::istringstream chosen(from_rank_0([&] {
      log_info("strategy auto: {}", choice.reason());
      const PlanRequest& request = choice.chosen().request;
      return concat(name_of(request.strategy), ' ', request.model_ranks);
    }));
    std::string name;
    chosen >> name >> settings.parallel.model_ranks;
    settings.parallel.strategy = strategy_from(name);
  }
  settings.recipe.set("parallel.strategy", name_of(settings.parallel.strategy));
  settings.recipe.set("parallel.model_ranks", std::to_string(settings.parallel.model_ranks));
  return links;
}

}  // namespace owt
