// Frozen layers (optimizer.freeze): the updates of the others equal a run in which the frozen layers have rate 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "src/files/safetensors.h"
#include "src/plan/order.h"
#include "src/plan/plan_bytes.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::frozen_layers_test {
namespace {

using ::testing::AllOf;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;

struct Frozen {
  const char* patterns;             // the patterns in the recipe
  std::vector<std::string> layers;  // matching layers of kSmallRecipe
  bool on_gpus = true;              // a simulated GPU is slow
};
// All of the front part; a layer between trained ones; the first and the last layer; all of the back part; and all
// layers except one.
const Frozen kFrozen[] = {{"['conv*']", {"conv1", "conv2"}, false},
                          {"['conv2']", {"conv2"}},
                          {"['conv1', 'fc3']", {"conv1", "fc3"}},
                          {"['fc?']", {"fc1", "fc2", "fc3"}},
                          {"['conv*', 'fc1']", {"conv1", "conv2", "fc1"}},
                          {"['fc2', 'conv1']", {"conv1", "fc2"}, false},
                          {"['conv*', 'fc[12]']", {"conv1", "conv2", "fc1", "fc2"}}};

bool is_of(const std::string& param, const std::vector<std::string>& layers) {
  return std::ranges::find(layers, param.substr(0, param.find('.'))) != layers.end();
}

// kSmallRecipe with a rate of 0 for weights and biases of these layers.
std::string with_rates_of_zero(const std::vector<std::string>& layers) {
  std::string recipe = kSmallRecipe;
  const std::string rate = "bias = { lr = 2.0, decay = 0.0 }\n";
  recipe.erase(recipe.find(rate), rate.size());
  for (const std::string layer : {"conv1", "conv2", "fc1", "fc2", "fc3"}) {
    const std::string name = "name = \"" + layer + "\"\n";
    const bool frozen = std::ranges::find(layers, layer) != layers.end();
    const std::string keys = frozen ? "lr = 0.0\nbias = { lr = 0.0 }\n" : layer == "conv1" ? rate : "";
    recipe.insert(recipe.find(name) + name.size(), keys);
  }
  return recipe;
}

struct Case {
  const char *strategy, *ranks, *model_ranks = "0", *split = "strategy", *schedule = "1f1b", *precision = "fp32";
};

class FrozenLayers : public ::testing::TestWithParam<std::tuple<Device, Case>> {
 protected:
  Overrides changes(const char* patterns) const {
    const auto& [device, c] = GetParam();
    return {{"run.device", name_of(device)}, {"parallel.strategy", c.strategy},
            {"parallel.workers", c.ranks},   {"parallel.model_ranks", c.model_ranks},
            {"parallel.split", c.split},     {"pipeline.schedule", c.schedule},
            {"pipeline.micro_batches", "3"}, {"parallel.bucket_mb", "0.001"},
            {"run.precision", c.precision},  {"optimizer.freeze", patterns}};
  }
  // In bf16 the differences of two runs grow from step to step.
  int64_t steps() const { return std::get<0>(GetParam()) == Device::kCpu && !bf16() ? 6 : 3; }  // the fifth has 4 rows
  bool bf16() const { return std::get<1>(GetParam()).precision == std::string("bf16"); }
};

void expect_near(const SmallRun& found, const SmallRun& wanted, double bound) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], wanted.losses[i], bound * wanted.losses[i]) << "step " << i;
}

// A rate of 0 keeps a weight too, but its gradient is computed and sent.
const SmallRun& with_rates_of_zero_on_one_rank(const Frozen& frozen, const Overrides& changes, int64_t steps) {
  static std::map<std::string, SmallRun> runs;
  const std::string key = concat(frozen.patterns, changes.front().second, changes.back().second);
  if (!runs.contains(key)) runs[key] = run_small(with_rates_of_zero(frozen.layers), steps, changes);
  return runs.at(key);
}

