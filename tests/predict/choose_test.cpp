#include "src/predict/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/parallel/sharded_softmax_loss.h"
#include "src/system/check.h"
#include "tests/support/alexnet.h"
#include "tests/support/fixed_compute.h"
#include "tests/support/message_of.h"
#include "tests/support/models.h"

namespace owt::choose_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Model alexnet() { return model_of(kAlexNet); }

PlanRequest request_of(int ranks, int64_t rows, Precision precision = Precision::kFp32) {
  PlanRequest request;
  request.ranks = ranks;
  request.step_rows = rows;
  request.on.precision = precision;
  return request;
}

Network links(int ranks, double bytes_per_s, double latency_s = 50e-6) {
  Network network;
  network.ranks_per_host = ranks;
  network.local = {latency_s, bytes_per_s};
  return network;
}

std::unique_ptr<ComputeModel> h200(const Model& model, Precision precision = Precision::kFp32) {
  return device_compute(device_speed("H200"), model, precision);
}

double mb(const Plan& plan, const std::vector<std::string>& transfers) {
  double sum = 0;
  for (const Transfer& t : plan.transfers)
    for (const std::string& name : transfers)
      if (t.name == name) sum += static_cast<double>(t.bytes) / 1e6;
  return sum;
}

// AlexNet, 128 rows on each rank, bf16, worked out by hand: in a ring each rank sends 2 (K-1)/K of the gradients, and
// (K-1) * 128 rows of every dense input (9216 + 4096 + 4096 features) and of its gradient. The figures have gradients
// in bf16; ours are f32.
TEST(Choose, BytesOfAlexNetAreThoseWorkedOutByHand) {
  const Model model = alexnet();
  const struct {
    int ranks;
    double dp, activations, conv;
  } rows[] = {{2, 122.2, 8.9, 4.9}, {4, 183.3, 26.7, 7.4}, {8, 213.9, 62.4, 8.6}, {16, 229.1, 133.7, 9.3}};
  for (const auto& row : rows) {
    PlanRequest request = request_of(row.ranks, 128 * row.ranks, Precision::kBf16);
    request.strategy = Strategy::kDataParallel;
    EXPECT_NEAR(mb(make_plan(model, request), {"gradients"}) / 2, row.dp, 0.06) << row.ranks;
    request.strategy = Strategy::kOwtC;
    const Plan split = make_plan(model, request);
    EXPECT_NEAR(mb(split, {"fc6 input", "fc6 input gradient", "fc7 input", "fc7 input gradient", "fc8 input",
                           "fc8 input gradient"}),
                row.activations, 0.06)
        << row.ranks;
    EXPECT_NEAR(mb(split, {"gradients"}) / 2, row.conv, 0.06) << row.ranks;
  }
}

// Fewer bytes are sent below dense weights / dense inputs = 58.6 M / 17408 = 3367 rows. owt also gathers labels and the
// loss statistics of the others' logits, which moves it to 2 * 58.6 M / (2 * 17408 + kLossStats + 1).
TEST(Choose, ByBytesAloneTheTrickPaysUpToTheBatchWorkedOutByHand) {
  const double dense = static_cast<double>(kFc6Params + kFc7Params + kFc8Params);
  EXPECT_NEAR(dense / 17408, 3367, 2);  // without biases
  const int64_t found = crossover_rows_by_bytes(alexnet(), request_of(8, 1024));
  EXPECT_NEAR(static_cast<double>(found), 2 * dense / (2 * 17408 + kLossStats + 1), 8);
  EXPECT_EQ(found % 8, 0);
}

TEST(Choose, OnSlowLinksAlexNetIsSplitAndSaysWhy) {
  const Model model = alexnet();
  const Choice choice = choose_strategy(model, request_of(4, 512), links(4, 125e6), *h200(model));
  EXPECT_EQ(choice.all.size(), strategy_names().size());
  EXPECT_TRUE(choice.chosen().split);
  EXPECT_GT(choice.best_data_parallel()->step_s(), 3 * choice.chosen().step_s());
  EXPECT_THAT(choice.reason(), AllOf(HasSubstr(choice.chosen().name() + ": "), HasSubstr("times as fast as dp"),
                                     HasSubstr("instead of 366.6 MB per worker")));
  EXPECT_THAT(choice.table(), HasSubstr("<- best"));
  for (const std::string& name : strategy_names()) EXPECT_THAT(choice.table(), HasSubstr("\n" + name + " "));
}

TEST(Choose, ANetWithoutLargeDenseLayersStaysDataParallel) {
  const Model model = model_of("[3, 32, 32]", 10, R"(
  { name = "conv1", type = "conv", out = 64, kernel = 3, pad = 1 },
  { name = "conv2", type = "conv", out = 64, kernel = 3, pad = 1 },
  { name = "fc", type = "dense", out = 10 })");
  const Choice choice = choose_strategy(model, request_of(4, 256), links(4, 125e6), *h200(model));
  EXPECT_FALSE(choice.chosen().split);
  EXPECT_THAT(choice.reason(), HasSubstr("Splitting the dense layers does not pay here."));
}

