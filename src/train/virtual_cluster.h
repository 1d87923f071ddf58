// The workers, servers and links of a virtual run (virtual_run.h), and what a recipe means to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/parallel/compute_model.h"
#include "src/parallel/consistency.h"
#include "src/parallel/network.h"
#include "src/parallel/plan.h"
#include "src/parallel/push_filters.h"
#include "src/train/settings.h"

namespace owt {

constexpr int kAnyWorker = -1;

// Computes so many times as long: a worker in all its tasks, or any worker in this share of them, which are drawn.
struct Straggler {
  int worker = kAnyWorker;
  double share = 1;   // [0, 1]
  double factor = 1;  // > 0
};

// A step of workers that keep in step by themselves, as the planner sees it; under local SGD the mean of several.
struct PlannedStep {
  std::string strategy{};
  double compute_s = 0, exposed_s = 0;  // updates included; waiting for transfers
  int64_t bytes = 0;                    // sent by all workers
};

enum class BlockOrder { kNone, kGiven, kRandom };

constexpr int kOnWorkers = 0;

struct VirtualCluster {
  bool times_only = false;               // nothing is learnt: no gradients, and no data
  std::optional<PlannedStep> planned{};  // without servers; of what follows only link and stragglers count
  ConsistencyRules rules{};
  double rules_from = 0;  // epochs; before that it is synchronous
  // Every push counts as a batch by itself: the rate is as many times as high as there are workers.
  bool full_rate = false;
  bool rate_by_staleness = false;          // a gradient counts 1 / max(1, staleness)
  int64_t pull_every = 1, push_every = 1;  // tasks; not with updates by task
  // A block is a layer that learns. Given: front to back, over and over; random: each time in another order.
  BlockOrder blocks = BlockOrder::kNone;
  double rate_by_delay = 0;  // the rate is divided by 1 + this * delay
  FilterSettings filters{};
  int servers = 1;          // kOnWorkers: every worker serves a share of the weights, through its own link
  Link link{50e-6, 125e6};  // of each worker and each server, each way
  // Seconds of a worker's processor for each byte that it sends or receives, as a server too. A slow one takes longer.
  double message_work = 0;
  std::vector<Straggler> stragglers{};
};

constexpr int64_t kTimedSteps = 1000;  // where only times are wanted, and no number of steps is given

// The settings of workers that each compute gradients of whole rows. Convolutions are computed directly unless the
// recipe names an algorithm: what is measured may be another one next time. Throws Error for what does not go with a
// parameter server: rules over all gradients of a step, and the like. strategy: empty for a parameter server.
Settings settings_of_virtual_workers(Settings settings, const VirtualCluster& cluster, const std::string& strategy);
Plan plan_of_virtual_workers(const Settings& settings);
// On as many hosts as there are workers. Throws Error for strategies that cannot run the model, and for what learns
// otherwise than dp.
PlannedStep planned_step(const Settings& settings, const std::string& strategy, const Link& link,
                         const ComputeModel& compute);

}  // namespace owt
