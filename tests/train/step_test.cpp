#include "src/parallel/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "src/comm/on_host.h"
#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/train/job.h"
#include "src/train/made_up_batch.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/strategies.h"
#include "tests/support/target_tables.h"
#include "tests/support/temp_folder.h"

namespace owt::step_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string with(const std::string& recipe, const std::string& from, const std::string& to) {
  std::string text = recipe;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_planned_bytes(const SmallRun& run) {
  EXPECT_EQ(run.bytes, run.planned_of_ranks);
  EXPECT_EQ(*std::max_element(run.bytes.begin(), run.bytes.end()), run.planned_bytes);
}

void expect_same_losses(const SmallRun& one, const SmallRun& many, double tolerance) {
  ASSERT_EQ(one.losses.size(), many.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i)
    ASSERT_NEAR(many.losses[i], one.losses[i], tolerance * one.losses[i]) << "step " << i;
}

// `changes` on this device.
Overrides on(Device device, Overrides changes = {}) {
  changes.emplace_back("run.device", name_of(device));
  return changes;
}

struct Case {
  const char* strategy;
  int ranks;
  int model_ranks = 0;
  const char* shares = "";
  const char* split = "strategy";
  const char* optimizer = "sgd";
  int slices = 1;
  const char* net = "small";
};

const char* const kLogistic = "logistic";
const char* const kCosines = "cosines";
const char* const kSampledCosines = "sampled_cosines";
const char* const kSampled = "sampled";

// kSmallRecipe with other types of layers in the front part and the back part; or with logistic units or with cosines
// and a margin, so many that the loss works on columns of the logits; or with samples of 300 classes.
std::string recipe_of_net(const std::string& net) {
  if (net == "small") return kSmallRecipe;
  if (net == kCosines) return cosine_recipe(50);
  if (net == kSampledCosines) return cosine_recipe(300) + "sample = 0.3\n";
  if (net == kSampled)
    return with(with(with(kSmallRecipe, "classes = 10", "classes = 300"), "out = 10\n", "out = 300\n"), "[data]",
                "[loss]\nsample = 0.3\n[data]");
  if (net == kLogistic)
    return with(with(with(kSmallRecipe, "classes = 10", "classes = 50"), "out = 10\n", "out = 50\n"), "[data]",
                "[loss]\ntype = \"logistic\"\nlabel_smoothing = 0.1\n[data]");
  std::string recipe = with(kSmallRecipe, "size = 3\nalpha = 0.01", "size = 3\nalpha = 0.01\nwithin = true");
  recipe = with(recipe, "type = \"conv\"\nout = 16\nkernel = 3\npad = 1\ngroups = 2",
                "type = \"local\"\nout = 9\nkernel = 3\npad = 1");
  recipe = with(recipe, "[[model.layer]]\nname = \"pool1\"", R"([[model.layer]]
name = "layer_norm1"
type = "layer_norm"
[[model.layer]]
name = "scale1"
type = "scale"
body = [
  { name = "pool", type = "global_avg_pool" },
  { name = "fc1", type = "dense", out = 4 },
  { name = "act", type = "activation", kind = "hard_swish" },
  { name = "fc2", type = "dense", out = 16 },
  { name = "gate", type = "activation", kind = "sigmoid" },
]
[[model.layer]]
name = "block1"
type = "residual"
relu = false
body = [
  { name = "conv", type = "conv", out = 16, kernel = 3, pad = 2, dilation = 2 },
  { name = "path", type = "drop_path", rate = 0.2 },
]
[[model.layer]]
name = "pool1")");
  recipe = with(recipe, "[[model.layer]]\nname = \"drop3\"",
                "[[model.layer]]\nname = \"path3\"\ntype = \"drop_path\"\nrate = 0.2\n"
                "[[model.layer]]\nname = \"drop3\"");
  for (const auto& [name, keys] : {std::pair{"relu1", "kind = \"prelu\""},
                                   {"relu2", "kind = \"gelu\""},
                                   {"relu3", "kind = \"prelu\""},
                                   {"relu4", "kind = \"softplus\""}})
    recipe = with(recipe, concat("name = \"", name, "\"\ntype = \"relu\""),
                  concat("name = \"", name, "\"\ntype = \"activation\"\n", keys));
  return recipe;
}

class StepEquality : public ::testing::TestWithParam<std::tuple<Device, Case>> {
 protected:
  static constexpr int64_t kSteps = 7;
  Device device() const { return std::get<0>(GetParam()); }
  SmallRun run(int64_t steps) const {
    const Case& c = std::get<1>(GetParam());
    Overrides changes{{"parallel.workers", std::to_string(c.ranks)},
                      {"parallel.strategy", c.strategy},
                      {"parallel.model_ranks", std::to_string(c.model_ranks)},
                      {"parallel.split", c.split},
                      {"data.accumulate", std::to_string(c.slices)}};
    if (*c.shares) changes.emplace_back("parallel.shares", c.shares);
    return run_small(recipe_of_net(c.net), steps, on(device(), merged(changes, with_optimizer(c.optimizer))));
  }
  const SmallRun& one_rank() const {
    static std::map<std::tuple<Device, std::string, std::string>, SmallRun> runs;
    const std::string optimizer = std::get<1>(GetParam()).optimizer, net = std::get<1>(GetParam()).net;
    const auto [run, fresh] = runs.try_emplace({device(), optimizer, net});
    if (fresh) run->second = run_small(recipe_of_net(net), kSteps, on(device(), with_optimizer(optimizer)));
    return run->second;
  }
};

// The steps begin a second epoch of 100 images in steps of 24. The last step of every epoch has 4 rows, so one of three
// ranks has fewer than the others. Dropout and augmentation are on.
TEST_P(StepEquality, LearnsWhatOneRankLearnsAndSendsTheBytesOfThePlan) {
  const SmallRun many = run(kSteps);
  expect_same_losses(one_rank(), many, 1e-4);
  expect_planned_bytes(many);
  EXPECT_EQ(many.planned_bytes > 0, many.bytes.size() > 1);
  EXPECT_EQ(many.sampled_classes, one_rank().sampled_classes);
}

std::string case_name(const ::testing::TestParamInfo<StepEquality::ParamType>& info) {
  const auto& [device, c] = info.param;
  std::string name = concat(c.strategy, c.ranks, "_", c.model_ranks > 0 ? concat("in", c.model_ranks, "s_") : "",
                            std::string(c.split) == "strategy" ? "" : concat("by_", c.split, "_"),
                            std::string(c.optimizer) == "sgd" ? "" : concat(c.optimizer, "_"),
                            c.slices > 1 ? concat("slices", c.slices, "_") : "",
                            std::string(c.net) == "small" ? "" : concat(c.net, "_"), device);
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    AllStrategies, StepEquality,
    ::testing::Combine(::testing::ValuesIn(devices()),
                       ::testing::Values(Case{"dp", 1}, Case{"dp", 2}, Case{"dp", 3}, Case{"dp", 4}, Case{"owt-a", 1},
                                         Case{"owt-a", 2}, Case{"owt-a", 3}, Case{"owt-a", 4}, Case{"owt-b", 2},
                                         Case{"owt-b", 3}, Case{"owt-b", 4}, Case{"owt-c", 2}, Case{"owt-c", 3},
                                         Case{"owt-c", 4}, Case{"owt-d", 1}, Case{"owt-d", 2}, Case{"owt-d", 3},
                                         Case{"owt-d", 4}, Case{"owt-d", 6, 3}, Case{"dp-zero", 1}, Case{"dp-zero", 2},
                                         Case{"dp-zero", 3}, Case{"dp-zero", 4}, Case{"dp-star", 1}, Case{"dp-star", 2},
                                         Case{"dp-star", 3}, Case{"dp-star", 4}, Case{"mp", 1}, Case{"mp", 2},
                                         Case{"mp", 3}, Case{"mp", 4}, Case{"owt-a", 4, 2}, Case{"owt-b", 4, 2},
                                         Case{"owt-c", 4, 2}, Case{"owt-c", 6, 3}, Case{"mp", 4, 2},
                                         Case{"owt-a", 3, 1}, Case{"owt-a", 3, 0, "", "rows"},
                                         Case{"owt-b", 2, 0, "", "rows"}, Case{"owt-c", 4, 0, "", "less"},
                                         Case{"owt-d", 3, 0, "", "columns"}, Case{"mp", 2, 0, "", "rows"},
                                         Case{"mp", 4, 0, "", "rows"}, Case{"mp", 6, 3, "", "rows"},
                                         Case{"mp", 3, 0, "", "less"})),
    case_name);

// Servers work on the CPU. In the sixth case a worker has no row in any step.
INSTANTIATE_TEST_SUITE_P(Served, StepEquality,
                         ::testing::Combine(::testing::Values(Device::kCpu),
                                            ::testing::Values(Case{"ps", 1}, Case{"ps", 2}, Case{"ps", 3},
                                                              Case{"ps", 4},
                                                              Case{"ps", 3, 0, "[1, 3, 2]", "strategy", "adamw"},
                                                              Case{"ps", 2, 0, "[1, 1000]", "strategy", "adamw"},
                                                              Case{"ps", 2, 0, "", "strategy", "sgd", 1, kCosines},
                                                              Case{"ps", 2, 0, "", "strategy", "sgd", 1, kLogistic})),
                         case_name);

// The last one's second worker has no row in any step; the groups of a grid have unlike numbers of rows.
INSTANTIATE_TEST_SUITE_P(
    UnequalShares, StepEquality,
    ::testing::Combine(::testing::ValuesIn(devices()),
                       ::testing::Values(Case{"dp", 3, 0, "[1, 3, 2]"}, Case{"dp-zero", 3, 0, "[1, 3, 2]"},
                                         Case{"owt-a", 3, 0, "[1, 3, 2]"}, Case{"owt-b", 3, 0, "[1, 3, 2]"},
                                         Case{"owt-c", 3, 0, "[1, 3, 2]"}, Case{"owt-d", 3, 0, "[1, 3, 2]"},
                                         Case{"mp", 4, 2, "[2, 1]"}, Case{"owt-a", 4, 2, "[1, 3, 2, 5]"},
                                         Case{"owt-b", 4, 2, "[1, 3, 2, 5]"}, Case{"owt-c", 4, 2, "[1, 3, 2, 5]"},
                                         Case{"owt-d", 4, 2, "[1, 3, 2, 5]"}, Case{"owt-c", 2, 0, "[1000, 1]"},
                                         Case{"owt-b", 3, 0, "[1, 3, 2]", "strategy", "sgd", 4},
                                         Case{"dp-zero", 3, 0, "[1, 3, 2]", "strategy", "sgd", 4},
                                         Case{"owt-d", 4, 2, "[1, 3, 2, 5]", "strategy", "sgd", 3},
                                         Case{"owt-c", 2, 0, "[1000, 1]", "strategy", "sgd", 3})),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    OtherOptimizers, StepEquality,
    ::testing::Combine(
        ::testing::ValuesIn(devices()),
        ::testing::Values(
            Case{"dp", 3, 0, "", "strategy", "adamw"}, Case{"dp-zero", 2, 0, "", "strategy", "adamw"},
            Case{"dp-zero", 3, 0, "[1, 3, 2]", "strategy", "adamw"}, Case{"dp-star", 3, 0, "", "strategy", "adamw"},
            Case{"owt-a", 3, 0, "", "rows", "adamw"}, Case{"owt-b", 2, 0, "", "strategy", "adamw"},
            Case{"owt-c", 6, 3, "", "strategy", "adamw"}, Case{"owt-d", 4, 0, "", "strategy", "adamw"},
            Case{"mp", 3, 0, "", "strategy", "adamw"}, Case{"mp-dense", 2, 0, "", "strategy", "adamw"},
            Case{"owt-a", 3, 0, "[1, 3, 2]", "strategy", "adamw"},
            Case{"owt-b", 3, 0, "[1, 3, 2]", "strategy", "adamw"}, Case{"owt-c", 4, 0, "", "less", "adamw"},
            Case{"owt-d", 4, 2, "[1, 3, 2, 5]", "strategy", "adamw"}, Case{"mp", 4, 2, "", "rows", "adamw"},
            Case{"mp-dense", 3, 0, "", "strategy", "adamw"}, Case{"pipeline", 4, 2, "", "strategy", "adamw"},
            Case{"dp-zero", 3, 0, "", "strategy", "adamw", 3}, Case{"pipeline", 2, 0, "", "strategy", "adamw"},
            Case{"dp-zero", 3, 0, "", "strategy", "rmsprop_warmup"}, Case{"owt-c", 2, 0, "", "strategy", "rmsprop"},
            Case{"owt-c", 3, 0, "", "strategy", "adagrad"}, Case{"dp-zero", 3, 0, "", "strategy", "proximal"})),
    case_name);

// Parts of matrices are rows, columns, or any elements.
INSTANTIATE_TEST_SUITE_P(
    Muon, StepEquality,
    ::testing::Combine(
        ::testing::Values(Device::kCpu),
        ::testing::Values(Case{"dp", 2, 0, "", "strategy", "muon"}, Case{"dp", 3, 0, "", "strategy", "muon_unit"},
                          Case{"dp-zero", 2, 0, "", "strategy", "muon"},
                          Case{"dp-zero", 3, 0, "", "strategy", "muon_unit"},
                          Case{"dp-star", 3, 0, "", "strategy", "muon"}, Case{"owt-a", 2, 0, "", "strategy", "muon"},
                          Case{"owt-a", 3, 0, "", "rows", "muon_unit"}, Case{"owt-b", 3, 0, "", "strategy", "muon"},
                          Case{"owt-c", 3, 0, "", "strategy", "muon_unit"}, Case{"owt-d", 2, 0, "", "strategy", "muon"},
                          Case{"owt-d", 3, 0, "", "strategy", "muon_unit"}, Case{"mp", 2, 0, "", "strategy", "muon"},
                          Case{"mp", 3, 0, "", "strategy", "muon_unit"}, Case{"mp-dense", 3, 0, "", "strategy", "muon"},
                          Case{"owt-c", 4, 2, "", "strategy", "muon"}, Case{"mp", 4, 2, "", "rows", "muon_unit"},
                          Case{"pipeline", 2, 0, "", "strategy", "muon"},
                          Case{"pipeline", 4, 2, "", "strategy", "muon_unit"},
                          Case{"dp-zero", 3, 0, "[1, 3, 2]", "strategy", "muon", 3},
                          Case{"owt-b", 3, 0, "[1, 3, 2]", "strategy", "muon_unit"},
                          Case{"owt-c", 2, 0, "[1000, 1]", "strategy", "muon"})),
    case_name);

// A GPU updates whole matrices only.
INSTANTIATE_TEST_SUITE_P(MuonOfWholeMatrices, StepEquality,
                         ::testing::Combine(::testing::ValuesIn(gpu_devices()),
                                            ::testing::Values(Case{"dp", 3, 0, "", "strategy", "muon"},
                                                              Case{"dp-star", 2, 0, "", "strategy", "muon_unit"},
                                                              Case{"pipeline", 2, 0, "", "strategy", "muon"})),
                         case_name);

const char* const kOthers = "other_layers";
// The layers' device code is the same under every strategy, and a simulated GPU is slow.
std::vector<std::tuple<Device, Case>> with_other_layers() {
  const auto a_case = [](const char* strategy, int ranks, int model_ranks = 0, const char* split = "strategy",
                         const char* optimizer = "sgd", int slices = 1, const char* shares = "") {
    return Case{strategy, ranks, model_ranks, shares, split, optimizer, slices, kOthers};
  };
  const std::vector<Case> everywhere{a_case("dp-zero", 3), a_case("owt-c", 4, 2, "strategy", "sgd", 2),
                                     a_case("mp", 3, 0, "rows", "adamw"), a_case("pipeline", 2),
                                     a_case("owt-b", 3, 0, "strategy", "sgd", 1, "[1, 3, 2]")};
  const std::vector<Case> on_the_cpu{a_case("dp", 2),    a_case("dp-star", 2), a_case("owt-a", 3),
                                     a_case("owt-b", 2), a_case("owt-c", 3),   a_case("owt-d", 4, 0, "rows"),
                                     a_case("mp", 2),    a_case("mp-dense", 3)};
  std::vector<std::tuple<Device, Case>> all;
  for (const Device device : devices())
    for (const Case& c : everywhere) all.emplace_back(device, c);
  for (const Case& c : on_the_cpu) all.emplace_back(Device::kCpu, c);
  return all;
}
INSTANTIATE_TEST_SUITE_P(OtherLayers, StepEquality, ::testing::ValuesIn(with_other_layers()), case_name);

// A cosine layer that must be split by rows is split by columns all the same.
INSTANTIATE_TEST_SUITE_P(
    Cosines, StepEquality,
    ::testing::Combine(::testing::ValuesIn(devices()),
                       ::testing::Values(Case{"dp", 2, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"dp-zero", 3, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"dp-star", 4, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-a", 2, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-a", 3, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-a", 4, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-b", 2, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-b", 4, 0, "", "strategy", "adamw", 1, kCosines},
                                         Case{"owt-c", 2, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-c", 3, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-c", 4, 2, "", "strategy", "sgd", 2, kCosines},
                                         Case{"owt-d", 2, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-d", 4, 0, "", "rows", "sgd", 1, kCosines},
                                         Case{"mp", 2, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"mp", 3, 0, "", "rows", "sgd", 1, kCosines},
                                         Case{"mp-dense", 3, 0, "", "less", "sgd", 1, kCosines},
                                         Case{"pipeline", 2, 0, "", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-b", 3, 0, "[1, 3, 2]", "strategy", "sgd", 1, kCosines},
                                         Case{"owt-d", 4, 2, "[1, 3, 2, 5]", "strategy", "sgd", 3, kCosines})),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    SampledClasses, StepEquality,
    ::testing::Combine(::testing::Values(Device::kCpu),
                       ::testing::Values(Case{"dp", 3, 0, "", "strategy", "sgd", 1, kSampledCosines},
                                         Case{"dp", 4, 0, "[1, 1000, 1, 1]", "strategy", "adamw", 1, kSampled},
                                         Case{"owt-b", 4, 2, "[1, 3, 2, 5]", "strategy", "sgd", 1, kSampledCosines},
                                         Case{"owt-d", 4, 2, "", "strategy", "adamw", 1, kSampled},
                                         Case{"owt-a", 2, 0, "", "strategy", "sgd", 1, kSampledCosines},
                                         Case{"owt-a", 3, 0, "", "strategy", "adamw", 1, kSampled},
                                         Case{"owt-a", 4, 0, "", "strategy", "sgd", 1, kSampledCosines},
                                         Case{"owt-b", 2, 0, "", "strategy", "sgd", 1, kSampledCosines},
                                         Case{"owt-b", 4, 0, "[1, 3, 2, 5]", "strategy", "sgd", 1, kSampled},
                                         Case{"owt-c", 3, 0, "", "strategy", "sgd", 1, kSampledCosines},
                                         Case{"owt-c", 4, 0, "", "strategy", "adamw", 1, kSampledCosines},
                                         Case{"owt-d", 2, 0, "", "rows", "sgd", 1, kSampled},
                                         Case{"owt-d", 4, 0, "", "strategy", "sgd", 1, kSampledCosines},
                                         Case{"mp", 3, 0, "", "strategy", "sgd", 1, kSampledCosines},
                                         Case{"mp-dense", 2, 0, "", "rows", "rmsprop", 1, kSampled})),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    LogisticUnits, StepEquality,
    ::testing::Combine(::testing::ValuesIn(devices()),
                       ::testing::Values(Case{"dp", 2, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"dp-zero", 3, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"dp-star", 2, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"owt-a", 3, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"owt-b", 2, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"owt-c", 4, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"owt-c", 4, 2, "", "strategy", "sgd", 2, kLogistic},
                                         Case{"owt-d", 4, 0, "", "rows", "sgd", 1, kLogistic},
                                         Case{"mp", 2, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"mp", 3, 0, "", "rows", "adamw", 1, kLogistic},
                                         Case{"mp-dense", 3, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"pipeline", 2, 0, "", "strategy", "sgd", 1, kLogistic},
                                         Case{"owt-b", 3, 0, "[1, 3, 2]", "strategy", "sgd", 1, kLogistic},
                                         Case{"owt-d", 4, 2, "[1, 3, 2, 5]", "strategy", "sgd", 3, kLogistic})),
    case_name);

// Every strategy on one to four ranks in two to four micro-batches, some of them uneven: 24 rows are 6 for each of four
// ranks, and a step of 4 rows at the end of an epoch has one micro-batch. A simulated GPU is slow.
std::vector<std::tuple<Device, Case>> in_slices() {
  std::vector<std::tuple<Device, Case>> all;
  for (const Device device : devices())
    for (const Strategy strategy : strategies_without_stages(device))
      for (int ranks = 1; ranks <= 4; ++ranks)
        for (int slices = 2; slices <= 4; ++slices) {
          if (device != Device::kCpu && (ranks != 3 || slices != 3)) continue;
          all.emplace_back(device, Case{name_of(strategy), ranks, 0, "", "strategy", "sgd", slices});
        }
  for (const Device device : devices())
    for (const Case& c : {Case{"owt-c", 4, 2, "", "strategy", "sgd", 2}, Case{"owt-d", 6, 3, "", "rows", "sgd", 2},
                          Case{"mp", 4, 2, "", "rows", "sgd", 3}})
      all.emplace_back(device, c);
  return all;
}
INSTANTIATE_TEST_SUITE_P(InMicroBatches, StepEquality, ::testing::ValuesIn(in_slices()), case_name);

class StepTest : public DeviceTest {
 protected:
  SmallRun run(const std::string& recipe, int64_t steps, const Overrides& changes = {}) const {
    return run_small(recipe, steps, on(device(), changes));
  }
  int64_t steps(int64_t on_cpu) const { return device() == Device::kCpu ? on_cpu : std::min<int64_t>(on_cpu, 5); }
  // Strategies for tests that are not about a strategy: all of them; on a simulated GPU, which is slow, four with
  // messages and every collective except owt-b's. StepEquality covers all on every device.
  std::vector<Strategy> strategies() const {
    if (device() == Device::kCpu) return strategies_without_stages();
    return {Strategy::kDataParallelZero, Strategy::kDataParallelStar, Strategy::kOwtC, Strategy::kOwtD};
  }
  static Overrides workers(const char* count, Strategy strategy) {
    return {{"parallel.workers", count}, {"parallel.strategy", name_of(strategy)}};
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(StepTest, MoreRanksThanClassesOrRowsStillLearnTheSame) {
  const std::pair<std::string, std::string> images{"data.train_images", "74"};  // step 4: 2 rows
  const SmallRun one = run(kSmallRecipe, steps(8), {images});
  for (const Strategy strategy : strategies()) {
    // A simulated GPU is slow.
    if (device() != Device::kCpu && strategy != Strategy::kDataParallelZero && strategy != Strategy::kOwtD) continue;
    SCOPED_TRACE(name_of(strategy));
    Overrides many = workers("12", strategy);
    many.push_back(images);
    expect_same_losses(one, run(kSmallRecipe, steps(8), many), 1e-4);
  }
}

// What rank 0 has whole of the weights; parts of split layers are held to one worker's by the losses of later steps.
void expect_same_weights(const SmallRun& one, const SmallRun& many) {
  for (const auto& [name, weights] : many.weights) {
    const std::vector<float>& wanted = one.weights.at(name);
    if (weights.size() != wanted.size()) continue;
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(weights[i], wanted[i], 1e-4) << name << ' ' << i;
  }
}

// 26 rows are dealt as evenly as possible, and so are the 22 of the fourth step.
TEST(StepOnCpu, RowsAreDealtToAnyNumberOfWorkers) {
  const Overrides batch{{"data.batch", "26"}};
  const SmallRun one = run_small(kSmallRecipe, 5, batch);
  for (const Strategy strategy : all_strategies())
    for (const char* const workers : {"3", "5", "6", "7"}) {
      SCOPED_TRACE(concat(name_of(strategy), ", ", workers, " workers"));
      const Overrides changes{{"parallel.workers", workers}, {"parallel.strategy", name_of(strategy)}};
      const SmallRun many = run_small(kSmallRecipe, 5, merged(batch, changes));
      expect_same_losses(one, many, 1e-4);
      expect_same_weights(one, many);
      expect_planned_bytes(many);
    }
}

TEST(StepOnCpu, GridsAndServersApartHaveAnyNumberOfRowsToo) {
  const Overrides batch{{"data.batch", "25"}};
  const SmallRun one = run_small(kSmallRecipe, 5, batch);
  for (const Overrides& changes : std::vector<Overrides>{
           {{"parallel.workers", "6"}, {"parallel.strategy", "owt-c"}, {"parallel.model_ranks", "2"}},
           {{"parallel.workers", "6"}, {"parallel.strategy", "owt-d"}, {"parallel.model_ranks", "3"}},
           {{"parallel.workers", "6"}, {"parallel.strategy", "mp"}, {"parallel.model_ranks", "3"}},
           {{"parallel.workers", "6"}, {"parallel.strategy", "pipeline"}, {"parallel.model_ranks", "3"}},
           {{"parallel.workers", "5"}, {"parallel.strategy", "ps"}, {"ps.servers", "2"}},
           {{"parallel.workers", "5"}, {"parallel.strategy", "dp-zero"}, {"data.accumulate", "3"}}}) {
    SCOPED_TRACE(changes[1].second);
    const SmallRun many = run_small(kSmallRecipe, 5, merged(batch, changes));
    expect_same_losses(one, many, 1e-4);
    expect_same_weights(one, many);
    expect_planned_bytes(many);
  }
}

// 50 classes: the loss works on columns of the logits, which are never gathered.
TEST_P(StepTest, AShardedLossLearnsWhatOneRankLearns) {
  const std::string recipe = with(with(kSmallRecipe, "classes = 10", "classes = 50"), "out = 10\n", "out = 50\n");
  for (const char* smoothing : {"0", "0.1"}) {
    const SmallRun one = run(recipe, steps(8), {{"loss.label_smoothing", smoothing}});
    for (const Strategy strategy : strategies())
      for (const char* count : {"2", "3", "4"}) {
        if (device() != Device::kCpu && std::string(count) != "3") continue;
        SCOPED_TRACE(concat(name_of(strategy), ", ", count, " workers, smoothing ", smoothing));
        Overrides changes = workers(count, strategy);
        changes.emplace_back("loss.label_smoothing", smoothing);
        const bool whole = !splits_dense(strategy);
        ASSERT_NE(small_settings(recipe, on(device(), changes)).plan_to_run().sharded_loss, whole);
        if (whole) continue;
        const SmallRun many = run(recipe, steps(8), changes);
        expect_same_losses(one, many, 1e-4);
        expect_planned_bytes(many);
      }
  }
}

// Pairs of images are mixed, also of two ranks, and labels of three numbers are sent; also where the loss works on
// columns of the logits. Steps of 24 rows, and of 4.
TEST_P(StepTest, MixedImagesAndLabelsLearnWhatOneRankLearns) {
  const std::string sharded = with(with(kSmallRecipe, "classes = 10", "classes = 50"), "out = 10\n", "out = 50\n");
  Overrides mixing{{"data.augment.mixup", "0.4"},
                   {"data.augment.cutmix", "1"},
                   {"loss.label_smoothing", "0.1"},
                   {"loss.type", "softmax"}};
  for (const auto& [recipe, loss] : {std::pair{std::string(kSmallRecipe), "softmax"},
                                     {sharded, "softmax"},
                                     {std::string(kSmallRecipe), "logistic"},
                                     {sharded, "logistic"}}) {
    mixing.back().second = loss;
    const SmallRun one = run(recipe, steps(8), mixing), plain = run(recipe, 1);
    EXPECT_NE(one.losses[0], plain.losses[0]);
    const bool every_count = device() == Device::kCpu && recipe == kSmallRecipe && loss == std::string("softmax");
    for (const char* strategy : {"dp", "dp-zero", "owt-a", "owt-b", "owt-c", "owt-d", "mp", "mp-dense", "pipeline"})
      for (const char* count : {"2", "3", "4"}) {
        if (!every_count && std::string(count) != "3") continue;
        // On a simulated GPU, which is slow: rounds, front parts split by channels, and stages.
        if (device() != Device::kCpu && !std::set<std::string>{"owt-c", "mp", "pipeline"}.contains(strategy)) continue;
        SCOPED_TRACE(concat(strategy, ", ", count, " workers, ", loss));
        Overrides changes = mixing;
        changes.emplace_back("parallel.workers", count);
        changes.emplace_back("parallel.strategy", strategy);
        const SmallRun many = run(recipe, steps(8), changes);
        expect_same_losses(one, many, 1e-4);
        expect_planned_bytes(many);
      }
  }
}

// Every strategy carries a target of each class beside the label.
TEST_P(StepTest, TargetsLearnWhatOneRankLearns) {
  for (const char* loss : {"softmax", "logistic"})
    for (const char* mixup : {"0", "0.4"})
      for (const char* precision : {"fp32", "bf16"}) {
        const bool soft = loss == std::string("softmax"), wide = precision == std::string("fp32");
        if (!wide && mixup == std::string("0")) continue;
        const TempFolder folder;
        Overrides changes{{"data.targets", "true"},
                          {"data.dir", folder.path()},
                          {"loss.type", loss},
                          {"data.augment.mixup", mixup},
                          {"run.precision", precision}};
        for (const Split split : {Split::kTrain, Split::kTest})
          write_target_table(folder.path(), split, *open_split(small_settings(kSmallRecipe), "", split), soft);
        const int64_t count = wide ? steps(8) : 3;
        const SmallRun one = run(kSmallRecipe, count, changes);
        changes.front().second = "false";
        EXPECT_NE(one.losses[0], run(kSmallRecipe, 1, changes).losses[0]);
        changes.front().second = "true";
        for (const char* strategy :
             {"dp", "dp-zero", "dp-star", "ps", "owt-a", "owt-b", "owt-c", "owt-d", "mp", "mp-dense", "pipeline"})
          for (const char* workers : {"2", "3", "4"}) {
            if (workers != std::string("3") && (!soft || !wide || device() != Device::kCpu)) continue;
            // On a simulated GPU, which is slow: rounds, front parts split by channels, and stages.
            if (device() != Device::kCpu && !std::set<std::string>{"owt-c", "mp", "pipeline"}.contains(strategy))
              continue;
            SCOPED_TRACE(concat(strategy, ", ", workers, " workers, ", loss, ", ", precision, ", mixup ", mixup));
            const SmallRun many = run(
                kSmallRecipe, count, merged(changes, {{"parallel.workers", workers}, {"parallel.strategy", strategy}}));
            expect_same_losses(one, many, wide ? 1e-4 : 0.01);
            expect_planned_bytes(many);
          }
      }
}

TEST_P(StepTest, Bf16TransportHalvesTheBytesAndHardlyChangesTheLosses) {
  const SmallRun one = run(kSmallRecipe, 3);  // what is rounded differs more with every step
  for (const Strategy strategy : strategies()) {
    SCOPED_TRACE(name_of(strategy));
    const Overrides full = workers("3", strategy);
    Overrides half = full;
    half.emplace_back("parallel.wire", "bf16");
    const SmallRun rounded = run(kSmallRecipe, 3, half);
    expect_same_losses(one, rounded, 0.01);
    EXPECT_NE(one.losses.back(), rounded.losses.back());
    expect_planned_bytes(rounded);
    const auto bytes = [&](const Overrides& changes) {
      return bytes_per_step(small_settings(kSmallRecipe, on(device(), changes)).plan_to_run());
    };
    EXPECT_LT(bytes(half), bytes(full) * 4 / 5);
  }
}

// With 91 images the last step of an epoch has 19 rows, which divide neither by the ranks nor by the micro-batches.
TEST_P(StepTest, MicroBatchesGiveTheWeightsOfWholeSteps) {
  const std::pair<std::string, std::string> images{"data.train_images", "91"};
  for (const Strategy strategy : strategies())
    for (const char* count : {"1", "3"}) {
      if (device() != Device::kCpu && std::string(count) != "3") continue;
      SCOPED_TRACE(concat(name_of(strategy), ", ", count, " workers"));
      Overrides whole = workers(count, strategy);
      whole.push_back(images);
      Overrides sliced = whole;
      sliced.emplace_back("data.accumulate", "4");
      const SmallRun one = run(kSmallRecipe, steps(9), whole), many = run(kSmallRecipe, steps(9), sliced);
      expect_same_losses(one, many, 1e-4);
      for (const auto& [name, weights] : one.weights)
        for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(many.weights.at(name)[i], weights[i], 1e-5) << name;
    }
}

TEST_P(StepTest, MicroBatchesInBf16GiveTheWeightsOfWholeSteps) {
  const Overrides bf16{{"run.precision", "bf16"}, {"parallel.workers", "2"}, {"parallel.strategy", "owt-c"}};
  Overrides sliced = bf16;
  sliced.emplace_back("data.accumulate", "3");
  expect_same_losses(run(kSmallRecipe, 3, bf16), run(kSmallRecipe, 3, sliced), 0.01);
}

// Each rank's own rows, whose gradients are summed over the micro-batches.
TEST_P(StepTest, MicroBatchesOfLocalStepsGiveTheWeightsOfWholeOnes) {
  for (const char* strategy : {"dp", "owt-c"}) {
    const Overrides whole{{"parallel.workers", "3"}, {"parallel.strategy", strategy}, {"parallel.average_every", "3"}};
    Overrides sliced = whole;
    sliced.emplace_back("data.accumulate", "3");
    const SmallRun one = run(kSmallRecipe, steps(9), whole), many = run(kSmallRecipe, steps(9), sliced);
    expect_same_losses(one, many, 1e-4);
    expect_planned_bytes(many);
  }
}

// A micro-batch under owt-a has the rows of a round under owt-c. A smaller step has fewer micro-batches.
TEST_P(StepTest, UpdatingEveryRoundOfMicroBatchesIsAsUpdatingEveryRoundOfOwtC) {
  const Overrides every_round{
      {"parallel.workers", "2"}, {"parallel.dense_update", "round"}, {"data.train_images", "96"}};
  Overrides rounds = every_round, slices = every_round;
  rounds.emplace_back("parallel.strategy", "owt-c");
  slices.insert(slices.end(), {{"parallel.strategy", "owt-a"}, {"data.accumulate", "2"}});
  const SmallRun of_slices = run(kSmallRecipe, steps(9), slices);
  expect_same_losses(run(kSmallRecipe, steps(9), rounds), of_slices, 1e-4);
  expect_planned_bytes(of_slices);
}

// Statistics cover a micro-batch's rows, and their mean over the step equals the mean over all rows.
TEST_P(StepTest, MicroBatchesGiveRunningAveragesTheMeansOfTheStep) {
  const std::string recipe = with(kSmallRecipe, "name = \"norm1\"\ntype = \"lrn\"\nsize = 3\nalpha = 0.01",
                                  "name = \"norm1\"\ntype = \"batch_norm\"");
  const SmallRun whole = run(recipe, 1), sliced = run(recipe, 1, {{"data.accumulate", "3"}});
  const auto &a = whole.weights.at("norm1.running_mean"), &b = sliced.weights.at("norm1.running_mean");
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
}

// The first step's statistics do not depend on anything that travelled before.
TEST_P(StepTest, Bf16TransportDoesNotRoundRunningAverages) {
  const std::string recipe = with(with(kSmallRecipe, "name = \"norm1\"\ntype = \"lrn\"\nsize = 3\nalpha = 0.01",
                                       "name = \"norm1\"\ntype = \"batch_norm\""),
                                  "name = \"relu3\"\ntype = \"relu\"", "name = \"norm3\"\ntype = \"batch_norm\"");
  for (const Strategy strategy : strategies())
    for (const char* bucket_mb : {"8", "0.001"}) {
      SCOPED_TRACE(concat(name_of(strategy), ", buckets of ", bucket_mb, " MB"));
      Overrides full = workers("4", strategy);
      full.insert(full.end(), {{"parallel.model_ranks", "2"}, {"parallel.bucket_mb", bucket_mb}});
      Overrides half = full;
      half.emplace_back("parallel.wire", "bf16");
      const SmallRun exact = run(recipe, 1, full), rounded = run(recipe, 1, half);
      EXPECT_NE(rounded.weights.at("conv1.weight"), exact.weights.at("conv1.weight"));
      for (const char* name : {"norm1.running_mean", "norm1.running_var"})
        EXPECT_EQ(rounded.weights.at(name), exact.weights.at(name)) << name;
      expect_planned_bytes(exact);
      expect_planned_bytes(rounded);
    }
}

// Sums may be in another order.
void expect_near(const SmallRun& found, const SmallRun& wanted, double bound) {
  EXPECT_THAT(found.losses, ::testing::Pointwise(::testing::DoubleNear(bound), wanted.losses));
  for (const auto& [name, values] : wanted.weights)
    EXPECT_THAT(found.weights.at(name), ::testing::Pointwise(::testing::FloatNear(static_cast<float>(bound)), values))
        << name;
}

// On one rank; on three that split the dense layers; and with an update after every round.
TEST(StepOnCpu, UpdatingWeightsAtOnceLearnsTheSame) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* nesterov : {"false", "true"})
      for (const Overrides& workers :
           {Overrides{{"parallel.workers", "1"}}, Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "owt-a"}},
            Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}, {"parallel.dense_update", "round"}}}) {
        SCOPED_TRACE(concat(precision, ", nesterov ", nesterov, ", workers ", workers[0].second));
        Overrides changes = workers;
        changes.insert(changes.end(), {{"run.precision", precision}, {"optimizer.nesterov", nesterov}});
        const SmallRun at_once = run_small(kSmallRecipe, 6, changes);
        const SmallRun kept = run_small(kSmallRecipe, 6, changes, kUpdateBesideFrom, true);
        expect_near(at_once, kept, precision == std::string("bf16") ? 1e-3 : 1e-6);
        for (const auto& [name, copy] : at_once.copies16)
          for (size_t i = 0; i < copy.size(); ++i)
            ASSERT_EQ(copy[i], from_bf16(to_bf16(at_once.weights.at(name)[i]))) << name;
      }
  }
}

