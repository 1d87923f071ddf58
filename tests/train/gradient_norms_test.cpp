// Clipping by the global norm, and LARS: what updates are scaled by, against double precision and on several ranks.
#include "src/parallel/gradient_norms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/comm/threads.h"
#include "src/core/log.h"
#include "src/core/threads.h"
#include "src/parallel/groups.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Overrides kClip{{"optimizer.clip", "0.2"}};  // below all norms of kSmallRecipe
const Overrides kLars{{"optimizer.type", "lars"}, {"optimizer.learning_rate", "1"}, {"optimizer.trust", "0.02"}};

Overrides on_ranks(const char* strategy, const char* workers, const Overrides& more = {}) {
  return merged({{"parallel.strategy", strategy}, {"parallel.workers", workers}}, more);
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}
double norm_of(const std::vector<float>& values) { return norm_of(std::vector<double>(values.begin(), values.end())); }

class GradientNormsTest : public DeviceTest, protected WholeRuns {
 protected:
  SmallRun small(int64_t steps, const Overrides& changes, const Overrides& more = {}) const {
    return run_small(kSmallRecipe, steps, merged(merged(changes, more), {{"run.device", name_of(device())}}));
  }
  TrainOutcome whole(const std::string& out, const Overrides& changes, const std::string& resume = "") {
    return WholeRuns::run(out, merged(changes, {{"run.device", name_of(device())}}), resume);
  }
  int64_t steps(int64_t on_cpu) const { return device() == Device::kCpu ? on_cpu : std::min<int64_t>(on_cpu, 4); }

