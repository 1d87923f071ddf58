// The memory that ranks allocate for a step, against the estimate from the list of actions.
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <map>

#include "src/comm/threads.h"
#include "src/core/canonical.h"
#include "src/core/memory.h"
#include "src/parallel/star_update.h"
#include "src/parallel/step.h"
#include "src/plan/order.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/predict/memory_need.h"
#include "src/server/parameter_server.h"
#include "src/train/made_up_batch.h"
#include "tests/support/models.h"
#include "tests/support/strategies.h"
#include "tests/support/using_conv_algorithm.h"

namespace owt::step_memory_test {
namespace {

// Every kind of transfer: fc2 is split by inputs under owt-d, and its relu then begins a stage of layers; few logits
// are gathered, many stay on their ranks. All parts of 2, 3 and 4 ranks are even. No op has memory of its own. tanh2
// does not work in place, because tanh1 reads its output.
const char* const kFewClasses = R"(
  { name = "bn", type = "batch_norm" },
  { name = "relu1", type = "relu" },
  { name = "fc1", type = "dense", out = 24, bias = false },
  { name = "relu2", type = "relu" },
  { name = "tanh1", type = "activation", kind = "tanh" },
  { name = "tanh2", type = "activation", kind = "tanh" },
  { name = "fc2", type = "dense", out = 12, bias = false },
  { name = "relu3", type = "relu" },
  { name = "fc3", type = "dense", out = 12, bias = false })";
const char* const kManyClasses = R"(
  { name = "bn", type = "batch_norm" },
  { name = "fc1", type = "dense", out = 24, bias = false },
  { name = "fc2", type = "dense", out = 96, bias = false })";

// The op of the cosines has scratch memory and norms.
const char* const kCosines = R"(
  { name = "fc1", type = "dense", out = 24, bias = false },
  { name = "cos", type = "cosine", out = 96 })";

// All parts of 2, 3 and 4 ranks are even.
const char* const kThousandClasses = R"(
  { name = "fc1", type = "dense", out = 24, bias = false },
  { name = "fc2", type = "dense", out = 1200, bias = false })";
const char* const kThousandCosines = R"(
  { name = "fc1", type = "dense", out = 24, bias = false },
  { name = "fc2", type = "cosine", out = 1200 })";
bool has_thousand(const char* layers) { return layers == kThousandClasses || layers == kThousandCosines; }

bool knows_labels(Strategy strategy) { return facts_of(strategy).gathers_labels || facts_of(strategy).shares_rows; }

struct Taken {
  int64_t weights = 0,
          batches = 0;  // memory of all ranks for the weights, and for images and activations
};

Taken taken(const Model& model, const Plan& plan, Mode mode) {
  Taken all;
  std::barrier all_here(plan.ranks());
  run_ranks(
      plan.ranks(), 1,
      [&](Communicator& comm) {
        all_here.arrive_and_wait();
        const int64_t before = host_memory().in_use;
        all_here.arrive_and_wait();
        RankModel mine(model, plan, comm.rank());
        Optimizer optimizer({.type = plan.request.optimizer_states > 1 ? OptimizerSettings::Type::kAdamW
                                                                       : OptimizerSettings::Type::kSgd,
                             .learning_rate = 0.01});
        Step step(plan, mine, optimizer, comm, nullptr, {.make_served = make_parameter_server});
        all_here.arrive_and_wait();
        const int64_t with_weights = host_memory().in_use;
        all_here.arrive_and_wait();
        Batch batch = made_up_batch(model, rows_of(plan, plan.request.step_rows).of(comm.rank()), plan.request);
        batch.labels = {};
        step.prepare(plan.request.step_rows, mode);
        all_here.arrive_and_wait();
        if (comm.rank() == 0) all = {with_weights - before, host_memory().in_use - with_weights};
        all_here.arrive_and_wait();
      },
      Device::kCpu);
  return all;
}