TEST_P(StepTest, UnequalSharesLearnTheSameInBf16) {
  const std::pair<std::string, std::string> bf16{"run.precision", "bf16"};
  const SmallRun one = run(kSmallRecipe, 3, {bf16});
  for (const Strategy strategy : {Strategy::kDataParallelZero, Strategy::kOwtC, Strategy::kOwtD}) {
    SCOPED_TRACE(name_of(strategy));
    Overrides many = workers("3", strategy);
    many.insert(many.end(), {bf16, {"parallel.shares", "[1, 3, 2]"}});
    const SmallRun run_of_three = run(kSmallRecipe, 3, many);
    expect_same_losses(one, run_of_three, 0.01);
    expect_planned_bytes(run_of_three);
  }
}

// The averages are means over the rows of the step, to which a worker without rows contributes zero.
TEST_P(StepTest, AWorkerWithoutRowsLeavesRunningAveragesAsTheyAre) {
  const std::string recipe = with(kSmallRecipe, "name = \"norm1\"\ntype = \"lrn\"\nsize = 3\nalpha = 0.01",
                                  "name = \"norm1\"\ntype = \"batch_norm\"");
  const SmallRun one = run(recipe, 5);
  for (const char* strategy : {"dp", "owt-c"}) {
    const SmallRun two =
        run(recipe, 5, {{"parallel.workers", "2"}, {"parallel.strategy", strategy}, {"parallel.shares", "[1, 1000]"}});
    expect_same_losses(one, two, 1e-4);
    const auto &a = one.weights.at("norm1.running_var"), &b = two.weights.at("norm1.running_var");
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-3 * a[i]);
  }
}

