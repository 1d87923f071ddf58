// Clipping by the global norm, and LARS: factors of updates, against double precision and on several ranks.
#include "src/parallel/gradient_norms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/comm/threads.h"
#include "src/core/threads.h"
#include "src/plan/groups.h"
#include "src/system/log.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::gradient_norms_test {
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

// For the second rank the front part does not count; of the split layers it counts its own part, in several chunks. The
// last layer's gradients are zero whatever their memory holds.
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

// The first elements of every parameter after four updates at changing rates, in double precision. Printed by
// tools/bench/torch_optimizers.py: PyTorch's optimizers after clip_grad_norm_, and LARS.
const struct {
  Overrides keys;
  std::vector<float> weights;
} kFigures[] = {
    {{{"momentum_correction", "true"}, {"clip", "2"}},
     {-0.331955150, 0.164442173, -0.291428912, -0.146401248, 0.398818585, 0.229467311, 0.047824529, -0.274509606,
      0.417189182, 0.421437716, 0.111797679, -0.555464804}},
    {{{"momentum_correction", "true"}, {"nesterov", "true"}, {"clip", "0.25"}},
     {-0.385002058, 0.156695662, -0.178432340, -0.158663112, 0.394629954, 0.108396376, 0.072642826, -0.244868597,
      0.335977069, 0.490874713, 0.022082390, -0.515024189}},
    {{{"type", "adamw"}, {"eps", "0.01"}, {"clip", "2"}},
     {-0.308903418, 0.240380076, -0.417912243, -0.041600462, 0.342352405, 0.342800293, -0.002898901, -0.375265041,
      0.614983994, 0.303189262, 0.235919346, -0.626370818}},
    {{{"type", "lars"}, {"trust", "0.5"}},
     {-0.440572002, 0.204411661, -0.319222792, -0.059304199, 0.131039551, 0.469123535, 0.076118137, -0.303332024,
      0.470185397, 0.130675000, 0.305953125, -0.678937500}},
    {{{"type", "lars"}, {"trust", "0.5"}, {"nesterov", "true"}, {"adapt_all", "true"}, {"clip", "2"}},
     {-0.391711042, 0.182739778, -0.291568096, -0.168415396, 0.445465826, 0.209301620, 0.064226373, -0.288688014,
      0.432631226, 0.390431102, 0.158843428, -0.581407960}},
};

// Values for elements of a parameter, by their indexes in the whole parameter; the same as in that script.
float figure_weight(int64_t param, int64_t element) {
  return static_cast<float>((7 * element + 3 * param) % 11 - 5) / 8;
}
float figure_gradient(int64_t update, int64_t param, int64_t element) {
  constexpr float kScales[] = {1, 4, 0.5, 2};
  const float scale = update == 2 && param == 2 ? 0 : kScales[update];
  return scale * static_cast<float>((5 * element + 3 * param + 2 * update) % 13 - 6) / 16;
}

// What is here of the weights after those updates, of two dense layers. With two ranks every parameter is split.
std::vector<float> figures_of(const Settings& settings, const Plan& plan, Communicator& comm, size_t shown,
                              const std::vector<float>& otherwise) {
  const Device device = plan.request.on.device;
  const Stream stream(device);
  RankModel model(settings.model, plan, comm.rank());
  const Groups groups(plan, comm);
  const auto front = make_front_sync(
      plan, [&](int64_t layer) -> Layer& { return model.layer(layer); }, groups);
  model.allocate(plan.request.on);
  GradientNorms norms(plan, model, *front, comm.rank(), settings.optimizer.norms());
  Optimizer optimizer(settings.optimizer);
  optimizer.go_by(norms);
  const std::vector<Param*> params = model.params();
  const auto first = [&](size_t p) { return params[p]->part.begin * params[p]->full_shape.row_elements(); };
  const auto values = [&](size_t p, const auto& of) {
    Tensor made(params[p]->shape());
    for (int64_t i = 0; i < made.elements(); ++i) made.data()[i] = of(static_cast<int64_t>(p), first(p) + i);
    return made;
  };
  for (size_t p = 0; p < params.size(); ++p) params[p]->set_value(values(p, figure_weight));
  Tensor norm({1}, DType::kF64, device), rates({StepRates::kNumbers}, DType::kF64);
  for (int64_t update = 0; update < 4; ++update) {
    for (size_t p = 0; p < params.size(); ++p) {
      params[p]->grad.copy_from(values(p, [&](int64_t param, int64_t i) { return figure_gradient(update, param, i); }));
      params[p]->grad_is_zero = false;
    }
    norms.add_up(stream);
    comm.all_reduce(norms.sums(), stream.record()).wait();
    norms.settle(1, norm, stream);
    const double rate = std::vector<double>{0.1, 0.1, 0.025, 0.05}[static_cast<size_t>(update)];
    const StepRates now{rate, rate, static_cast<double>(update)};
    std::copy_n(&now.weights, StepRates::kNumbers, rates.data<double>());
    optimizer.update(params, {now, rates.to(device)}, 1, stream);
    stream.synchronize();
  }
  std::vector<float> found = otherwise;
  for (size_t p = 0; p < params.size(); ++p) {
    const std::vector<float> here = download(params[p]->value);
    for (size_t i = 0; i < shown; ++i)
      if (const auto at = static_cast<int64_t>(i) - first(p); at >= 0 && at < std::ssize(here))
        found[shown * p + i] = here[static_cast<size_t>(at)];
  }
  return found;
}

