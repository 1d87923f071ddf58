#include "src/commands/measure_compute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "src/comm/threads.h"
#include "src/commands/run.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt::measure_compute_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Plan whole_plan(const Settings& settings) {
  PlanRequest request = settings.plan_request();
  request.ranks = 1;
  return make_plan(settings.model, request);
}

TEST(MeasureCompute, TimesEveryLayerEquallyOnAllRanks) {
  const Settings settings = small_settings(kSmallRecipe);
  const std::vector<int64_t> rows = {2, 8};
  std::mutex mutex;
  std::vector<ComputeSamples> found;
  run_ranks(2, 1, [&](Communicator& comm) {
    const ComputeSamples samples = measure_compute(settings, comm, rows);
    const std::lock_guard lock(mutex);
    found.push_back(samples);
  });
  const Plan plan = whole_plan(settings);
  for (const ComputeSamples& samples : found) {
    ASSERT_EQ(samples.layers.size(), plan.layers.size());
    EXPECT_THAT(samples.source, HasSubstr("2 workers at a time"));
    for (size_t i = 0; i < plan.layers.size(); ++i) {
      ASSERT_EQ(samples.layers[i].size(), 2u);
      for (size_t s = 0; s < 2; ++s) {
        const LayerSample &sample = samples.layers[i][s], &first = found[0].layers[i][s];
        EXPECT_EQ(sample.rows, static_cast<double>(rows[s]));
        EXPECT_EQ(sample.forward_s, first.forward_s);  // the mean of both
        EXPECT_EQ(sample.backward_s, first.backward_s);
        if (plan.layers[i].weight_bytes > 0) {
          EXPECT_GT(sample.forward_s, 0);
          EXPECT_GT(sample.backward_s, 0);
          EXPECT_GT(sample.update_s, 0);
        }
      }
    }
    EXPECT_GT(measured_compute(samples)->loss(8), 0);
  }
}

TEST(MeasureCompute, TheMeanOverTheRanksTakesThePlaceOfEveryTime) {
  std::mutex mutex;
  int checked = 0;
  run_ranks(3, 1, [&](Communicator& comm) {
    const double r = comm.rank();
    ComputeSamples samples;
    samples.layers = {{{.rows = 2, .part = 0.5, .forward_s = 1 + r, .backward_s = 2 * r, .update_s = 3}},
                      {{.rows = 4, .forward_s = 6 * r}, {.rows = 8, .backward_s = 9 + 3 * r}}};
    samples.loss = {{2, 1 + 2 * r}, {4, 5}};
    samples.rest_s = 12 * r;
    take_mean(samples, comm, Device::kCpu);
    const std::lock_guard lock(mutex);
    ++checked;
    const LayerSample &first = samples.layers[0][0], &second = samples.layers[1][0], &third = samples.layers[1][1];
    EXPECT_DOUBLE_EQ(first.forward_s, 2);
    EXPECT_DOUBLE_EQ(first.backward_s, 2);
    EXPECT_DOUBLE_EQ(first.update_s, 3);
    EXPECT_EQ(first.rows, 2);
    EXPECT_EQ(first.part, 0.5);
    EXPECT_DOUBLE_EQ(second.forward_s, 6);
    EXPECT_DOUBLE_EQ(third.backward_s, 12);
    EXPECT_DOUBLE_EQ(samples.loss[0].second, 3);
    EXPECT_DOUBLE_EQ(samples.loss[1].second, 5);
    EXPECT_DOUBLE_EQ(samples.rest_s, 12);
  });
  EXPECT_EQ(checked, 3);
}

TEST(MeasureCompute, RowsAreThoseOfARankAndAQuarter) {
  PlanRequest request;
  request.ranks = 4;
  request.step_rows = 256;
  EXPECT_THAT(rows_to_measure(request), ElementsAre(16, 64));
  request.step_rows = 12;
  EXPECT_THAT(rows_to_measure(request), ElementsAre(3));
}

class TimesFile : public ::testing::Test {
 protected:
  std::string table(const Overrides& changes) const {
    const TimingReport report =
        time_steps(small_settings(kSmallRecipe, changes), {.steps = 2, .threads = 1, .keeps_gradients = true}).report;
    write_bytes(folder_.file("times.csv"), report.csv());
    return folder_.file("times.csv");
  }
  TempFolder folder_;
};