// The step of a case: its precision, whether it trains, and how dense layers are split.
struct StepCase {
  Precision precision;
  Mode mode;
  DenseSplit split = DenseSplit::kOfStrategy;
  int ema_every = 0;
  int slices = 1;
  std::vector<std::string> frozen{};
  bool mixed_labels = false;
  int norm_sums = 0;
  LossType loss = LossType::kSoftmax;
  double sample = 1;
  int64_t canonical_rows = 0;
};

// Calls check(need, taken, plan) for every strategy on one to four ranks.
template <class Check>
void for_every_plan(const char* layers, const StepCase& step, int64_t step_rows, const Check& check) {
  const int64_t classes = layers == kFewClasses ? 12 : has_thousand(layers) ? 1200 : 96;
  Model model = model_of("[12, 4, 4]", classes, layers);
  model.frozen = step.frozen;
  for (const Strategy strategy : strategies_without_stages())
    for (int ranks = 1; ranks <= 4; ++ranks) {
      if (step.norm_sums > 0 && !finds_norms(strategy)) continue;
      if (step.sample < 1 && ranks > 1 && !knows_labels(strategy)) continue;
      Compute on{Device::kCpu, step.precision};
      on.canonical_rows = step.canonical_rows;
      const Plan plan =
          make_plan(model, {.ranks = ranks,
                            .strategy = strategy,
                            .step_rows = step_rows,
                            .on = on,
                            .loss = {.mixed_labels = step.mixed_labels, .type = step.loss, .sample = step.sample},
                            .ema_every = step.ema_every,
                            .norm_sums = step.norm_sums,
                            .split = step.split,
                            .slices = step.slices});
      const auto list = step.mode == Mode::kTrain ? training(plan, step_rows) : evaluation(plan, step_rows);
      SCOPED_TRACE(concat(name_of(strategy), " on ", ranks, " of ", model.classes, " classes, ", name_of(step.split),
                          ", ", step.precision, ", frozen ", step.frozen.size(),
                          step.mode == Mode::kTrain ? ", training" : ", evaluation"));
      check(memory_need(plan, list), taken(model, plan, step.mode), plan);
    }
}

// Checks training and evaluation in both precisions of CPUs.
template <class Check>
void for_every_step(int64_t step_rows, const Check& check) {
  for (const std::vector<std::string>& frozen : {std::vector<std::string>{"bn"}, {"fc1"}, {"bn", "fc1"}, {"fc?"}})
    for (const Precision precision : {Precision::kFp32, Precision::kBf16})
      for_every_plan(kFewClasses, {precision, Mode::kTrain, DenseSplit::kOfStrategy, 0, 1, frozen}, step_rows, check);
  for (const char* layers : {kFewClasses, kManyClasses})
    for (const Precision precision : {Precision::kFp32, Precision::kBf16})
      for (const auto& [mode, split] : {std::pair(Mode::kTrain, DenseSplit::kOfStrategy),
                                        {Mode::kTrain, DenseSplit::kRows},
                                        {Mode::kEval, DenseSplit::kOfStrategy}})
        for (const bool mixed_labels : {false, true})
          if (!mixed_labels || split == DenseSplit::kOfStrategy)
            for_every_plan(layers, {precision, mode, split, 0, 1, {}, mixed_labels}, step_rows, check);
}

TEST(StepMemory, IsWhatTheListSaysByteForByte) {
  constexpr int64_t kRows = 48;
  for_every_step(kRows, [](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
    EXPECT_EQ(taken.batches, std::llround(need.step_row_bytes * kRows) * plan.ranks());
  });
}

TEST(StepMemory, OfLogisticUnitsIsWhatTheListSaysByteForByte) {
  constexpr int64_t kRows = 48;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    StepCase step{Precision::kFp32, mode, DenseSplit::kOfStrategy};
    step.loss = LossType::kLogistic;
    for_every_plan(kManyClasses, step, kRows, [](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
      EXPECT_EQ(taken.batches, std::llround(need.step_row_bytes * kRows) * plan.ranks());
    });
  }
}