TEST_P(StepTest, SmallBucketsChangeNothing) {
  const Overrides two{{"parallel.workers", "2"}, {"parallel.strategy", "dp"}};
  Overrides small = two;
  small.emplace_back("parallel.bucket_mb", "0.001");
  const SmallRun big_buckets = run(kSmallRecipe, 6, two), small_buckets = run(kSmallRecipe, 6, small);
  EXPECT_EQ(big_buckets.losses, small_buckets.losses);
  EXPECT_EQ(big_buckets.weights, small_buckets.weights);
}

TEST_P(StepTest, TheSameRunGivesTheSameBits) {
  const Overrides three{{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}};
  const SmallRun first = run(kSmallRecipe, 10, three), second = run(kSmallRecipe, 10, three);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.weights, second.weights);
}

// A network that trains in the back part only: then every round is a step of plain SGD on that round's rows.
const std::string kDenseOnly = recipe_of(
    "[3, 8, 8]", "train_images = 48\nbatch = 8\nshuffle = false\naugment = { scale = 0.02, mean = \"channel\" }", R"(
  { name = "pool", type = "avg_pool", kernel = 2 },
  { name = "fc1", type = "dense", out = 12 },
  { name = "relu", type = "relu" },
  { name = "fc2", type = "dense", out = 10 })");