TEST_F(TimesFile, OfOwtTimeGivesTheRowsAndTimesOfEveryLayer) {
  const Settings settings = small_settings(kSmallRecipe, {{"data.batch", "8"}});
  const TimingReport report = time_steps(settings, {.steps = 2, .threads = 1, .keeps_gradients = true}).report;
  write_bytes(folder_.file("times.csv"), report.csv());
  const Plan plan = whole_plan(settings);
  ComputeSamples samples;
  add_samples(read_times(folder_.file("times.csv")), plan, samples);
  const auto model = measured_compute(samples);
  size_t i = 0;
  for (const TimingRow& row : report.rows) {
    if (row.kind != TimingRow::Kind::kLayer) continue;
    EXPECT_EQ(samples.layers[i].front().rows, 8);
    EXPECT_NEAR(model->forward(i, 8, 1), row.forward_ms / 1e3, 1e-7);
    EXPECT_NEAR(model->backward(i, 8, 1), row.backward_ms / 1e3, 1e-7);
    EXPECT_NEAR(model->update(i, 1), row.update_ms / 1e3, 1e-7);
    ++i;
  }
  EXPECT_EQ(i, plan.layers.size());
}

TEST_F(TimesFile, OfStepsThatKeepGradientsHasTheUpdateOfDenseWeights) {
  const std::string recipe = recipe_of("[3, 8, 8]", "train_images = 4\nside = 8\nbatch = 4", R"(
  { name = "fc", type = "dense", out = 10, bias = false })");
  const auto update_ms = [&](bool keeps_gradients) {
    return time_steps(small_settings(recipe, {{"run.device", "cpu"}}),
                      {.steps = 2, .threads = 1, .keeps_gradients = keeps_gradients})
        .report.rows.front()
        .update_ms;
  };
  EXPECT_EQ(update_ms(false), 0);
  EXPECT_GT(update_ms(true), 0);
}

TEST_F(TimesFile, OfDataParallelRanksCountsTheRowsOfARank) {
  const Settings settings = small_settings(kSmallRecipe);
  ComputeSamples samples;
  add_samples(read_times(table({{"data.batch", "12"}, {"parallel.workers", "2"}, {"parallel.strategy", "dp"}})),
              whole_plan(settings), samples);
  for (const auto& layer : samples.layers) EXPECT_EQ(layer.front().rows, 6);
}

TEST_F(TimesFile, OfSplitLayersOrAnotherModelIsAnError) {
  const Plan plan = whole_plan(small_settings(kSmallRecipe));
  ComputeSamples samples;
  const std::string split = table({{"data.batch", "12"}, {"parallel.workers", "2"}, {"parallel.strategy", "owt-a"}});
  EXPECT_THAT(message_of([&] { add_samples(read_times(split), plan, samples); }),
              HasSubstr("make them with owt time --workers 1"));
  std::string other = read_file(table({}));
  other.replace(other.find("layer,conv1"), 11, "layer,conv9");
  write_bytes(folder_.file("other.csv"), other);
  EXPECT_THAT(message_of([&] { add_samples(read_times(folder_.file("other.csv")), plan, samples); }),
              HasSubstr("has no layer 'conv9'"));
}

// On the CPU one worker updates dense weights while it computes their gradient.
TEST_F(TimesFile, OfStepsThatKeepNoGradientsIsAnErrorThatNamesTheOption) {
  const Settings settings = small_settings(kSmallRecipe, {{"run.device", "cpu"}});
  write_bytes(folder_.file("times.csv"), time_steps(settings, {.steps = 2, .threads = 1}).report.csv());
  EXPECT_THAT(message_of([&] { read_times(folder_.file("times.csv")); }),
              AllOf(HasSubstr("layer 'fc1' was updated"), HasSubstr("--keep-gradients")));
}

TEST_F(TimesFile, OfAnEvaluationIsAnErrorThatNamesTheOption) {
  const Settings settings = small_settings(kSmallRecipe);
  write_bytes(
      folder_.file("times.csv"),
      time_steps(settings, {.steps = 2, .threads = 1, .evaluation = true, .keeps_gradients = true}).report.csv());
  EXPECT_THAT(message_of([&] { read_times(folder_.file("times.csv")); }),
              AllOf(HasSubstr("times.csv: no layer has a backward pass"), HasSubstr("--evaluation")));
}