TEST(Choose, WhereNothingCanBeSplitOnlyDataParallelIsLeft) {
  const Model model = model_of("[3, 8, 8]", 9, R"(
  { name = "conv1", type = "conv", out = 9, kernel = 3, groups = 3 }, { name = "pool1", type = "global_avg_pool" })");
  const auto compute = h200(model);
  const Choice choice = choose_strategy(model, request_of(4, 256), links(4, 125e6), *compute);
  for (const Prediction& p : choice.all) EXPECT_FALSE(p.split);
  EXPECT_EQ(choice.chosen().name(), "dp");
  EXPECT_THAT(choice.reason(), HasSubstr("Nothing can be split."));
  EXPECT_EQ(crossover_rows(model, request_of(4, 256), links(4, 125e6), *compute), 0);
}

TEST(Choose, OneRankHasNoChoice) {
  const Model model = alexnet();
  const auto compute = h200(model);
  const Choice choice = choose_strategy(model, request_of(1, 64), links(1, 1), *compute);
  EXPECT_THAT(choice.reason(), HasSubstr("One worker has nothing to send"));
  EXPECT_EQ(choice.chosen().exposed_s, 0);
  EXPECT_EQ(crossover_rows(model, request_of(1, 64), links(1, 1), *compute), 0);
  EXPECT_EQ(crossover_rows_by_bytes(model, request_of(1, 64)), 0);
}

TEST(Choose, TheCrossoverIsWhereTheChoiceChanges) {
  const Model model = alexnet();
  const auto compute = h200(model);
  const Network network = links(8, 12.5e9);
  const int64_t rows = crossover_rows(model, request_of(8, 1024), network, *compute);
  ASSERT_GT(rows, 8);
  EXPECT_EQ(rows % 8, 0);
  EXPECT_TRUE(choose_strategy(model, request_of(8, rows - 8), network, *compute).chosen().split);
  EXPECT_FALSE(choose_strategy(model, request_of(8, rows), network, *compute).chosen().split);
  // If the links are so slow that only bytes count, the crossover is the crossover by bytes.
  PlanRequest by_columns = request_of(8, 1024);
  by_columns.strategy = Strategy::kOwtD;
  const int64_t by_bytes = crossover_rows_by_bytes(model, by_columns);
  EXPECT_NEAR(static_cast<double>(crossover_rows(model, request_of(8, 1024), links(8, 1e6, 0), *compute)),
              static_cast<double>(by_bytes), 0.05 * static_cast<double>(by_bytes));
}

TEST(Choose, MoreBandwidthIsNeverSlower) {
  const Model model = alexnet();
  const auto compute = h200(model);
  std::vector<double> before;
  for (const double bandwidth : {12.5e6, 125e6, 1.25e9, 12.5e9, 370e9}) {
    std::vector<double> now;
    for (const Prediction& p : choose_strategy(model, request_of(4, 512), links(4, bandwidth), *compute).all)
      now.push_back(p.step_s());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_LT(now[i], before[i]);
    before = now;
  }
}

TEST(Choose, TheSameQuestionHasTheSameAnswer) {
  const Model model = alexnet();
  const auto compute = h200(model);
  const Network network = links(8, 1e9);
  EXPECT_EQ(choose_strategy(model, request_of(8, 1024), network, *compute).table(),
            choose_strategy(model, request_of(8, 1024), network, *compute).table());
}

// An independent estimate for AlexNet on 8 H200s with 128 rows each: 1.61 ms under dp with bf16 gradients that the
// NVLink switch sums, 1.43 ms split by columns and rows with half of the exchange of activations hidden. owt sends f32
// gradients and hides no gather of features. The estimate lacks the constant time of 14 convolutions (launch_time.h).
TEST(Choose, EightH200sAreNearAnEstimateMadeElsewhere) {
  const Model model = alexnet();
  Network network = links(8, 370e9, 12e-6);
  network.algorithm = Network::Algorithm::kHierarchical;
  const Choice choice =
      choose_strategy(model, request_of(8, 1024, Precision::kBf16), network, *h200(model, Precision::kBf16));
  EXPECT_TRUE(choice.chosen().split);
  constexpr double constant = 14 * 14e-6;
  EXPECT_NEAR(choice.chosen().step_s() - constant, 1.43e-3, 0.15e-3);
  EXPECT_NEAR(choice.best_data_parallel()->step_s() - constant, 1.61e-3, 0.45e-3);
}