  // The gradients of the first step, by name: plain sgd with a rate of 1 moves the weights by them.
  std::map<std::string, std::vector<double>> first_gradients() const {
    const SmallRun none = small(0, {}),
                   one = small(
                       1, {{"optimizer.learning_rate", "1"}, {"optimizer.momentum", "0"}, {"optimizer.decay", "0"}});
    std::map<std::string, std::vector<double>> gradients;
    for (const auto& [name, before] : none.weights)
      for (size_t i = 0; i < before.size(); ++i)
        gradients[name].push_back((static_cast<double>(before[i]) - one.weights.at(name)[i]) /
                                  (name.ends_with("conv1.bias") ? 2 : 1));  // its lr
    return gradients;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, GradientNormsTest, ::testing::ValuesIn(devices()), device_name);

// Of the second rank the front does not count, and of the split layers its own part does, in several chunks; the last
// layer's gradients are zero whatever their memory holds.
TEST_P(GradientNormsTest, AreThoseOfDoublePrecision) {
  const Settings settings = small_settings(recipe_of("[3, 32, 32]", "batch = 4", R"(
  { name = "conv", type = "conv", out = 4, kernel = 3 },
  { name = "bn", type = "batch_norm" },
  { name = "fc1", type = "dense", out = 30 },
  { name = "fc2", type = "dense", out = 10 })"),
                                           on_ranks("owt-a", "2", merged(kClip, {{"run.device", name_of(device())}})));
  const Plan plan = settings.plan_to_run();
  run_ranks(
      2, 1,
      [&](Communicator& comm) {
        RankModel model(settings.model, plan, comm.rank());
        const Groups groups(plan, comm);
        const auto layer_of = [&](int64_t layer) -> Layer& { return model.layer(layer); };
        const auto front = make_front_sync(plan, layer_of, groups), back = make_dense_sync(plan, layer_of, groups);
        model.allocate(plan.request.on);
        std::vector<double> wanted;  // sums of squares that count here
        for (int64_t i = 0; i < std::ssize(plan.layers); ++i)
          for (Param* param : model.layer(i).params()) {
            std::vector<float> values;
            for (int64_t e = 0; e < param->shape().elements(); ++e)
              values.push_back(static_cast<float>(std::sin(static_cast<double>(e + 1) * (comm.rank() + 1))));
            param->grad.copy_from(upload(values, param->shape(), Device::kCpu));
            param->grad_is_zero = i == 3;
            if (param->role != ParamRole::kTrained) continue;
            const bool counts = (i >= plan.boundary || comm.rank() == 0) && i != 3;
            wanted.push_back(counts ? norm_of(values) * norm_of(values) : 0);
          }
        GradientNorms norms(plan, model, *front, comm.rank(), {.clip = 3});
        const Stream stream(device());
        Tensor norm({1}, DType::kF64, device());
        norms.add_up(stream);
        norms.settle(0.5, norm, stream);
        stream.synchronize();
        const Tensor sums = norms.sums().to(Device::kCpu);
        ASSERT_EQ(sums.elements(), std::ssize(wanted));
        double all = 0;
        for (size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_NEAR(sums.data<double>()[i], wanted[i], 1e-9 * wanted[i]) << i;
          all += wanted[i];
        }
        EXPECT_NEAR(*norm.to(Device::kCpu).data<double>(), 0.5 * std::sqrt(all), 1e-9 * std::sqrt(all));
      },
      device());
}

TEST_P(GradientNormsTest, ClippingScalesTheGradientsAsPyTorchDoes) {
  const auto gradients = first_gradients();
  std::vector<double> all;
  for (const auto& [name, values] : gradients) all.insert(all.end(), values.begin(), values.end());
  const double norm = norm_of(all);
  for (const double clip : {0.25 * norm, 4 * norm}) {
    const Overrides changes{{"optimizer.clip", format("{}", clip)}};
    const SmallRun none = small(0, changes), one = small(1, changes);
    ASSERT_EQ(one.gradient_norms.size(), 1u);
    EXPECT_NEAR(one.gradient_norms[0], norm, 1e-5 * norm);
    const double factor = std::min(1.0, clip / (norm + 1e-6));
    for (const auto& [name, before] : none.weights) {
      const bool bias = name == "conv1.bias";  // twice the rate, no decay
      for (size_t i = 0; i < before.size(); ++i) {
        const double decayed = bias ? 0 : 0.001 * before[i];
        const double wanted = before[i] - 0.02 * (bias ? 2 : 1) * (factor * gradients.at(name)[i] + decayed);
        ASSERT_NEAR(one.weights.at(name)[i], wanted, 1e-6) << name << ", " << i;
      }
    }
  }
}

TEST_P(GradientNormsTest, LarsScalesTheRateOfEveryWeightByItsNorms) {
  const auto gradients = first_gradients();
  for (const bool all : {false, true}) {
    const Overrides changes = merged(kLars, {{"optimizer.adapt_all", all ? "true" : "false"}});
    const SmallRun none = small(0, changes), one = small(1, changes);
    for (const auto& [name, before] : none.weights) {
      const bool bias = name == "conv1.bias";
      const double w = norm_of(before), g = norm_of(gradients.at(name)), decay = bias ? 0 : 0.001;
      const bool adapted = (all || name.ends_with(".weight")) && w > 0;  // biases begin at zero
      const double rate = (bias ? 2 : 1) * (adapted ? 0.02 * w / (g + decay * w + 1e-9) : 1);
      for (size_t i = 0; i < before.size(); ++i)
        ASSERT_NEAR(one.weights.at(name)[i], before[i] - rate * (gradients.at(name)[i] + decay * before[i]), 2e-5)
            << name << ", " << i;
    }
  }
}

// With momentum, and LARS of clipped gradients with Nesterov's.
TEST_P(GradientNormsTest, LearnTheSameOnAnyNumberOfRanks) {
  std::vector<Overrides> cases{on_ranks("dp", "3"), on_ranks("dp-zero", "3"),
                               on_ranks("owt-c", "4", {{"parallel.model_ranks", "2"}}), on_ranks("mp", "2"),
                               on_ranks("pipeline", "2")};
  if (device() == Device::kCpu)
    for (const Overrides& more :
         {on_ranks("dp-star", "3"), on_ranks("dp-zero", "4"), on_ranks("owt-a", "3"), on_ranks("owt-b", "4"),
          on_ranks("owt-c", "2", {{"data.accumulate", "2"}}), on_ranks("dp-zero", "2", {{"data.accumulate", "3"}}),
          on_ranks("owt-d", "4"), on_ranks("owt-d", "6", {{"parallel.model_ranks", "3"}}), on_ranks("mp-dense", "3"),
          on_ranks("mp", "4", {{"parallel.model_ranks", "2"}}), on_ranks("mp", "3", {{"parallel.split", "rows"}}),
          on_ranks("pipeline", "4", {{"parallel.model_ranks", "2"}}),
          on_ranks("pipeline", "3", {{"pipeline.schedule", "gpipe"}}),
          on_ranks("owt-a", "3", {{"parallel.shares", "[1, 3, 2]"}}),
          on_ranks("owt-c", "2", {{"parallel.shares", "[1000, 1]"}})})
      cases.push_back(more);
  for (const Overrides& rule :
       {kClip, kLars, merged(kLars, {{"optimizer.clip", "0.2"}, {"optimizer.nesterov", "true"}})}) {
    const SmallRun one = small(steps(11), rule);
    ASSERT_EQ(one.gradient_norms.size(), static_cast<size_t>(steps(11)));
    EXPECT_GT(*std::min_element(one.gradient_norms.begin(), one.gradient_norms.end()), 0.2);
    for (const Overrides& on : cases) {
      SCOPED_TRACE(concat(rule[0].second, ", ", on[0].second, " on ", on[1].second, " ranks ", on.back().second));
      const SmallRun many = small(steps(11), rule, on);
      for (size_t i = 0; i < one.losses.size(); ++i) {
        ASSERT_NEAR(many.losses[i], one.losses[i], 2e-4 * one.losses[i]) << "step " << i;
        ASSERT_NEAR(many.gradient_norms[i], one.gradient_norms[i], 2e-3 * one.gradient_norms[i]) << "step " << i;
      }
      EXPECT_EQ(many.bytes, many.planned_of_ranks);
      EXPECT_EQ(*std::max_element(many.bytes.begin(), many.bytes.end()), many.planned_bytes);
    }
  }
}

// A rank that learns by itself clips its own gradients.
TEST_P(GradientNormsTest, UnderLocalSgdAreTheRanks) {
  const Overrides local = on_ranks("dp", "2", merged(kClip, {{"parallel.average_every", "3"}}));
  const SmallRun run = small(steps(6), local), plain = small(1, {}, kClip);
  EXPECT_EQ(run.bytes, run.planned_of_ranks);
  EXPECT_NE(run.gradient_norms[0], plain.gradient_norms[0]);
  for (const double norm : run.gradient_norms) EXPECT_TRUE(std::isfinite(norm) && norm > 0);
  EXPECT_THAT(message_of([&] {
                small(1, on_ranks("owt-a", "2", merged(kClip, {{"parallel.average_every", "3"}})));
              }),
              AllOf(HasSubstr("gradients cannot be clipped"), HasSubstr("parallel.average_every under owt-a"),
                    HasSubstr("use dp, or leave average_every out")));
}

TEST_P(GradientNormsTest, AreNotThereBeforeUpdatesOfPartsOfAStep) {
  EXPECT_THAT(message_of([&] {
                small(1, on_ranks("owt-c", "2", merged(kLars, {{"parallel.dense_update", "round"}})));
              }),
              HasSubstr("with an update after every round (parallel.dense_update); use \"step\""));
  EXPECT_THAT(message_of([&] {
                small(1, on_ranks("pipeline", "2", merged(kClip, {{"pipeline.schedule", "pipedream"}})));
              }),
              HasSubstr("with an update after every micro-batch (pipeline.schedule); use \"1f1b\""));
}

// Every copy of a weight has the same bits after every step, or the run would end.
TEST_P(GradientNormsTest, LeaveCopiesOfWeightsAlikeToTheLastBitAndGoOnBitForBit) {
  const Overrides all{{"run.log_every", "1"}, {"schedule.max_steps", "7"}, {"run.equality_every", "1"}};
  for (const Overrides& on : {on_ranks("owt-d", "4", {{"parallel.model_ranks", "2"}}), on_ranks("dp-zero", "3")})
    for (const Overrides& rule : {kClip, kLars}) {
      const std::string tag = on[0].second + rule[0].second;
      SCOPED_TRACE(tag);
      const Overrides changes = merged(merged(all, on), rule);
      whole("whole" + tag, changes);
      whole("part" + tag, merged(changes, {{"schedule.max_steps", "3"}}));
      ConvChoices::process().clear();
      whole("part" + tag, changes, "auto");
      EXPECT_EQ(read_file(weights_of("part" + tag)), read_file(weights_of("whole" + tag)));
      EXPECT_EQ(read_file(optimizer_of("part" + tag)), read_file(optimizer_of("whole" + tag)));
    }
}

TEST_P(GradientNormsTest, AreInTheMetrics) {
  const auto lines = [&](const std::string& out) {
    std::vector<nlohmann::json> all;
    std::ifstream file(path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (nlohmann::json record = nlohmann::json::parse(line); record["kind"] == "train") all.push_back(record);
    return all;
  };
  const Overrides two{{"run.log_every", "1"}, {"schedule.max_steps", "2"}};
  const SmallRun steps = small(2, kClip);
  whole("with", merged(two, kClip));
  whole("without", two);
  ASSERT_EQ(lines("with").size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(lines("with")[i]["gradient_norm"].get<double>(), steps.gradient_norms[i], 1e-6);
    EXPECT_FALSE(lines("without")[i].contains("gradient_norm"));
  }
}

// Sums in any number of threads are those of one.
TEST(GradientNorms, OnTheCpuDoNotDependOnThreads) {
  Tensor values({100003});
  for (int64_t i = 0; i < values.elements(); ++i) values.data()[i] = std::sin(static_cast<float>(i));
  const auto sum = [&](int threads) {
    set_team_size(threads);
    NormMemory memory{Tensor({1}, DType::kF64), Tensor({7}, DType::kF64), Tensor({2}, DType::kI64), {}, {}};
    memory.first_chunk.data<int64_t>()[0] = 0;
    memory.first_chunk.data<int64_t>()[1] = 7;
    const SquareItem item{values.raw(), false, values.elements(), 0};
    add_squares(Cpu{}, {&item, 1}, memory, Stream());
    return memory.sums.data<double>()[0];
  };
  const int before = team_size();
  const double one = sum(1), three = sum(3);
  set_team_size(before);
  EXPECT_EQ(one, three);
  EXPECT_NEAR(one, 50001.5, 1);
}

}  // namespace
}  // namespace owt