TEST_F(TimesFile, WhatIsNoTableIsAnErrorWithItsLine) {
  const auto error = [&](const std::string& text, const std::string& what) {
    write_bytes(folder_.file("bad.csv"), text);
    EXPECT_THAT(message_of([&] { read_times(folder_.file("bad.csv")); }), HasSubstr("bad.csv" + what));
  };
  const std::string good = read_file(table({}));
  const std::string head = good.substr(0, good.find('\n') + 1);
  error("hello\n", ":1: this is no table of owt time --csv");
  error(head + "layer,conv1,conv\n", ":2: 3 columns, wanted 20");
  error(head + "layer,conv1,conv,1x1x1,fast,0,0,0,0,0,0,0,0,4,4,0,0,,0,0\n",
        ":2: 'forward_ms' is 'fast', wanted a number");
  for (const std::string value : {"-1", "nan", "inf", "1e400", "1e300", ""}) {
    error(head + "layer,conv1,conv,1x1x1,0,0," + value + ",0,0,0,0,0,0,4,4,0,0,,0,0\n",
          ":2: 'update_ms' is '" + value + "'");
    error(head + "layer,conv1,conv,1x1x1,0,0,0,0,0,0,0,0,0,4," + value + ",0,0,,0,0\n",
          ":2: 'weight_bytes' is '" + value + "'");
  }
}

// Runs of layers that a GPU computes at once, and its one update of all weights.
TEST(AddSamples, FusedLayersAndTheCommonUpdateAreSharedOut) {
  const Settings settings = small_settings(kSmallRecipe);
  const Plan plan = whole_plan(settings);
  std::vector<TimingRow> rows;
  const auto add = [&](const std::string& name, const LayerPlan& last, int64_t weights, double forward) {
    TimingRow row;
    row.kind = TimingRow::Kind::kLayer;
    row.name = name;
    row.forward_ms = forward;
    row.weight_bytes = weights;
    row.activation_bytes = 4 * 5 * last.out.elements();
    rows.push_back(row);
  };
  add(plan.layers[0].name + "+" + plan.layers[1].name, plan.layers[1],
      plan.layers[0].weight_bytes + plan.layers[1].weight_bytes, 7);
  int64_t all = plan.layers[0].weight_bytes + plan.layers[1].weight_bytes;
  for (size_t i = 2; i < plan.layers.size(); ++i) {
    add(plan.layers[i].name, plan.layers[i], plan.layers[i].weight_bytes, 1);
    all += plan.layers[i].weight_bytes;
  }
  TimingRow weights;
  weights.name = "weights";
  weights.update_ms = 10;
  rows.push_back(weights);
  TimingRow loss, rest;
  loss.name = "loss";
  loss.ms = 4;
  rows.push_back(loss);
  rest.kind = TimingRow::Kind::kRest;
  rest.ms = 3;
  rows.push_back(rest);
  ComputeSamples samples;
  add_samples(rows, plan, samples);
  EXPECT_THAT(samples.loss, ElementsAre(std::pair(5.0, 4e-3)));
  EXPECT_DOUBLE_EQ(samples.rest_s, 3e-3);
  EXPECT_DOUBLE_EQ(samples.layers[0].front().forward_s, 7e-3);
  EXPECT_DOUBLE_EQ(samples.layers[1].front().forward_s, 0);
  EXPECT_DOUBLE_EQ(samples.layers[1].front().rows, 5);
  double update = 0;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    update += samples.layers[i].front().update_s;
    EXPECT_NEAR(samples.layers[i].front().update_s,
                10e-3 * static_cast<double>(plan.layers[i].weight_bytes) / static_cast<double>(all), 1e-12);
  }
  EXPECT_NEAR(update, 10e-3, 1e-12);
  // The medians of rows may add up to more than the median of steps.
  rows.back().ms = -3;
  ComputeSamples again;
  add_samples(rows, plan, again);
  EXPECT_EQ(again.rest_s, 0);
}

// Every fifth step stalls, and the machine stalls once.
TEST(MedianOfMeans, CountsStopsThatComeAgainAndNoOther) {
  std::vector<double> steps;
  for (int i = 0; i < 90; ++i) steps.push_back(i % 5 == 4 ? 6 : 1);
  steps[17] = 1000;
  EXPECT_EQ(median_of_means(steps), 2);
  EXPECT_EQ(median_of_means(std::vector<double>{3, 1, 20}), 3);
}

}  // namespace
}  // namespace owt::measure_compute_test