// The packed values of the rows are allocated with the step, and count as weights. The list says nothing of the values
// of a step, which are on the host and on the device.
TEST(StepMemory, OfSampledClassesIsWhatTheListSaysByteForByte) {
  constexpr int64_t kRows = 48;
  StepCase step{Precision::kFp32, Mode::kTrain};
  step.sample = 0.1;
  for (const char* layers : {kThousandClasses, kThousandCosines})
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      step.precision = precision;
      for_every_plan(layers, step, kRows, [](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
        const int64_t values = 2 * static_cast<int64_t>(sizeof(StepValues)) + 8 * kLossSums;
        const int64_t said = values + need.weight_bytes + std::llround(need.step_row_bytes * kRows);
        EXPECT_EQ(taken.weights + taken.batches, said * plan.ranks());
      });
    }
}

TEST(StepMemory, OfCosinesIsWhatTheListSaysByteForByte) {
  constexpr int64_t kRows = 48;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16})
    for (const Mode mode : {Mode::kTrain, Mode::kEval})
      for_every_plan(kCosines, {precision, mode}, kRows,
                     [](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
                       EXPECT_EQ(taken.batches, std::llround(need.step_row_bytes * kRows) * plan.ranks());
                     });
}

TEST(StepMemory, OfMicroBatchesIsWhatTheListSaysByteForByteAndLess) {
  constexpr int64_t kRows = 48;
  for (const char* layers : {kFewClasses, kManyClasses})
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      std::map<std::pair<int, Strategy>, double> of_fewer;
      for (const int slices : {1, 2, 3, 4})
        for_every_plan(layers, {Precision::kFp32, mode, DenseSplit::kOfStrategy, 0, slices}, kRows,
                       [&](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
                         SCOPED_TRACE(concat(slices, " slices"));
                         EXPECT_EQ(taken.batches, std::llround(need.step_row_bytes * kRows) * plan.ranks());
                         if (kRows / plan.ranks() % slices != 0) return;  // at the boundary both sizes have a place
                         double& fewer = of_fewer[{plan.ranks(), plan.request.strategy}];
                         if (slices > 1) {
                           EXPECT_LT(need.step_row_bytes, fewer);
                         }
                         fewer = need.step_row_bytes;
                       });
    }
}

// Smaller micro-batches use the activation memory of larger ones.
TEST(StepMemory, OfUnevenMicroBatchesIsWhatTheListSaysByteForByte) {
  const Model model = model_of("[12, 4, 4]", 12, kFewClasses);
  for (const Strategy strategy : strategies_without_stages())
    for (const std::vector<double>& shares : {std::vector<double>(), {2, 1, 1, 4}}) {
      SCOPED_TRACE(concat(name_of(strategy), shares.empty() ? "" : ", unequal shares"));
      const Plan plan =
          make_plan(model, {.ranks = 4, .strategy = strategy, .step_rows = 44, .shares = shares, .slices = 3});
      int64_t said = 0;
      for (int rank = 0; rank < 4; ++rank) said += step_bytes(plan, training(plan, 44), rank);
      EXPECT_EQ(taken(model, plan, Mode::kTrain).batches, said);
    }
}

// A worker has 11 rows in micro-batches of 4, 4 and 3, or 12 in micro-batches of 4; only the loss is bound to both
// sizes. Under owt-b rounds have rows of different workers, and the largest may be the last.
TEST(StepMemory, OfUnevenMicroBatchesIsNoMoreThanOfEvenOnesAndDependsOnNoOrder) {
  const Model model = model_of("[12, 4, 4]", 12, kFewClasses);
  const auto bytes = [&](Strategy strategy, int64_t rows, std::vector<double> shares, int slices) {
    return memory_need(make_plan(model, {.ranks = 4,
                                         .strategy = strategy,
                                         .step_rows = rows,
                                         .shares = std::move(shares),
                                         .slices = slices}))
        .bytes(rows);
  };
  EXPECT_LT(bytes(Strategy::kDataParallel, 44, {}, 3), bytes(Strategy::kDataParallel, 48, {}, 3));
  EXPECT_EQ(bytes(Strategy::kOwtB, 50, {1, 1, 1, 2}, 1), bytes(Strategy::kOwtB, 50, {2, 1, 1, 1}, 1));
}

