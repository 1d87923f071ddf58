#include "src/parallel/weight_ema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/core/bf16.h"
#include "src/files/safetensors.h"
#include "src/system/log.h"
#include "src/train/evaluate.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::weight_ema_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(EmaSettings, TheDecayGrowsFromLittleToWhatItSaysAndCountsForEveryStep) {
  const EmaSettings plain{.decay = 0.5, .warmup = false}, warm{.decay = 0.5};
  EXPECT_DOUBLE_EQ(plain.kept(0, 1, 0), 0.5);
  EXPECT_DOUBLE_EQ(plain.kept(7, 10, 0.5), 0.125);
  EXPECT_DOUBLE_EQ(warm.kept(0, 1, 0), 2.0 / 11);
  EXPECT_DOUBLE_EQ(warm.kept(6, 9, 0.5), 8.0 / 17 * 0.5 * 0.5);  // 9 / 18 is 0.5
}

TEST(EmaSettings, ARampMultipliesAnUpdateByAPowerOfTheProgress) {
  const EmaSettings ramp{.decay = 0.5, .warmup = false, .ramp = 3};
  EXPECT_EQ(ramp.kept(0, 2, 0), 0);
  EXPECT_DOUBLE_EQ(ramp.kept(7, 9, 0.5), 0.25 * 0.125);
  EXPECT_DOUBLE_EQ(ramp.kept(9, 10, 1), 0.5);
}

class WeightEmaTest : public DeviceTest {
 protected:
  Param make_param(const std::vector<float>& value, Precision precision) const {
    Param param;
    param.name = "w";
    param.full_shape = Shape{static_cast<int64_t>(value.size())};
    param.part = {0, static_cast<int64_t>(value.size())};
    param.cpu_reads_copy16 = true;
    param.allocate({device(), precision});
    set(param, value);
    return param;
  }
  static void set(Param& param, const std::vector<float>& value) {
    param.set_value(upload(value, param.shape(), Device::kCpu));
  }
  // Before the weights change: set() does so at once.
  void begin(WeightEma& ema) const {
    const Stream stream(device());
    ema.begin(stream);
    stream.synchronize();
  }
  void update(WeightEma& ema, double kept) const {
    Tensor here({1}, DType::kF64);
    here.data<double>()[0] = kept;
    const Stream stream(device());
    ema.update(kept, here.to(device()), stream);
    stream.synchronize();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, WeightEmaTest, ::testing::ValuesIn(devices()), device_name);

// More parameters than one GPU launch takes, of different lengths, one of them empty.
TEST_P(WeightEmaTest, AveragesAsInDoublePrecision) {
  std::vector<Param> params;
  std::vector<Param*> all;
  const auto value = [](size_t param, int64_t i, int step) {
    return static_cast<float>(std::sin(static_cast<double>(param) + 0.1 * static_cast<double>(i) + step));
  };
  const auto values = [&](size_t param, int64_t count, int step) {
    std::vector<float> made;
    for (int64_t i = 0; i < count; ++i) made.push_back(value(param, i, step));
    return made;
  };
  const auto count = [](size_t param) { return param == 3 ? 0 : param == 7 ? 70001 : int64_t(param) % 9 + 1; };
  for (size_t p = 0; p < 100; ++p) params.push_back(make_param(values(p, count(p), 0), Precision::kFp32));
  for (Param& param : params) all.push_back(&param);
  WeightEma ema(all);
  begin(ema);
  std::vector<std::vector<double>> wanted;
  for (size_t p = 0; p < params.size(); ++p) {
    const std::vector<float> first = values(p, count(p), 0);
    wanted.emplace_back(first.begin(), first.end());
  }
  for (int step = 1; step <= 4; ++step) {
    const double kept = 0.9 - 0.1 * step;
    for (size_t p = 0; p < params.size(); ++p) {
      set(params[p], values(p, count(p), step));
      for (int64_t i = 0; i < count(p); ++i) {
        double& average = wanted[p][static_cast<size_t>(i)];
        average = kept * average + (1 - kept) * value(p, i, step);
      }
    }
    update(ema, kept);
  }
  for (size_t p = 0; p < params.size(); ++p) {
    const std::vector<float> found = download(ema.of(params[p]));
    ASSERT_EQ(found.size(), wanted[p].size());
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[p][i], 1e-6) << p << ", " << i;
    EXPECT_EQ(download(params[p].value), values(p, count(p), 4));
  }
}