TEST_P(FrozenLayers, KeepTheirWeightsAndTheOthersLearnTheSame) {
  const auto& [device, c] = GetParam();
  const SmallRun begun = run_small(kSmallRecipe, 0, changes("[]"));
  for (const Frozen& frozen : kFrozen) {
    if (device != Device::kCpu && !frozen.on_gpus) continue;
    SCOPED_TRACE(frozen.patterns);
    const SmallRun found = run_small(kSmallRecipe, steps(), changes(frozen.patterns));
    const SmallRun& wanted = with_rates_of_zero_on_one_rank(
        frozen, {{"run.device", name_of(device)}, {"run.precision", c.precision}}, steps());
    expect_near(found, wanted, bf16() ? 0.006 : 1e-4);
    EXPECT_EQ(found.bytes, found.planned_of_ranks);
    for (const auto& [name, values] : begun.weights) {
      const std::vector<float>& kept = found.weights.at(name);
      if (is_of(name, frozen.layers)) {
        EXPECT_EQ(kept, values) << name;
      } else if (kept.size() == wanted.weights.at(name).size()) {  // whole on this rank
        EXPECT_THAT(kept, Pointwise(FloatNear(bf16() ? 0.01f : 1e-4f), wanted.weights.at(name))) << name;
      }
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<FrozenLayers::ParamType>& info) {
  const auto& [device, c] = info.param;
  std::string name = concat(c.strategy, c.ranks, "_in", c.model_ranks, "_", c.split, c.schedule, c.precision, device);
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    OnTheCpu, FrozenLayers,
    ::testing::Combine(::testing::Values(Device::kCpu),
                       ::testing::Values(Case{"dp", "1"}, Case{"dp", "3"}, Case{"dp-zero", "2"}, Case{"dp-star", "3"},
                                         Case{"ps", "3"}, Case{"owt-a", "2"}, Case{"owt-b", "3"}, Case{"owt-c", "4"},
                                         Case{"owt-d", "3"}, Case{"owt-a", "3", "0", "rows"}, Case{"owt-c", "4", "2"},
                                         Case{"mp", "2"}, Case{"mp", "4", "2"}, Case{"mp", "3", "0", "rows"},
                                         Case{"mp-dense", "3"}, Case{"pipeline", "2"},
                                         Case{"pipeline", "4", "0", "strategy", "gpipe"}, Case{"pipeline", "4", "2"},
                                         Case{"dp", "1", "0", "strategy", "1f1b", "bf16"},
                                         Case{"dp-zero", "3", "0", "strategy", "1f1b", "bf16"},
                                         Case{"owt-d", "2", "0", "strategy", "1f1b", "bf16"})),
    case_name);
INSTANTIATE_TEST_SUITE_P(OnGpus, FrozenLayers,
                         ::testing::Combine(::testing::ValuesIn(gpu_devices()),
                                            ::testing::Values(Case{"dp", "1"}, Case{"dp-zero", "2"}, Case{"owt-d", "3"},
                                                              Case{"mp", "2"}, Case{"pipeline", "3"},
                                                              Case{"dp", "1", "0", "strategy", "1f1b", "bf16"},
                                                              Case{"owt-a", "2", "0", "strategy", "1f1b", "bf16"})),
                         case_name);

const char* const kData = "batch = 12\ntrain_images = 60\naugment = { mean = \"pixel\", scale = 0.02 }";

// A block whose first layer or whole body is frozen; alone, and after trained or frozen layers.
const char* const kResidual = R"(
  { name = "conv", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "block", type = "residual", body = [
    { name = "a", type = "conv", out = 8, kernel = 3, pad = 1LR_A },
    { name = "relu", type = "relu" },
    { name = "b", type = "conv", out = 8, kernel = 3, pad = 1LR_B }], shortcut = [
    { name = "c", type = "conv", out = 8, kernel = 1LR_C }] },
  { name = "fc", type = "dense", out = 10 })";

std::string residual(const std::string& of_zero_rate) {
  std::string layers = kResidual;
  for (const char layer : {'A', 'B', 'C'}) {
    const std::string mark = std::string("LR_") + layer;
    const bool zero = of_zero_rate.find(layer) != std::string::npos;
    layers.replace(layers.find(mark), mark.size(), zero ? ", lr = 0.0, bias = { lr = 0.0 }" : "");
  }
  return recipe_of("[3, 8, 8]", kData, layers);
}

class FrozenParts : public DeviceTest {
 protected:
  SmallRun run(const std::string& recipe, const char* workers = "1", const std::string& patterns = "[]") const {
    return run_small(recipe, 5,
                     {{"run.device", name_of(device())},
                      {"parallel.strategy", "dp"},
                      {"parallel.workers", workers},
                      {"optimizer.freeze", patterns}});
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, FrozenParts, ::testing::ValuesIn(devices()), device_name);

TEST_P(FrozenParts, OfACompositeLayerKeepTheirWeights) {
  for (const auto& [patterns, zero] : {std::pair("['block.a']", "A"), {"['block.[bc]']", "BC"}, {"['block']", "ABC"}})
    for (const bool first : {false, true}) {  // no layer before the block is trained
      SCOPED_TRACE(concat(patterns, first));
      const std::string recipe = residual("");
      std::string reference = residual(zero), names = patterns;
      if (first) {
        const std::string key = "name = \"conv\", type = \"conv\", ";
        reference.insert(reference.find(key) + key.size(), "lr = 0.0, bias = { lr = 0.0 }, ");
        names.insert(1, "'conv', ");
      }
      const SmallRun wanted = run(reference);
      for (const char* workers : {"1", "2"}) {
        const SmallRun found = run(recipe, workers, names);
        expect_near(found, wanted, 1e-4);
        EXPECT_EQ(found.bytes, found.planned_of_ranks);
        for (const auto& [name, values] : wanted.weights)
          EXPECT_THAT(found.weights.at(name), Pointwise(FloatNear(1e-5f), values)) << name;
      }
    }
}

// Its running averages do not depend on the rows that a rank sees.
TEST_P(FrozenParts, ThatNormaliseBatchesMakeRanksEqual) {
  const std::string recipe = recipe_of("[3, 8, 8]", kData, R"(
  { name = "conv", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "bn", type = "batch_norm" },
  { name = "relu", type = "relu" },
  { name = "block", type = "residual", body = [
    { name = "a", type = "conv", out = 8, kernel = 3, pad = 1, bias = false },
    { name = "bn", type = "batch_norm" }] },
  { name = "fc", type = "dense", out = 10 })");
  const SmallRun one = run(recipe, "1", "['*bn']");
  for (const char* workers : {"2", "3"}) {
    const SmallRun many = run(recipe, workers, "['*bn']");
    expect_near(many, one, 1e-4);
    EXPECT_EQ(many.bytes, many.planned_of_ranks);
  }
  for (const auto& [name, values] : run_small(recipe, 0).weights) {
    if (name.find("bn.") != std::string::npos)
      EXPECT_EQ(one.weights.at(name), values) << name;
    else
      EXPECT_NE(one.weights.at(name), values) << name;
  }
}

class FrozenRuns : public ::testing::Test, protected WholeRuns {
 protected:
  std::vector<std::string> tensors_in(const std::string& file) {
    std::vector<std::string> names;
    const SafetensorsReader reader(file);
    for (const auto& entry : reader.entries()) names.push_back(entry.name);
    return names;
  }
  std::string log_of(const std::string& out) const { return read_file(path(out) + "/log.txt"); }
};

TEST_F(FrozenRuns, ResumeBitForBitAndTheirCheckpointsHoldAllWeights) {
  for (const Overrides& parallel :
       {Overrides{{"parallel.workers", "1"}}, Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}},
        Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "dp-zero"}},
        Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "pipeline"}}}) {
    const std::string tag = parallel.back().second;
    SCOPED_TRACE(tag);
    const Overrides changes = merged(merged(kEveryStepLogged, parallel), {{"optimizer.freeze", "['conv*', 'fc2']"}});
    run("whole" + tag, merged(changes, {{"schedule.max_steps", "8"}}));
    run("part" + tag, merged(changes, {{"schedule.max_steps", "3"}}));
    run("part" + tag, merged(changes, {{"schedule.max_steps", "8"}}), "auto");
    EXPECT_EQ(read_file(weights_of("part" + tag)), read_file(weights_of("whole" + tag)));
    EXPECT_EQ(read_file(optimizer_of("part" + tag)), read_file(optimizer_of("whole" + tag)));
    EXPECT_EQ(tensors_in(weights_of("whole" + tag)).size(), 10);
    EXPECT_THAT(tensors_in(optimizer_of("whole" + tag)),
                ::testing::UnorderedElementsAre("fc1.weight", "fc1.bias", "fc3.weight", "fc3.bias"));
    EXPECT_THAT(log_of("part" + tag),
                AllOf(HasSubstr("frozen: conv1, conv2, fc2; 0.00 M of 0.01 M parameters are trained"),
                      Not(HasSubstr("velocities"))));
  }
}

