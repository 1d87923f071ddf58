#include "src/report/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/predict/step_price.h"
#include "src/system/check.h"
#include "src/system/log.h"
#include "tests/support/alike_steps.h"
#include "tests/support/fixed_compute.h"
#include "tests/support/models.h"

namespace owt::what_if_test {
namespace {

using ::testing::HasSubstr;

const char* const kLayers = R"(
  { name = "conv1", type = "conv", out = 4, kernel = 3 },
  { name = "conv2", type = "conv", out = 4, kernel = 3 },
  { name = "fc1", type = "dense", out = 12 },
  { name = "fc2", type = "dense", out = 12 },
  { name = "fc3", type = "dense", out = 8 })";

Plan plan_of(PlanRequest request) {
  request.step_rows = 8 * request.ranks;
  request.bucket_bytes = 1;
  return make_plan(model_of("[3, 8, 8]", 8, kLayers), request);
}
Plan plan_of(Strategy strategy, int ranks) { return plan_of({.ranks = ranks, .strategy = strategy}); }

// Times of a machine with known speeds; slowness: a factor for each rank.
class Known : public ActionTimes {
 public:
  Known(const Plan& plan, double bytes_per_s, std::vector<double> slowness)
      : plan_(plan), slowness_(std::move(slowness)) {
    network_.ranks_per_host = plan.ranks();
    network_.local = {0, bytes_per_s};
    prices_ = predicted_times(plan, network_, compute_);
  }

  double compute(int rank, const Action& action) const override {
    if (action.moves_bytes()) return own_s(rank, action);
    double seconds = action.layers.size() == 0 ? prices_->compute(rank, action) : 0;
    for (int64_t i = action.layers.begin; i < action.layers.end; ++i) seconds += of_layer(rank, action, i);
    return seconds * slowness_[static_cast<size_t>(rank)] + host_s;
  }
  // The sender copies a message.
  double own_s(int rank, const Action& action) const {
    const Transfer& transfer = plan_.transfer(action.transfer);
    const bool copies = transfer.is_between_places() && transfer.sender == plan_.place_of(rank);
    return copies && action.kind == Action::Kind::kStart ? copy_s : 0;
  }
  double of_layer(int rank, Action action, int64_t layer) const {
    action.layers = {layer, layer + 1};
    return prices_->compute(rank, action) * (plan_.layer(layer).name == faster ? factor : 1);
  }
  double transfer(int rank, const Action& start) const override {
    return prices_->transfer(rank, start) * (plan_.transfer(start.transfer).name == faster ? factor : 1);
  }
  double slowness(int rank) const { return slowness_[static_cast<size_t>(rank)]; }

  std::string faster;  // a layer or transfer that takes this part of its time
  double factor = 1;
  double host_s = 0, copy_s = 0;  // between actions, for each; to copy a message