TEST_P(WeightEmaTest, OfEqualWeightsStaysThatToTheLastBit) {
  Param param = make_param({0.1f, 1e30f, -3e-40f}, Precision::kFp32);
  WeightEma ema({&param});
  begin(ema);
  for (int step = 0; step < 3; ++step) update(ema, 0.9999);
  EXPECT_EQ(download(ema.of(param)), download(param.value));
}

TEST_P(WeightEmaTest, TakesTheWeightsPlaceWithItsCopyInBf16AndGivesItBack) {
  Param param = make_param({1, 2.5}, Precision::kBf16);
  WeightEma ema({&param});
  const Stream stream(device());
  begin(ema);
  set(param, {3, 0.1f});
  update(ema, 0.5);
  const uint64_t version = param.version;
  ema.swap(stream);
  stream.synchronize();
  EXPECT_THAT(download(param.value), ElementsAre(2, 1.3f));
  EXPECT_THAT(download(param.copy16), ElementsAre(2, static_cast<float>(Bf16(1.3f))));
  EXPECT_GT(param.version, version);
  ema.swap(stream);
  stream.synchronize();
  EXPECT_THAT(download(param.value), ElementsAre(3, 0.1f));
  EXPECT_THAT(download(param.copy16), ElementsAre(3, static_cast<float>(Bf16(0.1f))));
}

TEST_P(WeightEmaTest, GivesTheWeightsItsValuesWithTheirCopyInBf16) {
  Param param = make_param({1, 2.5}, Precision::kBf16);
  WeightEma ema({&param});
  const Stream stream(device());
  begin(ema);
  set(param, {3, 0.1f});
  update(ema, 0.5);
  const uint64_t version = param.version;
  ema.give(stream);
  stream.synchronize();
  EXPECT_THAT(download(param.value), ElementsAre(2, 1.3f));
  EXPECT_THAT(download(ema.of(param)), ElementsAre(2, 1.3f));
  EXPECT_THAT(download(param.copy16), ElementsAre(2, static_cast<float>(Bf16(1.3f))));
  EXPECT_GT(param.version, version);
}

using Tensors = std::map<std::string, std::vector<float>>;

Tensors tensors_of(const std::string& path) {
  SafetensorsReader file(path);
  Tensors all;
  for (const auto& entry : file.entries()) all[entry.name] = download(file.read(entry.name));
  return all;
}

void expect_near(const Tensors& found, const Tensors& wanted, double bound) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, values] : wanted)
    EXPECT_THAT(found.at(name), ::testing::Pointwise(::testing::FloatNear(static_cast<float>(bound)), values)) << name;
}

Overrides on_ranks(const char* strategy, const char* workers, const Overrides& more = {}) {
  return merged({{"parallel.strategy", strategy}, {"parallel.workers", workers}}, more);
}

const Overrides kShort{{"run.log_every", "1"}, {"schedule.max_steps", "8"}};  // the fifth step is short
const Overrides kEma{{"optimizer.ema", "0.7"}};

const Overrides kLookahead{{"optimizer.ema", "0.7"},
                           {"optimizer.ema_every", "3"},
                           {"optimizer.ema_warmup", "false"},
                           {"optimizer.lookahead", "true"}};

class RunsWithEma : public DeviceTest, protected WholeRuns {
 protected:
  TrainOutcome run(const std::string& out, const Overrides& changes, const std::string& resume = "",
                   const std::string& weights = "") {
    return WholeRuns::run(out, merged(changes, {{"run.device", name_of(device())}}), resume, weights);
  }
  std::string ema_of(const std::string& out) const { return *newest_checkpoint(path(out)) + "/ema.safetensors"; }
  std::string at(const std::string& out, int step) const {
    return format("{}/checkpoints/step-{:08}/weights.safetensors", path(out), step);
  }