TEST(Choose, FourThousandRanksTakeNoTimeToSimulate) {
  const Model model = alexnet();
  Network network = links(8, 370e9, 12e-6);
  network.hosts = 512;
  network.between = {12e-6, 360e9};
  network.algorithm = Network::Algorithm::kHierarchical;
  const Choice choice =
      choose_strategy(model, request_of(4096, 4096 * 128, Precision::kBf16), network, *h200(model, Precision::kBf16));
  EXPECT_EQ(choice.chosen().request.ranks, 4096);
  EXPECT_EQ(choice.chosen().name(), "owt-d 8x512");  // dense layers split in a host, copies on all
  for (const Prediction& p : choice.all) EXPECT_LE(choice.chosen().step_s(), p.step_s());
}

// "owt-a 0": the strategy and the ranks of a copy that are asked for.
std::vector<std::string> candidates_of(int hosts, int ranks_per_host, int model_ranks = 0) {
  PlanRequest request = request_of(hosts * ranks_per_host, 64);
  request.model_ranks = model_ranks;
  Network network;
  network.hosts = hosts;
  network.ranks_per_host = ranks_per_host;
  std::vector<std::string> all;
  for (const PlanRequest& candidate : candidates(request, network)) {
    EXPECT_EQ(candidate.step_rows, 64);
    all.push_back(concat(name_of(candidate.strategy), ' ', candidate.model_ranks));
  }
  return all;
}

TEST(Choose, GroupsOfAHostAreTriedWhereHostsHoldSeveralRanks) {
  const std::vector<std::string> whole{"dp 0",    "dp-zero 0", "dp-star 0", "ps 0",       "owt-a 0",   "owt-b 0",
                                       "owt-c 0", "owt-d 0",   "mp 0",      "mp-dense 0", "pipeline 0"};
  EXPECT_EQ(candidates_of(1, 8), whole);
  EXPECT_EQ(candidates_of(8, 1), whole);
  EXPECT_EQ(candidates_of(2, 4),
            (std::vector<std::string>{"dp 0", "dp-zero 0", "dp-star 0", "ps 0", "owt-a 0", "owt-a 4", "owt-b 0",
                                      "owt-b 4", "owt-c 0", "owt-c 4", "owt-d 0", "owt-d 4", "mp 0", "mp 4",
                                      "mp-dense 0", "mp-dense 4", "pipeline 0", "pipeline 4"}));
  EXPECT_EQ(candidates_of(2, 4, 2),
            (std::vector<std::string>{"dp 2", "dp-zero 2", "dp-star 2", "ps 2", "owt-a 2", "owt-b 2", "owt-c 2",
                                      "owt-d 2", "mp 2", "mp-dense 2", "pipeline 2"}));
}

std::vector<std::string> names_of(const std::vector<Prediction>& all) {
  std::vector<std::string> names;
  for (const Prediction& p : all) names.push_back(p.name());
  return names;
}

TEST(Choose, WhereWeightsAreAveragedOnlyStrategiesThatCanAreTried) {
  const Model model = alexnet();
  PlanRequest request = request_of(8, 64);
  request.average_every = 4;
  const Choice choice = choose_strategy(model, request, links(8, 125e6), *h200(model));
  EXPECT_EQ(names_of(choice.all), (std::vector<std::string>{"dp", "owt-a", "owt-b", "owt-c", "owt-d"}));
  ASSERT_EQ(choice.refused.size(), 6u);
  EXPECT_EQ(choice.refused.back().name, "pipeline");
  EXPECT_THAT(choice.refused.back().why, HasSubstr("weights cannot be averaged every 4 steps"));
}

// Predictions do not include transient stragglers, for which servers pay off.
TEST(Choose, ServersArePredictedAndNotChosen) {
  const Model model = alexnet();
  for (const double bandwidth : {1e6, 125e6, 1e10, 1e12}) {
    const Choice choice = choose_strategy(model, request_of(4, 64), links(4, bandwidth), *h200(model));
    const std::vector<std::string> names = names_of(choice.all);
    EXPECT_EQ(std::count(names.begin(), names.end(), "ps"), 1);
    EXPECT_NE(choice.chosen().name(), "ps");
    EXPECT_NE(choice.best_data_parallel()->name(), "ps");
  }
}

// What no strategy can do, and groups that none can make, are the request's fault.
TEST(Choose, WhereNoStrategyCanRunItSaysWhy) {
  const Model model = alexnet();
  PlanRequest request = request_of(4, 8);
  request.slices = 100;
  EXPECT_THAT(message_of([&] { choose_strategy(model, request, links(4, 1e6), *h200(model)); }),
              HasSubstr("data.accumulate is 100"));
  request = request_of(4, 64);
  request.model_ranks = 3;
  EXPECT_THAT(message_of([&] { choose_strategy(model, request, links(4, 1e6), *h200(model)); }),
              HasSubstr("cannot be divided into groups of 3"));
}