// With momentum 0 a velocity does not affect the next step, so a velocity that begins at 0 changes nothing.
TEST_F(FrozenRuns, ThatResumeWithOtherLayersFrozenBeginTheirVelocitiesAtZero) {
  for (const Overrides& parallel :
       {Overrides{{"parallel.workers", "1"}}, Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "dp-zero"}}}) {
    const std::string out = parallel.back().second;
    const Overrides changes = merged(merged(kEveryStepLogged, parallel), {{"optimizer.momentum", "0"}});
    run(out, merged(changes, {{"schedule.max_steps", "3"}, {"optimizer.freeze", "['conv*', 'fc1']"}}));
    EXPECT_TRUE(
        run(out, merged(changes, {{"schedule.max_steps", "6"}, {"optimizer.freeze", "['fc3']"}}), "auto").finished);
    EXPECT_THAT(log_of(out), HasSubstr("optimizer state of conv1, conv2, fc1 starts at 0"));
    EXPECT_THAT(tensors_in(optimizer_of(out)), ::testing::Contains("conv1.weight"));
    EXPECT_THAT(tensors_in(optimizer_of(out)), Not(::testing::Contains("fc3.weight")));
  }
}

TEST(FrozenSettings, NameLayersThatThereAreAndLeaveOne) {
  const auto with = [](const char* patterns) {
    return [=] { small_settings(kSmallRecipe, {{"optimizer.freeze", patterns}}); };
  };
  EXPECT_THAT(message_of(with("['conv*', 'fc4']")),
              AllOf(HasSubstr("'freeze' has fc4: no layer with weights"), HasSubstr("did you mean 'fc")));
  EXPECT_THAT(message_of(with("['relu1']")), HasSubstr("there are conv1, conv2, fc1, fc2, fc3"));
  EXPECT_THAT(message_of(with("['*']")), HasSubstr("none would be trained"));
  EXPECT_THAT(message_of(with("['conv*', 'fc1', 'fc2', 'fc3']")), HasSubstr("none would be trained"));
}