  // From weights after every step of one rank, by the definition; `first`: the file that it started from.
  Tensors reference(const std::string& out, const std::string& first, int steps, double decay) const {
    std::map<std::string, std::vector<double>> averages;
    for (const auto& [name, values] : tensors_of(first)) averages[name] = {values.begin(), values.end()};
    for (int n = 1; n <= steps; ++n) {
      const double kept = std::min(decay, (1.0 + n) / (10 + n));
      for (const auto& [name, values] : tensors_of(at(out, n)))
        for (size_t i = 0; i < values.size(); ++i)
          averages[name][i] = kept * averages[name][i] + (1 - kept) * values[i];
    }
    Tensors rounded;
    for (const auto& [name, values] : averages) rounded[name] = {values.begin(), values.end()};
    return rounded;
  }
  std::vector<nlohmann::json> evaluations(const std::string& out) const {
    std::vector<nlohmann::json> all;
    std::ifstream file(path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (nlohmann::json record = nlohmann::json::parse(line); record["kind"] == "eval") all.push_back(record);
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, RunsWithEma, ::testing::ValuesIn(devices()), device_name);

TEST_P(RunsWithEma, AverageTheWeightsOfAllStepsWhateverTheStrategyAndTheNumberOfRanks) {
  run("first", {{"schedule.max_steps", "1"}});
  const std::string first = weights_of("first");
  run("plain", merged(kShort, {{"run.checkpoint_every_steps", "1"}, {"run.keep_checkpoints", "100"}}), "", first);
  const Tensors wanted = reference("plain", first, 8, 0.7);
  std::vector<Overrides> cases{on_ranks("dp", "1"), on_ranks("dp-zero", "3"),
                               on_ranks("owt-d", "4", {{"parallel.model_ranks", "2"}}), on_ranks("pipeline", "3")};
  if (device() == Device::kCpu)
    for (const Overrides& more :
         {on_ranks("dp", "3"), on_ranks("dp-star", "3"), on_ranks("ps", "3"),
          on_ranks("owt-a", "3", {{"parallel.shares", "[1, 3, 2]"}}), on_ranks("owt-b", "4"), on_ranks("owt-c", "4"),
          on_ranks("mp", "3"), on_ranks("mp-dense", "2"), on_ranks("mp", "2", {{"parallel.split", "rows"}})})
      cases.push_back(more);
  for (const Overrides& on : cases) {
    const std::string out = on[0].second + on[1].second;
    SCOPED_TRACE(out);
    run(out, merged(merged(kShort, kEma), on), "", first);
    expect_near(tensors_of(ema_of(out)), wanted, 2e-5);
    expect_near(tensors_of(weights_of(out)), tensors_of(at("plain", 8)), 2e-5);
  }
}

// Every second step averages the ranks' weights, and only then are there any to take in.
TEST_P(RunsWithEma, UnderLocalSgdTakeInTheWeightsThatRanksAveraged) {
  run("first", {{"schedule.max_steps", "1"}});
  const Overrides local = merged(kShort, on_ranks("dp", "2", {{"parallel.average_every", "2"}}));
  run("ema", merged(merged(local, kEma), {{"optimizer.ema_warmup", "false"}}), "", weights_of("first"));
  run("two", merged(local, {{"schedule.max_steps", "2"}}), "", weights_of("first"));
  run("begun", merged(merged(merged(local, kEma), {{"optimizer.ema_warmup", "false"}}), {{"schedule.max_steps", "2"}}),
      "", weights_of("first"));
  Tensors wanted = tensors_of(weights_of("first"));
  for (const auto& [name, values] : tensors_of(weights_of("two")))
    for (size_t i = 0; i < values.size(); ++i)
      wanted[name][i] = static_cast<float>(0.49 * wanted[name][i] + 0.51 * values[i]);
  expect_near(tensors_of(ema_of("begun")), wanted, 1e-6);
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("ema"))).ema_step, 8);
}