TEST_P(StepTest, UpdatingEveryRoundIsSgdOnTheRowsOfEachRound) {
  // Under scheme b round r holds the r-th contiguous part of the step, so K rounds are K serial steps.
  const SmallRun rounds = run(
      kDenseOnly, 6, {{"parallel.workers", "2"}, {"parallel.strategy", "owt-b"}, {"parallel.dense_update", "round"}});
  const SmallRun serial = run(kDenseOnly, 12, {{"data.batch", "4"}});
  for (size_t i = 0; i < rounds.losses.size(); ++i)
    EXPECT_NEAR(rounds.losses[i], (serial.losses[2 * i] + serial.losses[2 * i + 1]) / 2, 1e-5) << "step " << i;
}

TEST_P(StepTest, ARoundThatHoldsTheWholeStepIsAStepOfSgdOnAGridToo) {
  // Every group of two has half of the rows, and the round's rate counts the rows of both groups.
  const SmallRun grid = run(kDenseOnly, steps(12),
                            {{"parallel.workers", "4"},
                             {"parallel.strategy", "owt-a"},
                             {"parallel.model_ranks", "2"},
                             {"parallel.dense_update", "round"}});
  expect_same_losses(run(kDenseOnly, steps(12)), grid, 1e-4);
}

TEST_P(StepTest, UpdatingEveryRoundOnAGridTakesStepsWithFewerRowsThanRounds) {
  // With 50 images the last step of an epoch has 2 rows: on 2 x 2 ranks the second round has none.
  const Overrides grid{{"data.train_images", "50"},
                       {"parallel.workers", "4"},
                       {"parallel.model_ranks", "2"},
                       {"parallel.dense_update", "round"}};
  for (const char* strategy : {"owt-b", "owt-c"}) {
    Overrides changes = grid;
    changes.emplace_back("parallel.strategy", strategy);
    const SmallRun run_of_both = run(kDenseOnly, 9, changes);
    EXPECT_EQ(run_of_both.losses.size(), 9u);
    for (const double loss : run_of_both.losses) EXPECT_TRUE(std::isfinite(loss));
  }
}