// The estimate is of the rank with the most.
TEST(StepMemory, OfUnevenPartsIsNoMoreThanTheListSays) {
  constexpr int64_t kRows = 13;
  for_every_step(kRows, [](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
    const int64_t said = std::llround(need.step_row_bytes * kRows);
    EXPECT_LE(taken.batches, said * plan.ranks());
    EXPECT_GE(taken.batches, said * plan.ranks() * 3 / 4);
  });
}

// Convolutions also pack their weights, whose size does not depend on the rows.
TEST(StepMemory, OfSplitConvolutionsGrowsWithTheRowsAsTheListSays) {
  const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
  const Model model = model_of("[3, 8, 8]", 12, R"(
  { name = "conv1", type = "conv", out = 12, kernel = 3, bias = false },
  { name = "bn", type = "batch_norm" },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 24, kernel = 3, stride = 2, bias = false },
  { name = "fc1", type = "dense", out = 24, bias = false },
  { name = "fc2", type = "dense", out = 12, bias = false })");
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      SCOPED_TRACE(concat(ranks, mode == Mode::kTrain ? " ranks, training" : " ranks, evaluation"));
      const auto measured_and_said = [&](int64_t rows) {
        const Plan plan = make_plan(model, {.ranks = ranks, .strategy = Strategy::kModelParallel, .step_rows = rows});
        const auto list = mode == Mode::kTrain ? training(plan, rows) : evaluation(plan, rows);
        return std::pair(taken(model, plan, mode).batches,
                         std::llround(memory_need(plan, list).step_row_bytes * static_cast<double>(rows)) * ranks);
      };
      const auto [few, few_said] = measured_and_said(24);
      const auto [many, many_said] = measured_and_said(48);
      EXPECT_EQ(many - few, many_said - few_said);
    }
}

// Stages have different layers; only transferred tensors are on both.
TEST(StepMemory, OfAPipelineIsWhatTheListsOfItsStagesSay) {
  for (const std::string& schedule : pipeline_schedule_names())
    for (const int ranks : {2, 3, 4})
      for (const int micro_batches : {1, 3, 8}) {
        PlanRequest request{.ranks = ranks, .strategy = Strategy::kPipeline, .step_rows = 48};
        request.options.pipeline = {.schedule = pipeline_schedule_from(schedule), .micro_batches = micro_batches};
        Model model = model_of("[12, 4, 4]", 12, kFewClasses);
        for (const char* frozen : {"", "bn", "fc[12]"}) {
          model.frozen = {frozen};
          const Plan plan = make_plan(model, request);
          for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
            SCOPED_TRACE(concat(schedule, ", ", ranks, " stages, ", micro_batches, " ", frozen));
            int64_t said = 0;
            for (int rank = 0; rank < ranks; ++rank)
              said +=
                  step_bytes(plan, mode == Mode::kTrain ? training(plan, 48, rank) : evaluation(plan, 48, rank), rank);
            EXPECT_EQ(taken(model, plan, mode).batches, said);
          }
        }
      }
}