TEST_P(RunsWithEma, WithARampKeepLessOfTheAverageTheEarlierAStepIs) {
  run("first", {{"schedule.max_steps", "1"}});
  const std::string first = weights_of("first");
  const Overrides three{{"schedule.epochs", "2"}, {"schedule.max_steps", "3"}};  // the schedule has ten steps
  run("weights", three, "", first);
  run("ramp",
      merged(
          three,
          merged(kEma, {{"optimizer.ema_every", "3"}, {"optimizer.ema_ramp", "2"}, {"optimizer.ema_warmup", "false"}})),
      "", first);
  Tensors wanted = tensors_of(first);
  const double kept = 0.7 * 0.7 * 0.7 * 0.3 * 0.3;
  for (const auto& [name, values] : tensors_of(weights_of("weights")))
    for (size_t i = 0; i < values.size(); ++i)
      wanted[name][i] = static_cast<float>(kept * wanted[name][i] + (1 - kept) * values[i]);
  expect_near(tensors_of(ema_of("ramp")), wanted, 1e-6);
}

TEST_P(RunsWithEma, EvaluateTheAveragesAndLearnAsIfTheyWereNotThere) {
  const Overrides slow{{"optimizer.ema", "0.99"}, {"optimizer.ema_warmup", "false"}};
  for (const Overrides& on : {on_ranks("dp", "1"), on_ranks("owt-c", "2", {{"run.precision", "bf16"}})}) {
    const std::string tag = on[1].second;
    const Overrides two_epochs = merged(on, {{"run.log_every", "1"}, {"schedule.epochs", "2"}});
    run("without" + tag, two_epochs);
    const TrainOutcome trained = run("with" + tag, merged(two_epochs, slow));
    EXPECT_EQ(losses(path("with" + tag)), losses(path("without" + tag)));
    EXPECT_EQ(read_file(weights_of("with" + tag)), read_file(weights_of("without" + tag)));
    const auto loss_of = [&](const std::string& file) {
      const Settings settings =
          small_settings(kSmallRecipe, merged(merged(two_epochs, slow), {{"run.device", name_of(device())}}));
      EvalOptions options;
      options.weights = file;
      options.threads = 1;
      return evaluate_file(settings, options).loss;
    };
    const double of_averages = loss_of(ema_of("with" + tag)), of_weights = loss_of(weights_of("with" + tag));
    EXPECT_GT(std::abs(of_averages - of_weights), 1e-2 * of_weights);  // averages are hardly past the start
    EXPECT_NEAR(trained.evaluation.loss, of_averages, 1e-6 * of_averages);
    ASSERT_EQ(evaluations("with" + tag).size(), 2u);
    EXPECT_EQ(evaluations("with" + tag)[1]["ema"], true);
    EXPECT_NEAR(evaluations("with" + tag)[1]["loss"].get<double>(), of_averages, 1e-6 * of_averages);
    EXPECT_FALSE(evaluations("without" + tag)[1].contains("ema"));
    EXPECT_THAT(read_file(path("with" + tag) + "/log.txt"), HasSubstr(" s, averaged weights)"));
    EXPECT_THAT(read_file(path("without" + tag) + "/log.txt"), Not(HasSubstr("averaged weights")));
  }
}

TEST_P(RunsWithEma, ResumeBitForBitAfterAnyStep) {
  std::vector<Overrides> cases{on_ranks("dp", "1", {{"optimizer.ema_every", "3"}}), on_ranks("dp-zero", "3")};
  if (device() == Device::kCpu) {
    cases.push_back(on_ranks("pipeline", "3"));
    cases.push_back(on_ranks("owt-a", "3", {{"parallel.average_every", "2"}, {"run.checkpoint_every_steps", "3"}}));
  }
  cases.push_back(on_ranks("owt-c", "2", kLookahead));
  for (const Overrides& on : cases) {
    const Overrides changes = merged(merged(kShort, kEma), on);
    const std::string tag = on[0].second;
    run("whole" + tag, changes);
    for (const char* stop : {"3", "5", "6"}) {
      const std::string out = "part" + tag + stop;
      SCOPED_TRACE(out);
      run(out, merged(changes, {{"schedule.max_steps", stop}}));
      ConvChoices::process().clear();  // state of a new process
      run(out, changes, "auto");
      EXPECT_EQ(read_file(ema_of(out)), read_file(ema_of("whole" + tag)));
      EXPECT_EQ(read_file(weights_of(out)), read_file(weights_of("whole" + tag)));
    }
  }
}