TEST_P(StepTest, WithoutWeightsBeforeTheBoundaryEveryStrategyLearnsTheSame) {
  const SmallRun one = run(kDenseOnly, 12);
  for (const Strategy strategy : strategies()) {
    SCOPED_TRACE(name_of(strategy));
    const SmallRun many = run(kDenseOnly, 12, workers("4", strategy));
    expect_same_losses(one, many, 1e-4);
    expect_planned_bytes(many);
  }
}

TEST_P(StepTest, WithoutDenseLayersEveryStrategyLearnsTheSame) {
  const std::string recipe =
      recipe_of("[3, 8, 8]", "train_images = 48\nbatch = 12\naugment = { scale = 0.02, mean = \"channel\" }", R"(
  { name = "conv1", type = "conv", out = 8, kernel = 3, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 10, kernel = 3, init = { type = "msra" } },
  { name = "pool", type = "global_avg_pool" })");
  const SmallRun one = run(recipe, 12);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const Strategy strategy : strategies()) {
    SCOPED_TRACE(name_of(strategy));
    const SmallRun many = run(recipe, 12, workers("3", strategy));
    expect_same_losses(one, many, 1e-4);
    expect_planned_bytes(many);
  }
}

// Residual blocks with an identity and with a projection, and NORM for a layer between.
constexpr const char* kResidual = R"(
  { name = "conv1", type = "conv", out = 8, kernel = 3, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "block1.0", type = "residual", body = [
    { name = "conv1", type = "conv", out = 8, kernel = 3, pad = 1, init = { type = "msra" } },
    { name = "norm1", NORM },
    { name = "relu", type = "relu" },
    { name = "drop", type = "dropout", rate = 0.1 },
    { name = "conv2", type = "conv", out = 8, kernel = 3, pad = 1, init = { type = "msra" } },
    { name = "norm2", NORM } ] },
  { name = "block2.0", type = "residual", body = [
    { name = "conv1", type = "conv", out = 6, kernel = 1, init = { type = "msra" } },
    { name = "relu", type = "relu" },
    { name = "conv2", type = "conv", out = 16, kernel = 3, stride = 2, pad = 1, init = { type = "msra" } },
    { name = "norm2", NORM } ], shortcut = [
    { name = "downsample.0", type = "conv", out = 16, kernel = 1, stride = 2, init = { type = "msra" } },
    { name = "downsample.1", NORM } ] },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc", type = "dense", out = 10 })";