 private:
  const Plan& plan_;
  FixedCompute compute_{{{1, 2, 0.5}, {2, 3, 0.5}, {3, 4, 1}, {2, 2, 1}, {1, 2, 1}}, 0.25};
  Network network_;
  std::vector<double> slowness_;
  std::unique_ptr<ActionTimes> prices_;
};

StepWalk walked(const Plan& plan, const Known& known, StepKind kind) {
  WalkedStep step{.ranks = {}, .kind = kind};
  for (int rank = 0; rank < plan.ranks(); ++rank) step.ranks.push_back(rank);
  return walk(plan, step, known);
}

double walked_ms(const Plan& plan, const Known& known) {
  double ms = 0;
  for (const KindOfStep& of : kinds_of_steps(plan))
    if (of.part > 0) ms += 1e3 * of.part * walked(plan, known, of.kind).end_s();
  return ms;
}

using Rows = std::map<std::pair<std::string, Phase>, RowTimes>;  // the rows of a rank

// Adds the profiler records of one kind of step. part: its share in all steps.
void add_step(const Plan& plan, const Known& known, const StepWalk& step, double part, std::vector<Rows>& rows) {
  for (const TimedAction& at : step.times) {
    const auto add = [&](const std::string& name, Phase phase, double ms, double transfer_ms) {
      RowTimes& row = rows[static_cast<size_t>(at.place)][{name, phase}];
      row.name = name, row.phase = phase, row.ms += part * ms, row.transfer_ms += part * transfer_ms;
    };
    const double ms = 1e3 * (at.end_s - at.begin_s - (at.action.moves_bytes() ? 0 : known.host_s));
    const auto of_layers = [&](Phase phase) {
      for (int64_t i = at.action.layers.begin; i < at.action.layers.end; ++i)
        add(plan.layer(i).name, phase, 1e3 * known.of_layer(at.place, at.action, i) * known.slowness(at.place), 0);
    };
    switch (at.action.kind) {
      case Action::Kind::kStart:
        add(plan.transfer(at.action.transfer).name, Phase::kTransfer, 0, ms);
        break;
      case Action::Kind::kWait:
        add(plan.transfer(at.action.transfer).name, Phase::kTransfer, ms, 0);
        break;
      case Action::Kind::kForward:
        of_layers(Phase::kForward);
        break;
      case Action::Kind::kUpdate:
        plan.shares_update() ? add("weights", Phase::kUpdate, ms, 0) : of_layers(Phase::kUpdate);
        break;
      case Action::Kind::kLoss:
        add("loss", Phase::kLoss, ms, 0);
        break;
      default:
        at.action.is_of_weights() ? add("weights", Phase::kUpdate, ms, 0) : of_layers(Phase::kBackward);
    }
  }
}

void add_copies(const Plan& plan, const Known& known, const KindOfStep& of, std::vector<Rows>& rows) {
  for (int rank = 0; rank < plan.ranks(); ++rank)
    for (const Action& action : training(plan, plan.request.step_rows, of.kind, plan.place_of(rank))) {
      if (!action.moves_bytes() || known.own_s(rank, action) == 0) continue;
      RowTimes& row = rows[static_cast<size_t>(rank)].at({plan.transfer(action.transfer).name, Phase::kTransfer});
      for (double* const ms : {&row.ms, &row.transfer_ms, &row.own_ms})
        *ms += 1e3 * of.part * known.own_s(rank, action);
    }
}

std::vector<RankTimes> measured(const Plan& plan, const Known& known) {
  std::vector<RankTimes> ranks(static_cast<size_t>(plan.ranks()));
  std::vector<Rows> rows(ranks.size());
  for (const KindOfStep& of : kinds_of_steps(plan)) {
    if (of.part == 0) continue;
    const StepWalk step = walked(plan, known, of.kind);
    add_step(plan, known, step, of.part, rows);
    add_copies(plan, known, of, rows);
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r].step_ms += 1e3 * of.part * step.ranks[r].end_s;
  }
  for (size_t r = 0; r < ranks.size(); ++r)
    for (auto& [key, row] : rows[r]) {
      // One that receives a message sees it take as long as its sender does.
      if (key.second == Phase::kTransfer && row.transfer_ms == 0)
        for (const Rows& other : rows)
          if (const auto same = other.find(key); same != other.end())
            row.transfer_ms = std::max(row.transfer_ms, same->second.transfer_ms);
      ranks[r].rows.push_back(row);
    }
  return ranks;
}

const WhatIf& named(const WhatIfs& all, const std::string& what) {
  for (const WhatIf& each : all.all)
    if (each.what == what) return each;
  ADD_FAILURE() << "no " << what;
  return all.all.front();
}

void expect_near(double value, double wanted, const std::string& what, double tolerance = 1e-6) {
  EXPECT_NEAR(value, wanted, tolerance * wanted) << what;
}

const Strategy kStrategies[] = {
    Strategy::kDataParallel, Strategy::kDataParallelZero,  Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC,
    Strategy::kOwtD,         Strategy::kModelParallelDense};

// Every strategy, also on a grid, in micro-batches and with averaged weights, as far as possible.
std::vector<Plan> all_plans() {
  std::vector<Plan> all;
  for (const Strategy strategy : all_strategies())
    for (const auto& [ranks, model_ranks] : {std::pair(2, 0), std::pair(4, 0), std::pair(4, 2)})
      for (const auto& [slices, average_every] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 4)}) {
        if (model_ranks > 0 && !facts_of(strategy).splits()) continue;
        PlanRequest request{.ranks = ranks, .strategy = strategy, .model_ranks = model_ranks};
        request.slices = slices, request.average_every = average_every;
        try {
          all.push_back(plan_of(request));
        } catch (const Error&) {
        }
      }
  return all;
}

// Tolerates differences if not all ranks have equal rows of a micro-batch, and if shards are updated: then all updates
// are one row, and updates of buckets differ only in their bytes.
double tolerance(const Plan& plan) {
  if (plan.shares_update()) return 0.12;
  return plan.request.slices > 1 && plan.replicas() > 1 ? 0.04 : 1e-6;
}