TEST_P(RunsWithEma, ThatAreSwitchedOnLaterBeginWithTheWeightsOfThen) {
  const auto to = [](const char* steps) { return Overrides{{"schedule.max_steps", steps}}; };
  run("a", to("5"));
  const Tensors five = tensors_of(weights_of("a"));
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("a"))).ema_step, -1);
  run("a", merged(to("6"), kEma), "auto");
  Tensors wanted = five;
  for (const auto& [name, values] : tensors_of(weights_of("a")))
    for (size_t i = 0; i < values.size(); ++i)
      wanted[name][i] = static_cast<float>(7.0 / 16 * wanted[name][i] + 9.0 / 16 * values[i]);
  expect_near(tensors_of(ema_of("a")), wanted, 1e-6);
  run("a", to("7"), "auto");  // and off again
  EXPECT_FALSE(std::filesystem::exists(ema_of("a")));
}

// Plain gradient descent, whose steps need no state: three steps, the average, and again.
TEST_P(RunsWithEma, LookaheadContinuesFromTheAveragesWhateverTheStrategy) {
  const Overrides changes = merged(kShort, {{"optimizer.momentum", "0"}});
  run("first", {{"schedule.max_steps", "1"}});
  const std::string first = weights_of("first");
  run("three", merged(changes, {{"schedule.max_steps", "3"}}), "", first);
  run("ahead", merged(merged(changes, kLookahead), {{"schedule.max_steps", "3"}}), "", first);
  Tensors wanted = tensors_of(first);
  for (const auto& [name, values] : tensors_of(weights_of("three")))
    for (size_t i = 0; i < values.size(); ++i)
      wanted[name][i] = static_cast<float>(0.343 * wanted[name][i] + 0.657 * values[i]);
  expect_near(tensors_of(weights_of("ahead")), wanted, 1e-6);
  EXPECT_EQ(tensors_of(weights_of("ahead")), tensors_of(ema_of("ahead")));
  run("one", merged(changes, kLookahead), "", first);
  EXPECT_NE(tensors_of(weights_of("one")), tensors_of(ema_of("one"))) << "two steps after the last average";
  std::vector<Overrides> cases{on_ranks("dp-zero", "3"), on_ranks("owt-d", "2")};
  if (device() == Device::kCpu)
    for (const Overrides& more : {on_ranks("dp", "3"), on_ranks("dp-star", "2"), on_ranks("owt-c", "3"),
                                  on_ranks("mp", "2"), on_ranks("pipeline", "3")})
      cases.push_back(more);
  for (const Overrides& on : cases) {
    const std::string out = on[0].second + on[1].second;
    SCOPED_TRACE(out);
    run(out, merged(merged(changes, kLookahead), on), "", first);
    expect_near(tensors_of(weights_of(out)), tensors_of(weights_of("one")), 2e-5);
  }
}

TEST_P(RunsWithEma, LookaheadNeedsAveragesAndAllWeights) {
  EXPECT_THAT(message_of([&] { run("no", {{"optimizer.lookahead", "true"}}); }), HasSubstr("'ema' is 0; set it"));
  if (device() != Device::kCpu) return;
  EXPECT_THAT(message_of([&] { run("no", merged(kLookahead, on_ranks("ps", "2"))); }), HasSubstr("or use dp-zero"));
}

// With this many steps between updates the averages stay equal to the initial weights.
TEST_P(RunsWithEma, TakeInWeightsAsSeldomAsTheRecipeSays) {
  run("first", {{"schedule.max_steps", "1"}});
  for (const auto& [every, taken] : {std::pair("9", 0), {"3", 6}, {"8", 8}}) {
    const std::string out = std::string("every") + every;
    run(out, merged(merged(kShort, kEma), {{"optimizer.ema_every", every}}), "", weights_of("first"));
    EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path(out))).ema_step, taken);
    EXPECT_EQ(tensors_of(ema_of(out)) == tensors_of(weights_of("first")), taken == 0);
  }
}

TEST(CheckpointOfARun, GivesAveragesToAllWhereItHasThem) {
  const TempFolder folder;
  write_bytes(folder.file("weights.safetensors"), "");
  EXPECT_EQ(trained_weights_of(folder.path()), folder.file("weights.safetensors"));
  write_bytes(folder.file("ema.safetensors"), "");
  EXPECT_EQ(trained_weights_of(folder.path()), folder.file("ema.safetensors"));
}

}  // namespace
}  // namespace owt::weight_ema_test