std::string residual_with(const std::string& norm, int images = 96, int batch = 24,
                          const std::string& more = kResidual) {
  std::string layers = more;
  for (size_t at; (at = layers.find("NORM")) != std::string::npos;) layers.replace(at, 4, norm);
  return recipe_of("[3, 8, 8]",
                   concat("train_images = ", images, "\nside = 8\nbatch = ", batch,
                          "\naugment = { scale = 0.02, mirror = true, mean = \"channel\" }"),
                   layers, 0.02);
}

TEST_P(StepTest, ResidualBlocksLearnTheSameUnderEveryStrategy) {
  const std::string recipe = residual_with("type = 'lrn', size = 3");
  const SmallRun one = run(recipe, steps(7));
  EXPECT_LT(one.losses.back(), one.losses.front());
  EXPECT_TRUE(one.weights.contains("block2.0.downsample.0.weight"));
  for (const Strategy strategy : strategies())
    for (const char* count : {"2", "3", "4"}) {
      if (device() != Device::kCpu && std::string(count) != "3") continue;
      SCOPED_TRACE(concat(name_of(strategy), ", ", count, " workers"));
      for (const char* bucket_mb : {"8", "0.001"}) {
        if (std::string(count) == "2" && std::string(bucket_mb) == "8") continue;
        Overrides changes = workers(count, strategy);
        changes.emplace_back("parallel.bucket_mb", bucket_mb);
        const SmallRun many = run(recipe, steps(7), changes);
        expect_same_losses(one, many, 1e-4);
        expect_planned_bytes(many);
      }
    }
}

// Filters and their negatives in ten outputs of a 2x1 kernel; the rate of the weight is 0, so that they stay.
TEST_P(StepTest, AFirstLayerThatWhitensIsTheSameUnderEveryStrategy) {
  const std::string recipe =
      recipe_of("[3, 12, 12]", "train_images = 96\nside = 12\nbatch = 24\naugment = { scale = 0.02 }", R"(
  { name = "white", type = "conv", out = 14, kernel = [2, 1], lr = 0.0, init = { type = "whitening", images = 50 } },
  { name = "relu", type = "relu" },
  { name = "same", type = "conv", out = 16, kernel = 3, pad = 1, init = { type = "dirac" } },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc", type = "dense", out = 10 })",
                0.02);
  const SmallRun one = run(recipe, 3);
  const std::vector<float>& filters = one.weights.at("white.weight");
  for (size_t i = 0; i < 6 * 6; ++i) EXPECT_EQ(filters[i], -filters[i + 36]) << i;
  EXPECT_NE(std::vector<float>(filters.begin() + 72, filters.end()), std::vector<float>(12, 0.0f));
  for (const Strategy strategy : strategies()) {
    SCOPED_TRACE(name_of(strategy));
    const SmallRun many = run(recipe, 3, workers("3", strategy));
    const std::vector<float>& first = many.weights.at("white.weight");  // under mp the first rank has a part
    EXPECT_EQ(first, std::vector<float>(filters.begin(), filters.begin() + static_cast<int64_t>(first.size())));
    expect_same_losses(one, many, 1e-4);
  }
}

// Like Inception: branches of different depths, one of which is the identity, with normalisation over groups of rows.
TEST_P(StepTest, BranchesLearnTheSameUnderEveryStrategy) {
  const std::string recipe = residual_with("type = 'batch_norm', rows = 4", 96, 24, R"(
  { name = "conv1", type = "conv", out = 8, kernel = 3, stride = 2, init = { type = "msra" } },
  { name = "mixed", type = "branches", branches = [
    {},
    { name = "left", layers = [
      { name = "conv", type = "conv", out = 6, kernel = 1, init = { type = "msra" } },
      { name = "norm", NORM },
      { name = "relu", type = "relu" } ] },
    { name = "right", layers = [
      { name = "conv1", type = "conv", out = 4, kernel = 1, init = { type = "msra" } },
      { name = "drop", type = "dropout", rate = 0.1 },
      { name = "conv2", type = "conv", out = 6, kernel = 3, pad = 1, init = { type = "msra" } },
      { name = "relu", type = "relu" } ] } ] },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc1", type = "dense", out = 24, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "fc", type = "dense", out = 10 })");
  const SmallRun one = run(recipe, steps(12));
  EXPECT_LT(one.losses.back(), one.losses.front());
  EXPECT_TRUE(one.weights.contains("mixed.right.conv2.weight"));
  for (const Strategy strategy : strategies())
    for (const char* count : {"2", "3"}) {
      if (device() != Device::kCpu && std::string(count) != "3") continue;
      SCOPED_TRACE(concat(name_of(strategy), ", ", count, " workers"));
      const SmallRun many = run(recipe, steps(12), workers(count, strategy));
      expect_same_losses(one, many, 1e-4);
      expect_planned_bytes(many);
    }
}

