#include "src/simulate/virtual_cluster.h"

#include <utility>

#include "src/plan/plan_bytes.h"
#include "src/plan/strategy.h"
#include "src/predict/step_price.h"
#include "src/recipe/strategy_settings.h"
#include "src/system/check.h"

namespace owt {

Settings settings_of_virtual_workers(Settings settings, const VirtualCluster& cluster, const std::string& strategy) {
  ParallelSettings& parallel = settings.parallel;
  const auto refuse = [](const std::string& what, const std::string& cure) {
    fail(what, ", which a parameter server cannot provide; ", cure);
  };
  if (settings.optimizer.norm_sums() > 0)
    refuse("lars and optimizer.clip need norms of all gradients of a step", "take another optimizer, without clip");
  if (settings.optimizer.type == OptimizerSettings::Type::kMuon)
    refuse("muon needs the whole gradient of a matrix", "take another optimizer");
  if (settings.ema.on()) refuse("optimizer.ema needs the weights of whole steps", "leave it out");
  if (parallel.average_every > 1 && strategy != "dp")
    refuse("parallel.average_every (local SGD) needs workers that average their weights",
           "leave it out, or simulate it with --strategy dp");
  if (settings.run.canonical)
    fail("owt simulate adds gradients in the order of simulated time; leave run.canonical out");
  if (parallel.bf16_transport) refuse("parallel.wire needs collectives", "leave it out");
  if (parallel.measure_shares) refuse("measured shares need workers that can be timed", "give numbers, --shares 2,1,1");
  const ConsistencyRules& rules = cluster.rules;
  check_filters(cluster.filters, settings.optimizer);
  if (cluster.times_only && (cluster.filters.significant > 0 || cluster.filters.kkt > 0))
    fail("the filters significant and kkt need gradients; leave out --times-only");
  if (cluster.times_only && cluster.rules_from > 0)
    fail("the length of an epoch is unknown without data; give --async-from-epoch or --times-only, not both");
  if (cluster.blocks != BlockOrder::kNone && !rules.by_task())
    fail("an update of a block needs the gradients of all workers; give pushes 0");
  if (cluster.rate_by_delay > 0 && rules.delay == kNoBound)
    fail("a learning rate that depends on the delay needs a bounded delay; give a delay");
  if ((cluster.pull_every > 1 || cluster.push_every > 1) && rules.by_task())
    fail("with fewer pulls or pushes than tasks there are no updates by task; give a delay, or pushes");
  if (rules.delay != kNoBound && rules.delay + 1 < cluster.push_every)
    fail("with a push for every ", cluster.push_every, " tasks a delay of ", rules.delay,
         " would make all workers wait for ever; give ", cluster.push_every - 1, " or more, or inf");
  if (settings.loss.samples()) fail("owt simulate trains with all classes; leave loss.sample out");
  if (!settings.distill.run.empty()) fail("owt simulate trains without a teacher; leave loss.distill out");
  if (settings.compute().device != Device::kCpu) fail("owt simulate computes on the CPU; add --device cpu");
  for (const Straggler& each : cluster.stragglers)
    if (each.worker >= parallel.workers)
      fail("straggler ", each.worker, ": the workers are 0 to ", parallel.workers - 1);
  parallel.strategy = strategy_from("dp");
  parallel.automatic = false;
  parallel.model_ranks = 0;
  settings.recipe.set("parallel.strategy", "dp");
  if (cluster.times_only) {
    if (settings.schedule.max_steps == 0) settings.schedule.max_steps = kTimedSteps;
    settings.schedule.epochs = 0;
  }
  if (settings.run.conv_algorithm == ConvAlgorithm::kAuto) settings.run.conv_algorithm = ConvAlgorithm::kByShape;
  return settings;
}

Plan plan_of_virtual_workers(const Settings& settings) {
  PlanRequest request = settings.plan_request();
  request.on = settings.compute();
  request.keeps_gradients = true;
  request.average_every = 1;  // local SGD is simulated separately
  Plan plan = make_plan(settings.model, request);
  if (plan.ranks() > 1 && most_step_sums(plan) > 0)
    fail(
        "batch norm with rows = \"step\" needs sums over the rows of all workers, which a parameter server cannot "
        "provide; ",
        "set its rows, e.g. to 32");
  return plan;
}

PlannedStep planned_step(const Settings& settings, const std::string& strategy, const Link& link,
                         const ComputeModel& compute) {
  PlanRequest request = settings.plan_request();
  request.strategy = strategy_from(strategy);
  if (request.dense_update == DenseUpdate::kRound)
    fail("parallel.dense_update = \"round\" trains differently from dp, whose losses are used for ", strategy,
         "; set it to \"step\"");
  const Plan plan = make_plan(settings.model, request);
  if (plan.request.dense_update == DenseUpdate::kRound)
    fail("a pipeline without a flush trains differently from dp, whose losses are used for it; set pipeline.schedule ",
         "to \"1f1b\" or \"gpipe\"");
  Network network;
  network.hosts = plan.ranks();
  network.local = network.between = link;
  const Prediction step = price_step(plan, network, compute);
  return {strategy, step.compute_s + step.update_s, step.exposed_s, step.bytes * plan.ranks()};
}

}  // namespace owt