Prediction made_prediction(Strategy strategy, double compute_s, double exposed_s, double update_s, int64_t bytes) {
  Prediction p;
  p.request = request_of(4, 200);
  p.request.strategy = strategy;
  p.model_ranks = splits_dense(strategy) ? 4 : 1;
  p.split = splits_dense(strategy);
  p.compute_s = compute_s, p.exposed_s = exposed_s, p.update_s = update_s;
  p.bytes = bytes;
  p.busiest_link = bytes + 1'000'000;
  p.memory_bytes = 12'340'000;
  return p;
}

TEST(Choose, TheReasonComparesTheBestOfBothKinds) {
  Choice choice;
  choice.all = {made_prediction(Strategy::kDataParallel, 0.010, 0.004, 0.002, 8'000'000),
                made_prediction(Strategy::kDataParallelZero, 0.010, 0.005, 0.002, 8'000'000),
                made_prediction(Strategy::kOwtA, 0.005, 0.002, 0.001, 2'000'000),
                made_prediction(Strategy::kOwtB, 0.005, 0.003, 0.001, 2'000'000)};
  choice.best = 2;
  EXPECT_EQ(choice.best_split(), &choice.all[2]);
  EXPECT_EQ(choice.best_data_parallel(), &choice.all[0]);
  EXPECT_EQ(choice.reason(),
            "owt-a: 8 ms a step, 2.00 times as fast as dp: it sends 2 MB instead of 8 MB per worker, is idle for 2 "
            "instead of 4 ms, updates for 1 instead of 2 ms.");
  std::swap(choice.all[0], choice.all[2]);
  std::swap(choice.all[0].compute_s, choice.all[2].compute_s);
  choice.all[0].exposed_s = 1;
  choice.best = 2;
  EXPECT_EQ(choice.reason(),
            "dp: 11 ms a step, 0.82 times as fast as owt-b: it sends 8 MB instead of 2 MB per worker, is idle for 4 "
            "instead of 3 ms, updates for 2 instead of 1 ms. Splitting the dense layers does not pay here.");
}

TEST(Choose, TheComparisonHasTheFastestFirstWithBarsOfItsStep) {
  Choice choice;
  choice.all = {made_prediction(Strategy::kDataParallel, 0.010, 0.004, 0.002, 8'000'000),
                made_prediction(Strategy::kOwtA, 0.005, 0.002, 0.001, 2'000'000)};
  choice.best = 1;
  choice.refused = {{"mp", "no"}, {"mp-dense", "no"}, {"pipeline", "not at all"}};
  EXPECT_EQ(choice.comparison(90, true), R"(  strategy          step ms   images/s   MB memory      MB sent    idle ms
* owt-a               8.000      25000        12.3        2.000      2.000  █████▓░░
  dp                 16.000      12500        12.3        8.000      4.000  ██████████▓▓░░░░
* the shortest predicted step; memory, MB sent (mean) and idle time are per worker and step
█ computes  ▓ updates  ░ idle

Not possible here:
  mp, mp-dense: no
  pipeline: not at all
)");
  EXPECT_THAT(choice.comparison(90, false), HasSubstr("8.000      4.000  ##########++....\n"));
  // Where there is no room there are no bars.
  EXPECT_THAT(choice.comparison(80, true), AllOf(HasSubstr("\n  dp "), Not(HasSubstr("█"))));
}

TEST(Choose, TheTableHasAColumnForEachFigureAndMarksTheBest) {
  Choice choice;
  choice.all = {made_prediction(Strategy::kDataParallel, 0.010, 0.004, 0.002, 8'000'000),
                made_prediction(Strategy::kOwtC, 0.005, 0.002, 0.001, 2'500'000)};
  choice.best = 1;
  EXPECT_THAT(
      choice.table(),
      HasSubstr("\ndp                    8.000        9.000      10.000       4.000      2.000      16.000       "
                "12500       12.3\nowt-c                 2.500        3.500       5.000       2.000      1.000  "
                "     8.000       25000       12.3   <- best\n"));
}

TEST(Choose, TheCrossoverIsLookedForUpToTheLargestBatch) {
  const Model model = alexnet();
  const auto compute = h200(model);
  const Network network = links(8, 12.5e9);
  const int64_t rows = crossover_rows(model, request_of(8, 1024), network, *compute);
  int64_t doubled = 8;
  while (doubled < rows) doubled *= 2;
  EXPECT_EQ(crossover_rows(model, request_of(8, 1024), network, *compute, doubled), rows);
  EXPECT_EQ(crossover_rows(model, request_of(8, 1024), network, *compute, doubled - 1), 0);
}

}  // namespace
}  // namespace owt::choose_test