// Batch statistics cover a rank's rows, which are the same under both strategies.
TEST_P(StepTest, ResidualBlocksWithBatchNormLearnUnderOwtCAsUnderDp) {
  const std::string recipe = residual_with("type = 'batch_norm'");
  for (const char* count : {"1", "2", "3", "4"}) {
    if (device() != Device::kCpu && std::string(count) != "3") continue;
    SCOPED_TRACE(concat(count, " workers"));
    const SmallRun dp = run(recipe, steps(12), workers(count, Strategy::kDataParallel));
    const SmallRun owt = run(recipe, steps(12), workers(count, Strategy::kOwtC));
    if (device() == Device::kCpu) {  // elsewhere there are too few steps
      EXPECT_LT(dp.losses.back(), dp.losses.front());
    }
    expect_same_losses(dp, owt, 1e-4);
    const auto &a = dp.weights.at("block1.0.norm1.running_var"), &b = owt.weights.at("block1.0.norm1.running_var");
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-3 * a[i]);
  }
}

// Statistics over four rows of the step do not depend on the ranks. The last step of an epoch has nine rows, groups of
// 4 and 5, so one of three workers has none. In the back part rounds consist of such groups.
TEST_P(StepTest, BatchNormOfFixedGroupsLearnsTheSameUnderEveryStrategy) {
  const std::string residual = kResidual;
  const std::string dense = residual.substr(0, residual.rfind("  { name = \"fc\"")) + R"(
  { name = "fc1", type = "dense", out = 12 },
  { name = "norm", NORM },
  { name = "relu2", type = "relu" },
  { name = "fc", type = "dense", out = 10 })";
  const auto count = steps(7);
  for (const std::string& layers : {residual, dense}) {
    const std::string recipe = residual_with("type = 'batch_norm', rows = 4", 57, 24, layers);
    const SmallRun one = run(recipe, count);
    EXPECT_LT(one.losses.back(), one.losses.front());
    std::vector<Strategy> all = strategies();
    all.push_back(Strategy::kPipeline);
    for (const Strategy strategy : all)
      for (const char* workers_of : {"2", "3", "4"}) {
        if ((device() != Device::kCpu || layers == dense) && std::string(workers_of) != "3") continue;
        SCOPED_TRACE(concat(name_of(strategy), ", ", workers_of, " workers"));
        const SmallRun many = run(recipe, count, workers(workers_of, strategy));
        expect_same_losses(one, many, 1e-4);
        expect_planned_bytes(many);
        if (!many.weights.contains("block1.0.norm1.running_var")) continue;
        const auto &a = one.weights.at("block1.0.norm1.running_var"),
                   &b = many.weights.at("block1.0.norm1.running_var");
        for (size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4 * a[i]);
      }
  }
}

TEST_P(StepTest, BatchNormOfFixedGroupsLearnsTheSameOnGridsInMicroBatchesAndByShares) {
  const std::string recipe = residual_with("type = 'batch_norm', rows = 4", 57, 24);
  const SmallRun one = run(recipe, steps(7));
  for (const Strategy strategy : {Strategy::kOwtC, Strategy::kModelParallel, Strategy::kPipeline}) {
    SCOPED_TRACE(name_of(strategy));
    Overrides grid = workers("4", strategy);
    grid.emplace_back("parallel.model_ranks", "2");
    const SmallRun many = run(recipe, steps(7), grid);
    expect_same_losses(one, many, 1e-4);
    expect_planned_bytes(many);
  }
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtC}) {
    SCOPED_TRACE(concat(name_of(strategy), " in slices"));
    Overrides slices = workers("2", strategy);
    slices.emplace_back("data.accumulate", "3");
    expect_same_losses(one, run(recipe, steps(7), slices), 1e-4);
  }
  Overrides shares = workers("3", Strategy::kOwtC);
  shares.emplace_back("parallel.shares", "[1, 5, 2]");
  expect_same_losses(one, run(recipe, steps(7), shares), 1e-4);
}

// 26 rows are seven groups, the last one of two rows: of nine workers two have none.
TEST(StepOnCpu, GroupsOfBatchNormAreDealtWholeToAnyNumberOfWorkers) {
  const std::string recipe = residual_with("type = 'batch_norm', rows = 4", 52, 26);
  const SmallRun one = run_small(recipe, 3);
  for (const char* const strategy : {"dp", "dp-zero", "ps", "owt-b", "owt-d", "pipeline"})
    for (const char* const workers : {"3", "5", "9"}) {
      if (strategy == std::string("pipeline") && workers != std::string("3")) continue;
      SCOPED_TRACE(concat(strategy, ", ", workers, " workers"));
      const SmallRun many = run_small(recipe, 3, {{"parallel.workers", workers}, {"parallel.strategy", strategy}});
      expect_same_losses(one, many, 1e-4);
      expect_same_weights(one, many);
    }
}

// Statistics over all rows of the step do not depend on the ranks. The last step of an epoch has two rows, so one of
// three workers has none; with shares, one worker has none in every step.
TEST_P(StepTest, BatchNormOfTheWholeStepLearnsTheSameUnderEveryStrategy) {
  const std::string recipe = residual_with("type = 'batch_norm', rows = 'step'", 50, 24);
  const SmallRun one = run(recipe, steps(7));
  EXPECT_LT(one.losses.back(), one.losses.front());
  const auto expect_same = [&](const Overrides& changes) {
    const SmallRun many = run(recipe, steps(7), changes);
    expect_same_losses(one, many, 1e-4);
    expect_planned_bytes(many);
    const auto &a = one.weights.at("block2.0.downsample.1.running_var"),
               &b = many.weights.at("block2.0.downsample.1.running_var");
    for (size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4 * a[i]);
  };
  for (const Strategy strategy : strategies())
    for (const char* count : {"2", "3", "4"}) {
      if (device() != Device::kCpu && std::string(count) != "3") continue;
      SCOPED_TRACE(concat(name_of(strategy), ", ", count, " workers"));
      expect_same(workers(count, strategy));
    }
  for (const Strategy strategy : {Strategy::kOwtC, Strategy::kModelParallel}) {
    SCOPED_TRACE(concat(name_of(strategy), " on a grid"));
    expect_same(merged(workers("4", strategy), {{"parallel.model_ranks", "2"}}));
  }
  expect_same(merged(workers("3", Strategy::kOwtB), {{"parallel.shares", "[1, 5, 2]"}}));
  expect_same(merged(workers("2", Strategy::kDataParallelZero), {{"parallel.shares", "[1, 1000]"}}));
}

// In the back part all rows of a group of ranks are in its only round, and a replica of the group has the other rows.
TEST_P(StepTest, BatchNormOfTheWholeStepLearnsTheSameAfterTheBoundary) {
  const std::string recipe = recipe_of("[3, 8, 8]", "train_images = 49\nside = 8\nbatch = 24", R"(
  { name = "conv1", type = "conv", out = 8, kernel = 3, init = { type = "msra" } },
  { name = "norm1", type = "batch_norm", rows = "step" },
  { name = "relu1", type = "relu" },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc1", type = "dense", out = 13 },
  { name = "norm", type = "batch_norm", rows = "step" },
  { name = "relu2", type = "relu" },
  { name = "fc", type = "dense", out = 10 })",
                                       0.02);
  const SmallRun one = run(recipe, steps(7));
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const Strategy strategy :
       {Strategy::kOwtA, Strategy::kOwtD, Strategy::kModelParallel, Strategy::kModelParallelDense})
    for (const char* model_ranks : {"2", "4"}) {
      SCOPED_TRACE(concat(name_of(strategy), " in groups of ", model_ranks));
      const SmallRun many =
          run(recipe, steps(7), merged(workers("4", strategy), {{"parallel.model_ranks", model_ranks}}));
      expect_same_losses(one, many, 1e-4);
      expect_planned_bytes(many);
    }
}

TEST_P(StepTest, UpdatingEveryRoundDiffersFromUpdatingEveryStep) {
  const Overrides every_step{{"parallel.workers", "2"}, {"parallel.strategy", "owt-c"}};
  Overrides every_round = every_step;
  every_round.emplace_back("parallel.dense_update", "round");
  EXPECT_NE(run(kSmallRecipe, 5, every_step).losses.back(), run(kSmallRecipe, 5, every_round).losses.back());
}