TEST_P(GradientNormsTest, LearnWhatPyTorchAndTheFormulasOfLarsDo) {
  for (const auto& [keys, wanted] : kFigures)
    for (const char* ranks : {"1", "2"}) {
      SCOPED_TRACE(concat(keys[0].second, ", ", keys.back().first, ", ", ranks, " ranks"));
      Overrides changes = on_ranks("owt-a", ranks, {{"run.device", name_of(device())}, {"optimizer.decay", "0.5"}});
      for (const auto& [key, value] : keys) changes.emplace_back("optimizer." + key, value);
      const Settings settings = small_settings(recipe_of("[3, 1, 1]", "batch = 4", R"(
  { name = "fc1", type = "dense", out = 3 },
  { name = "fc2", type = "dense", out = 10, bias = { decay = 0.0 } })"),
                                               changes);
      const Plan plan = settings.plan_to_run();
      run_ranks(
          plan.ranks(), 1,
          [&](Communicator& comm) {
            const std::vector<float> found = figures_of(settings, plan, comm, 3, wanted);
            EXPECT_THAT(found, ::testing::Pointwise(::testing::FloatNear(1e-6f), wanted)) << "rank " << comm.rank();
          },
          device());
    }
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
      // A simulated GPU is slow: the last rule has the others' factors.
      if (device() != Device::kCpu && rule.size() < 5 && on != cases[1]) continue;
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

// Parameters of several chunks, which buckets cut anywhere, of which some ranks have more columns than others.
const std::string kLargeLayers = recipe_of(
    "[3, 12, 12]", "train_images = 30\nside = 12\nbatch = 12\naugment = { scale = 0.02, mean = \"channel\" }", R"(
  { name = "conv1", type = "conv", out = 40, kernel = 5, pad = 2, init = { type = "msra" } },
  { name = "norm1", type = "batch_norm", rows = 2 },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 62, kernel = 3, stride = 2, init = { type = "msra" } },
  { name = "relu2", type = "relu" },
  { name = "fc1", type = "dense", out = 101 },
  { name = "relu3", type = "relu" },
  { name = "fc2", type = "dense", out = 10 })",
    0.01);

