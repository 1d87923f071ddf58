// The workers, servers and links of a simulated run (virtual_run.h), and how they use a recipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/plan/consistency.h"
#include "src/plan/filter_settings.h"
#include "src/plan/plan.h"
#include "src/predict/compute_model.h"
#include "src/predict/network.h"
#include "src/recipe/settings.h"

namespace owt {

constexpr int kAnyWorker = -1;

// A straggler: its computation takes `factor` times as long, in all tasks of a worker, or in randomly drawn tasks.
struct Straggler {
  int worker = kAnyWorker;
  double share = 1;   // fraction of tasks, [0, 1]
  double factor = 1;  // > 0
};

// A step of a strategy without servers, as the planner predicts it; under local SGD the mean over kinds of step.
struct PlannedStep {
  std::string strategy{};
  double compute_s = 0, exposed_s = 0;  // compute_s includes updates; exposed_s is waiting for transfers
  int64_t bytes = 0;                    // sent by all workers
};

enum class BlockOrder { kNone, kGiven, kRandom };

constexpr int kOnWorkers = 0;

struct VirtualCluster {
  bool times_only = false;  // no training: no gradients and no data
  // a strategy without servers, which uses only link and stragglers of the fields below
  std::optional<PlannedStep> planned{};
  ConsistencyRules rules{};
  double rules_from = 0;  // in epochs; synchronous before that
  // Every push counts as a batch of its own: the rate is multiplied by the number of workers.
  bool full_rate = false;
  bool rate_by_staleness = false;          // a gradient is multiplied by 1 / max(1, staleness)
  int64_t pull_every = 1, push_every = 1;  // in tasks; not with updates by task
  // A block is a learning layer. kGiven: from front to back, repeatedly. kRandom: in a new random order each time.
  BlockOrder blocks = BlockOrder::kNone;
  double rate_by_delay = 0;  // the rate is divided by 1 + rate_by_delay * delay
  FilterSettings filters{};
  int servers = 1;          // kOnWorkers: every worker serves a share of the weights through its own link
  Link link{50e-6, 125e6};  // the link of each worker and each server, in each direction
  // Processor seconds of a worker per byte that it sends or receives, also as a server. Slow workers take longer.
  double message_work = 0;
  std::vector<Straggler> stragglers{};
};

constexpr int64_t kTimedSteps = 1000;  // the default number of steps with times_only

// The settings of workers that each compute gradients of whole rows. Convolutions use a fixed algorithm unless the
// recipe names one, since a measured choice may differ next time. Throws Error for settings that do not work with a
// parameter server, e.g. rules that need all gradients of a step. strategy: empty for a parameter server.
Settings settings_of_virtual_workers(Settings settings, const VirtualCluster& cluster, const std::string& strategy);
Plan plan_of_virtual_workers(const Settings& settings);
// Predicts a step with one host per worker. Throws Error if the strategy cannot run the model, or trains differently
// from dp.
PlannedStep planned_step(const Settings& settings, const std::string& strategy, const Link& link,
                         const ComputeModel& compute);

}  // namespace owt