TEST(WhatIf, AStepWhoseTimesAreKnownIsWalkedInItsTime) {
  const std::vector<Plan> plans = all_plans();
  EXPECT_GE(plans.size(), 50u);
  for (const Plan& plan : plans)
    for (const double bytes_per_s : {20.0, 200.0, 5000.0})
      for (const auto& [slowness, host_s] : {std::pair(1.0, 0.0), std::pair(2.0, 0.0), std::pair(1.0, 0.3)}) {
        const PlanRequest& of = plan.request;
        std::vector<double> of_ranks(static_cast<size_t>(plan.ranks()), 1);
        of_ranks.front() = slowness;
        Known known(plan, bytes_per_s, of_ranks);
        known.host_s = known.copy_s = host_s;
        const std::string what = format(
            "{}, {} ranks in groups of {}, {} slices, averages every {}, {} bytes/s, {} times as slow, {} s of the "
            "host",
            name_of(of.strategy), of.ranks, plan.model_ranks, of.slices, of.average_every, bytes_per_s, slowness,
            host_s);
        expect_near(walk_measured(plan, measured(plan, known)).ms, walked_ms(plan, known), what, tolerance(plan));
      }
}

TEST(WhatIf, WhatIsTwiceAsFastOrTakesNothingIsPredictedAsIfItWere) {
  for (const Strategy strategy : kStrategies)
    for (const double bytes_per_s : {20.0, 5000.0}) {
      const Plan plan = plan_of(strategy, 3);
      Known known(plan, bytes_per_s, {1, 1.25, 1});
      const WhatIfs all = what_if(plan, alike_steps(measured(plan, known)));
      std::vector<std::string> names = {"conv2", "fc1"};
      for (const Transfer& transfer : plan.transfers) names.push_back(transfer.name);
      for (const std::string& name : names) {
        known.faster = name;
        const bool layer = name == "conv2" || name == "fc1";
        const WhatIf& one = named(all, layer ? name : "`" + name + "`");
        if (layer && plan.shares_update()) continue;  // updates of all layers are one row
        const std::string what = format("{} of {} at {} bytes/s", name, name_of(strategy), bytes_per_s);
        known.factor = 0.5;
        expect_near(one.half_ms, walked_ms(plan, known), what + ", half", tolerance(plan));
        known.factor = 0;
        expect_near(one.free_ms, walked_ms(plan, known), what + ", free", tolerance(plan));
      }
    }
}

TEST(WhatIf, TheCriticalPathHasNoGapsAndIsAsLongAsTheStep) {
  for (const Strategy strategy : kStrategies) {
    const Plan plan = plan_of(strategy, 3);
    const MeasuredWalk step = walk_measured(plan, measured(plan, Known(plan, 100, {1, 1, 1.5})));
    double at = 0;
    for (const PathPart& part : step.path) {
      EXPECT_NEAR(part.begin_ms, at, 1e-6 * step.ms) << part.row;
      at = part.end_ms;
    }
    EXPECT_NEAR(at, step.ms, 1e-6 * step.ms);
  }
}

// The largest saving comes first; a slow rank is one that could be as fast as the others.
TEST(WhatIf, ASlowRankAndATightLinkComeFirst) {
  const Plan plan = plan_of(Strategy::kDataParallel, 3);
  const WhatIfs of_rank = what_if(plan, alike_steps(measured(plan, Known(plan, 1e9, {1, 4, 1}))));
  const WhatIf& rank = named(of_rank, "rank 1 as the others");
  expect_near(rank.free_ms, walked_ms(plan, Known(plan, 1e9, {1, 1, 1})), "as fast as the others");
  const WhatIfs of_link = what_if(plan, alike_steps(measured(plan, Known(plan, 5, {1, 1, 1}))));
  EXPECT_THAT(of_link.all.front().what, "all transfers");
  EXPECT_EQ(of_link.all[1].what, "`gradients`");
  EXPECT_GT(of_link.all[1].path_ms, 0.5 * of_link.walked_ms);
  EXPECT_THAT(of_link.table(), HasSubstr("\nall transfers  "));
}

// On the CPU threads wait in each collective: a rank that arrives early measures a longer time.
TEST(WhatIf, CollectivesThatBlockAreWaitedForAtOnce) {
  const Plan plan = plan_of(Strategy::kDataParallel, 2);
  const auto rank = [](double conv, double gradients) {
    return RankTimes{.rows = {{"conv1", Phase::kBackward, conv},
                              {"gradients", Phase::kTransfer, gradients + 1, gradients, 100},
                              {"data wait", Phase::kData, 3}},
                     .step_ms = conv + gradients + 1 + 3 + 2};
  };
  const std::vector<RankTimes> ranks{rank(10, 12), rank(20, 2)};
  const WhatIfs all = what_if(plan, alike_steps(ranks));
  EXPECT_NEAR(all.measured_ms, 28, 1e-9);
  EXPECT_NEAR(all.walked_ms, 28, 1e-9);
  EXPECT_NEAR(named(all, "`gradients`").free_ms, 26, 1e-6);  // the rank's own work on the bytes remains
  EXPECT_NEAR(named(all, "conv1").half_ms, 18, 1e-6);
  EXPECT_NEAR(named(all, "waiting for data").free_ms, 25, 1e-6);
}

}  // namespace
}  // namespace owt::what_if_test