TEST_P(StepTest, BatchNormLearnsAndKeepsTheSameAveragesOnAllRanks) {
  const std::string recipe = with(kSmallRecipe, "name = \"norm1\"\ntype = \"lrn\"\nsize = 3\nalpha = 0.01",
                                  "name = \"norm1\"\ntype = \"batch_norm\"");
  const int64_t count = device() == Device::kCpu ? 20 : 9;
  const SmallRun one = run(recipe, count);
  EXPECT_LT(one.losses.back(), one.losses.front());
  const SmallRun two = run(recipe, count, {{"parallel.workers", "2"}, {"parallel.strategy", "owt-a"}});
  EXPECT_LT(two.losses.back(), two.losses.front());
  // Means over the step's rows do not depend on how the rows are dealt; the first step uses the same weights.
  const SmallRun first_one = run(recipe, 1);
  const SmallRun first_two = run(recipe, 1, {{"parallel.workers", "2"}, {"parallel.strategy", "dp"}});
  const auto &a = first_one.weights.at("norm1.running_mean"), &b = first_two.weights.at("norm1.running_mean");
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
}

// The sums are equal, and so is the update of every weight and running average on any rank. (A GPU's kernel handles
// weights by fours if possible, and parts have other boundaries; a compiler may fuse an addition in one case only.)
TEST_P(StepTest, SharesOfTheUpdateGiveTheBitsOfDp) {
  const std::string recipe = with(kSmallRecipe, "name = \"norm1\"\ntype = \"lrn\"\nsize = 3\nalpha = 0.01",
                                  "name = \"norm1\"\ntype = \"batch_norm\"");
  for (const char* bucket_mb : {"8", "0.001"}) {
    const Overrides three{{"parallel.workers", "3"}, {"parallel.bucket_mb", bucket_mb}};
    Overrides dp = three, zero = three;
    dp.emplace_back("parallel.strategy", "dp");
    zero.emplace_back("parallel.strategy", "dp-zero");
    const SmallRun expected = run(recipe, steps(12), dp), found = run(recipe, steps(12), zero);
    if (device() == Device::kCpu) {
      EXPECT_EQ(found.losses, expected.losses);
      EXPECT_EQ(found.weights, expected.weights);
    }
    expect_same_losses(expected, found, 1e-6);
    for (const auto& [name, weights] : expected.weights)
      for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(found.weights.at(name)[i], weights[i], 1e-6) << name;
    expect_planned_bytes(found);
  }
}

// On every device: rank 0 updates the weights like a single rank.
TEST_P(StepTest, AStarGivesTheBitsOfDpAndSoDoServers) {
  const std::string recipe = with(kSmallRecipe, "name = \"norm1\"\ntype = \"lrn\"\nsize = 3\nalpha = 0.01",
                                  "name = \"norm1\"\ntype = \"batch_norm\"");
  for (const char* count : {"2", "3", "4"})
    for (const char* bucket_mb : {"8", "0.001"}) {
      if (device() != Device::kCpu && std::string(count) != "3") continue;
      SCOPED_TRACE(concat(count, " workers, buckets of ", bucket_mb, " MB"));
      const auto with_buckets = [&](Strategy strategy) {
        return run(recipe, steps(12), merged(workers(count, strategy), {{"parallel.bucket_mb", bucket_mb}}));
      };
      const SmallRun expected = with_buckets(Strategy::kDataParallel);
      for (const Strategy strategy : {Strategy::kDataParallelStar, Strategy::kParameterServer}) {
        if (!works_on(strategy, device())) continue;
        const SmallRun found = with_buckets(strategy);
        EXPECT_EQ(found.losses, expected.losses);
        EXPECT_EQ(found.weights, expected.weights);
        expect_planned_bytes(found);
        EXPECT_EQ(found.bytes.size(), expected.bytes.size());
      }
    }
}

TEST_P(StepTest, ALossThatIsNotFiniteNamesTheStepAndTheFirstBadLayer) {
  for (const Strategy strategy : strategies()) {
    SCOPED_TRACE(name_of(strategy));
    Overrides changes = workers("2", strategy);
    changes.emplace_back("optimizer.learning_rate", "1e18");
    EXPECT_THAT(message_of([&] { run(kSmallRecipe, 50, changes); }),
                AllOf(HasSubstr("step "), HasSubstr("the first layer with a value that is not finite is '")));
  }
}

// A worker's result of a step on generated images; `spoil` may change the images of a rank.
StepResult result_of(Mode mode, Device device, const Overrides& changes,
                     const std::function<void(Tensor&, int rank)>& spoil = {}) {
  const Settings settings = small_settings(kSmallRecipe, on(device, changes));
  const Plan plan = settings.plan_to_run();
  StepResult result;
  run_ranks(
      plan.ranks(), 1,
      [&](Communicator& comm) {
        Worker worker(settings, plan, comm);
        worker.model.initialize(3);
        Batch batch = on_all_hosts(comm, [&] {
          return made_up_batch(settings.model, rows_of(plan, plan.request.step_rows).of(comm.rank()), plan.request);
        });
        if (spoil) spoil(batch.images, comm.rank());
        const StepResult mine =
            mode == Mode::kEval ? worker.step.evaluate(batch) : worker.step.train(batch, 0, {}, false);
        if (comm.rank() == 0) result = mine;
      },
      device);
  return result;
}

StepResult evaluated(Device device, const Overrides& changes,
                     const std::function<void(Tensor&, int rank)>& spoil = {}) {
  return result_of(Mode::kEval, device, changes, spoil);
}

TEST_P(StepTest, MicroBatchesOfAnEvaluationAddUpToTheWhole) {
  for (const Strategy strategy : strategies()) {
    SCOPED_TRACE(name_of(strategy));
    Overrides changes = workers("3", strategy);
    const LossSums whole = evaluated(device(), changes).sums;
    changes.emplace_back("data.accumulate", "3");
    const LossSums sliced = evaluated(device(), changes).sums;
    EXPECT_EQ(sliced.rows, whole.rows);
    EXPECT_EQ(sliced.top1, whole.top1);
    EXPECT_NEAR(sliced.loss, whole.loss, 1e-4 * whole.loss);
  }
}

// On the CPU an evaluation searches again, in the micro-batch with the bad loss.
TEST_P(StepTest, ALossThatIsNotFiniteInAnyMicroBatchNamesTheFirstBadLayer) {
  for (const int64_t row : {0, 3, 7})
    EXPECT_THAT(message_of([&] {
                  evaluated(device(),
                            {{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}, {"data.accumulate", "3"}},
                            [&](Tensor& images, int rank) {
                              Tensor bad({1, 12, 12, 3});
                              fill(bad, std::nanf(""));
                              if (rank == 2) images.rows(row, row + 1).copy_from(bad.to(images.device()));
                            });
                }),
                HasSubstr("the first layer with a value that is not finite is 'conv1'"));
}

// Layers before all trained ones keep only their last output, so they are run again.
TEST_P(StepTest, ALossThatIsNotFiniteNamesAFrozenLayer) {
  const Overrides frozen{{"optimizer.freeze", "['conv*']"}};
  for (const auto& [strategy, slices] : {std::pair("dp", "1"), {"owt-c", "2"}, {"mp", "3"}})
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      SCOPED_TRACE(concat(strategy, mode == Mode::kTrain ? ", training" : ", evaluation"));
      const Overrides changes =
          merged(frozen, {{"parallel.workers", "3"}, {"parallel.strategy", strategy}, {"data.accumulate", slices}});
      EXPECT_THAT(message_of([&] {
                    result_of(mode, device(), changes, [&](Tensor& images, int) {
                      Tensor bad({1, 12, 12, 3});
                      fill(bad, std::nanf(""));
                      images.rows(1, 2).copy_from(bad.to(images.device()));
                    });
                  }),
                  HasSubstr("the first layer with a value that is not finite is 'conv1'"));
    }
}

TEST_P(StepTest, TheWishOfAnyRankToStopIsHeardByAll) {
  const Settings settings = small_settings(
      kSmallRecipe, {{"parallel.workers", "3"}, {"parallel.strategy", "owt-a"}, {"run.device", name_of(device())}});
  const Plan plan = settings.plan_to_run();
  std::atomic<int> heard{0};
  run_ranks(
      plan.ranks(), 1,
      [&](Communicator& comm) {
        Worker worker(settings, plan, comm);
        Step& step = worker.step;
        worker.model.initialize(3);
        const Batch batch = on_all_hosts(comm, [&] {
          return made_up_batch(settings.model, rows_of(plan, plan.request.step_rows).of(comm.rank()), plan.request);
        });
        for (const int wishes : {-1, 0, 1, 2})
          heard += step.train(batch, wishes + 1, {0.01, 0.01}, comm.rank() == wishes).stop == (wishes >= 0);
      },
      device());
  EXPECT_EQ(heard, 3 * 4);
}

}  // namespace
}  // namespace owt::step_test