TEST_P(GradientNormsTest, OfLargeLayersLearnTheSameOnAnyNumberOfRanks) {
  const bool is_cpu = device() == Device::kCpu;  // a simulated GPU is slow
  std::vector<Overrides> cases{on_ranks("dp-zero", "3", {{"parallel.bucket_mb", "0.05"}}), on_ranks("owt-d", "3")};
  if (is_cpu)
    for (const Overrides& more :
         {on_ranks("dp", "4"), on_ranks("dp-star", "3", {{"parallel.bucket_mb", "0.05"}}),
          on_ranks("dp-zero", "4", {{"parallel.shares", "[1, 3, 2, 5]"}}), on_ranks("owt-a", "4"),
          on_ranks("owt-b", "3", {{"parallel.shares", "[1, 3, 2]"}}),
          on_ranks("owt-c", "3", {{"data.accumulate", "2"}}),
          on_ranks("owt-c", "4", {{"parallel.model_ranks", "2"}, {"parallel.shares", "[1, 3, 2, 5]"}}),
          on_ranks("owt-d", "6", {{"parallel.model_ranks", "3"}, {"parallel.split", "rows"}}), on_ranks("mp", "3"),
          on_ranks("mp", "4", {{"parallel.model_ranks", "2"}, {"parallel.split", "rows"}}), on_ranks("mp-dense", "3"),
          on_ranks("pipeline", "3")})
      cases.push_back(more);
  const Overrides lars = merged(kLars, {{"optimizer.clip", "1"}, {"optimizer.adapt_all", "true"}}),
                  adamw{{"optimizer.type", "adamw"},
                        {"optimizer.learning_rate", "0.001"},
                        {"optimizer.eps", "0.01"},
                        {"optimizer.clip", "1"}};
  const auto run = [&](const Overrides& rule, const Overrides& on) {
    return run_small(kLargeLayers, steps(6), merged(merged(rule, on), {{"run.device", name_of(device())}}));
  };
  const auto compare = [](const SmallRun& one, const SmallRun& many, double bound, size_t losses = 6) {
    for (size_t i = 0; i < std::min(losses, one.losses.size()); ++i) {
      ASSERT_NEAR(many.losses[i], one.losses[i], bound * one.losses[i]) << "step " << i;
      ASSERT_NEAR(many.gradient_norms[i], one.gradient_norms[i], 10 * bound * one.gradient_norms[i]) << "step " << i;
    }
    EXPECT_EQ(many.bytes, many.planned_of_ranks);
  };
  for (const Overrides& rule : {lars, adamw}) {
    const bool is_lars = rule == lars;
    const SmallRun one = run(rule, {});
    EXPECT_GT(*std::max_element(one.gradient_norms.begin(), one.gradient_norms.end()), 1);
    for (const Overrides& on : cases) {
      if (!is_cpu && is_lars != (on == cases.front())) continue;
      SCOPED_TRACE(concat(rule[0].second, ", ", on[0].second, " on ", on[1].second, " ranks ", on.back().second));
      compare(one, run(rule, on), 1e-4);
      // What rounding changes grows from step to step.
      if (is_lars) compare(one, run(rule, merged(on, {{"parallel.wire", "bf16"}})), 0.02, 2);
    }
  }
}

// A rank that trains separately clips its own gradients.
TEST_P(GradientNormsTest, UnderLocalSgdAreTheRanks) {
  const Overrides local = on_ranks("dp", "2", merged(kClip, {{"parallel.average_every", "3"}}));
  const SmallRun run = small(steps(6), local), plain = small(1, {}, kClip);
  EXPECT_EQ(run.bytes, run.planned_of_ranks);
  EXPECT_NE(run.gradient_norms[0], plain.gradient_norms[0]);
  for (const double norm : run.gradient_norms) EXPECT_TRUE(std::isfinite(norm) && norm > 0);
  EXPECT_THAT(message_of([&] {
                small(1, on_ranks("owt-a", "2", merged(kClip, {{"parallel.average_every", "3"}})));
              }),
              AllOf(HasSubstr("clipping and LARS need the norms"), HasSubstr("parallel.average_every under owt-a"),
                    HasSubstr("use dp, or leave average_every out")));
}

TEST_P(GradientNormsTest, AreNotThereBeforeUpdatesOfPartsOfAStep) {
  EXPECT_THAT(message_of([&] {
                small(1, on_ranks("owt-c", "2", merged(kLars, {{"parallel.dense_update", "round"}})));
              }),
              HasSubstr("but the weights are updated after every round (parallel.dense_update); use \"step\""));
  EXPECT_THAT(message_of([&] {
                small(1, on_ranks("pipeline", "2", merged(kClip, {{"pipeline.schedule", "pipedream"}})));
              }),
              HasSubstr("but the weights are updated after every micro-batch (pipeline.schedule); use \"1f1b\""));
}

// Every copy of a weight has the same bits after every step; otherwise the run would end.
TEST_P(GradientNormsTest, LeaveCopiesOfWeightsEqualToTheLastBitAndResumeBitForBit) {
  const Overrides all{{"run.log_every", "1"}, {"schedule.max_steps", "7"}, {"run.equality_every", "1"}};
  for (const Overrides& on : {on_ranks("owt-d", "4", {{"parallel.model_ranks", "2"}}), on_ranks("dp-zero", "3")})
    for (const Overrides& rule : {kClip, kLars}) {
      // A simulated GPU is slow.
      if (device() != Device::kCpu && (rule == kLars) != (on[0].second == "dp-zero")) continue;
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

// Sums do not depend on the number of threads.
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
}  // namespace owt::gradient_norms_test