// Backward ends where no earlier layer is trained, and so do the transfers that it needs.
TEST(FrozenPlan, HasNoBackwardPassBeforeTheFirstLayerThatLearns) {
  const auto plan_of = [](const char* strategy, const char* patterns) {
    return small_settings(kSmallRecipe,
                          {{"parallel.workers", "3"}, {"parallel.strategy", strategy}, {"optimizer.freeze", patterns}})
        .plan_to_run();
  };
  const auto backward = [](const Plan& plan, int place = 0) {
    std::vector<std::string> layers;
    for (const Action& action : training(plan, plan.request.step_rows, place)) {
      if (action.kind == Action::Kind::kBackwardData) layers.push_back(plan.layer(action.layers.begin).name);
      if (action.kind == Action::Kind::kBackwardWeights) layers.back() += "+weights";
    }
    return layers;
  };
  const auto transfers = [](const Plan& plan) {
    std::vector<std::string> names;
    for (const Transfer& transfer : plan.transfers) names.push_back(transfer.name);
    return names;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(backward(plan_of("dp", "['conv*', 'fc1']")), ElementsAre("fc3+weights", "relu4", "fc2+weights"));
  EXPECT_THAT(backward(plan_of("owt-a", "['conv*', 'fc2']")),
              ElementsAre("fc3+weights", "relu4", "fc2", "drop3", "relu3", "fc1+weights"));
  const Plan frozen_front = plan_of("owt-a", "['conv*', 'fc1']");
  EXPECT_THAT(transfers(frozen_front), ElementsAre("labels", "fc1 input", "fc2 input", "fc3 input",
                                                   "fc3 input gradient", "logits", "step result"));
  EXPECT_EQ(gradient_bytes_per_rank(frozen_front), 4 * (6 + 4));  // biases; weights are updated at once
  const Plan stages = plan_of("pipeline", "['conv*', 'fc[12]']");
  EXPECT_THAT(backward(stages, 0), ElementsAre());
  EXPECT_THAT(backward(stages, 2).back(), HasSubstr("fc3"));
  for (const std::string& name : transfers(stages)) EXPECT_THAT(name, Not(HasSubstr("gradient")));
}

}  // namespace
}  // namespace owt::frozen_layers_test