// Stage k of S has up to S - 1 - k older versions of its weights besides the current one; or predictions for each of
// the S - k micro-batches in flight; or one prediction that it computes again for every task.
TEST(StepMemory, OfAPipelineCountsTheCopiesOfWeights) {
  const Model model = model_of("[12, 4, 4]", 12, kFewClasses);
  const auto copies = [&](const char* schedule, int micro_batches) {
    PlanRequest request{.ranks = 4, .strategy = Strategy::kPipeline, .step_rows = 48};
    request.options.pipeline = {.schedule = pipeline_schedule_from(schedule), .micro_batches = micro_batches};
    const Plan plan = make_plan(model, request);
    std::vector<int> all;
    for (int place = 0; place < 4; ++place) all.push_back(weight_copies(training(plan, 48, place)));
    return all;
  };
  EXPECT_EQ(copies("1f1b", 8), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(copies("vanilla", 8), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(copies("pipedream", 8), (std::vector<int>{3, 2, 1, 0}));
  EXPECT_EQ(copies("pipedream", 3), (std::vector<int>{1, 1, 1, 0}));
  EXPECT_EQ(copies("spectrain", 8), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(copies("spectrain2", 8), (std::vector<int>{4, 3, 2, 0}));
  EXPECT_EQ(copies("spectrain2", 3), (std::vector<int>{2, 2, 2, 0}));
}

// Every rank has the list's memory for its own rows.
TEST(StepMemory, OfUnequalSharesIsWhatTheListSaysByteForByte) {
  const Model model = model_of("[12, 4, 4]", 12, kFewClasses);
  for (const Strategy strategy : all_strategies())
    for (const int model_ranks : {0, 2})
      for (const std::vector<double>& shares : {std::vector<double>{2, 1, 1, 4}, {1, 5, 1000, 20}}) {
        SCOPED_TRACE(concat(name_of(strategy), ", groups of ", model_ranks, ", shares ", shares[0], " ", shares[1]));
        const PlanRequest request{
            .ranks = 4, .strategy = strategy, .step_rows = 48, .model_ranks = model_ranks, .shares = shares};
        const Plan plan = make_plan(model, request);
        int64_t said = 0, most = 0;
        for (int rank = 0; rank < 4; ++rank) {
          const int64_t bytes = step_bytes(plan, training(plan, 48, plan.place_of(rank)), rank);
          said += bytes;
          most = std::max(most, bytes);
        }
        EXPECT_EQ(taken(model, plan, Mode::kTrain).batches, said);
        EXPECT_EQ(std::llround(memory_need(plan).step_row_bytes * 48), most);
      }
}

// Memory that only rank 0 has, if it updates for the others: the optimizer's states, and the others' gradients.
int64_t of_first_alone(const Plan& plan) {
  if (plan.updates() != Updates::kFirst) return 0;
  int64_t elements = 0;
  for (int slot = 0; slot < kStarSlots; ++slot) elements += (plan.ranks() - 1) * star_slot_elements(plan, slot);
  return plan.request.optimizer_states * velocity_bytes_per_rank(plan) +
         size_of(weight_sum_type(plan.request.on)) * elements;
}

TEST(StepMemory, OfASecondStateOfTheOptimizerIsWhatThePlanSays) {
  const Model model = model_of("[12, 4, 4]", 12, R"(
  { name = "fc1", type = "dense", out = 24, bias = false },
  { name = "fc2", type = "dense", out = 12, bias = false })");
  for (const Strategy strategy : strategies_without_stages())
    for (const int average_every : {1, 4})
      for (int ranks = average_every == 1 ? 1 : 2; ranks <= 4; ++ranks) {
        if (average_every > 1 && strategy != Strategy::kDataParallel) continue;
        SCOPED_TRACE(concat(name_of(strategy), " on ", ranks));
        const auto measured_and_said = [&](int states) {
          PlanRequest request{.ranks = ranks, .strategy = strategy, .step_rows = 48, .average_every = average_every};
          request.optimizer_states = states;
          const Plan plan = make_plan(model, request);
          const int64_t said = memory_need(plan).weight_bytes * ranks - of_first_alone(plan) * (ranks - 1);
          return std::pair(taken(model, plan, Mode::kTrain).weights, said);
        };
        const auto [one, one_said] = measured_and_said(1);
        const auto [two, two_said] = measured_and_said(2);
        EXPECT_EQ(two - one, two_said - one_said);
        EXPECT_GT(two, one);
      }
}

// Gradients that are sent together are padded (Bucket), and host and device exchange some data for every step in
// flight.
void expect_weights_as_said(const MemoryNeed& need, const Taken& taken, const Plan& plan) {
  const int64_t more = 640 + 192 * steps_apart(plan);
  const int64_t said = need.weight_bytes * plan.ranks() - of_first_alone(plan) * (plan.ranks() - 1);
  EXPECT_GE(taken.weights, said);
  EXPECT_LE(taken.weights, said + more * plan.ranks());
}

// Sums are f64, and have memory of their own where they become activations' gradients. In groups of 4 rows, the rounds
// of 40 rows are uneven on 3 and 4 ranks.
TEST(StepMemory, OfCanonicalSumsIsWhatTheListSaysByteForByte) {
  const char* const layers = R"(
  { name = "scale", type = "batch_norm", rows = 4 },
  { name = "fc1", type = "dense", out = 24, bias = false },
  { name = "relu", type = "relu" },
  { name = "fc2", type = "dense", out = 24, bias = false },
  { name = "fc3", type = "dense", out = 96, bias = false })";
  for (const int64_t rows : {48, 40})
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      StepCase step{Precision::kFp32, mode};
      step.canonical_rows = 2;
      for_every_plan(layers, step, rows, [&](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
        const int64_t said = std::llround(need.step_row_bytes * static_cast<double>(rows)) * plan.ranks();
        if (rows == 48)
          EXPECT_EQ(taken.batches, said);
        else
          EXPECT_LE(taken.batches, said);
        expect_weights_as_said(need, taken, plan);
      });
    }
}

TEST(StepMemory, OfWeightsIsWhatThePlanSays) { for_every_step(48, expect_weights_as_said); }

// Sums of squares are added up in chunks, and no weights are updated while their gradient is computed.
TEST(StepMemory, OfNormsIsWhatThePlanSays) {
  for (const int sums : {1, 2}) {
    const StepCase with_norms{.precision = Precision::kFp32, .mode = Mode::kTrain, .norm_sums = sums};
    for_every_plan(kFewClasses, with_norms, 48, [](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
      expect_weights_as_said(need, taken, plan);
      Plan without = plan;
      without.request.norm_sums = 0;
      EXPECT_EQ(need.weight_bytes - memory_need(without).weight_bytes,
                norm_bytes(plan) + gradient_bytes_per_rank(plan) - gradient_bytes_per_rank(without));
    });
  }
}

TEST(StepMemory, OfServersWithADelayIsWhatThePlanSays) {
  const Model model = model_of("[12, 4, 4]", 12, kFewClasses);
  for (const ConsistencyRules& rules : {ConsistencyRules{.delay = 1, .pushes = 1},
                                        {.delay = kNoBound, .pushes = 1},
                                        {.delay = 2, .pushes = 3},
                                        {.delay = 2}})
    for (int ranks = 2; ranks <= 4; ++ranks) {
      SCOPED_TRACE(concat(rules.text(), ", ", ranks, " ranks"));
      PlanRequest request{.ranks = ranks, .strategy = Strategy::kParameterServer, .step_rows = 48};
      request.options.server.rules = rules;
      const Plan plan = make_plan(model, request);
      expect_weights_as_said(memory_need(plan), taken(model, plan, Mode::kTrain), plan);
    }
}

// Averages of weights over time take as much as the weights, on every rank.
TEST(StepMemory, OfWeightsWithTheirAveragesIsWhatThePlanSays) {
  const StepCase with_averages{.precision = Precision::kBf16, .mode = Mode::kTrain, .ema_every = 5};
  for_every_plan(kFewClasses, with_averages, 48, [](const MemoryNeed& need, const Taken& taken, const Plan& plan) {
    expect_weights_as_said(need, taken, plan);
    Plan without = plan;
    without.request.ema_every = 0;
    EXPECT_EQ(need.weight_bytes - memory_need(without).weight_bytes, weight_bytes_per_rank(plan));
  });
}

}  // namespace
}  // namespace owt::step_memory_test
