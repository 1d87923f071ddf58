#include "src/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "src/report/trace.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt::report_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Three steps with scopes of real duration; the transfers are reported with made-up figures.
void run_steps(Profiler& profiler) {
  profiler.enable(true);
  profiler.keep_spans(true);
  for (int step = 0; step < 3; ++step) {
    profiler.begin_step();
    { const Profiler::Scope scope(&profiler, "data wait", Phase::kData); }
    { const Profiler::Scope scope(&profiler, "conv1", Phase::kForward); }
    { const Profiler::Scope scope(&profiler, "loss", Phase::kLoss); }
    { const Profiler::Scope scope(&profiler, "conv1", Phase::kBackward); }
    {
      const Profiler::Scope scope(&profiler, "gradients", Phase::kTransfer);
      profiler.add_transfer(2.0, 3'000'000);
      profiler.add_transfer(1.0, 3'000'000);
    }
    { const Profiler::Scope scope(&profiler, "conv1", Phase::kUpdate); }
    { const Profiler::Scope scope(&profiler, "clip", Phase::kUpdate); }  // belongs to no layer
    profiler.end_step();
  }
}

std::vector<LayerFacts> one_layer() {
  return {{.name = "conv1",
           .type = "conv",
           .out = {32, 32, 8},
           .forward_flops = 1e6,
           .backward_flops = 2e6,
           .activation_bytes = 4'000'000,
           .weight_bytes = 500'000}};
}

TimingReport report_of(const Profiler& profiler, const std::vector<LayerFacts>& layers = one_layer(),
                       int64_t images = 128, int64_t period = 1) {
  const RankTimes times = rank_times(profiler, period);
  return make_report({&times, 1}, layers, images);
}

// With round figures.
TimingReport made_up_report() {
  TimingReport report;
  report.steps = 20, report.images_per_step = 100, report.ranks = 2;
  TimingRow conv{.kind = TimingRow::Kind::kLayer, .name = "conv1", .type = "conv", .out = "32x32x8"};
  conv.forward_ms = 1, conv.backward_ms = 2, conv.update_ms = 0.5, conv.ms = 3.5;
  conv.flops = 6e9, conv.activation_bytes = 4'000'000, conv.weight_bytes = 500'000;
  conv.memory_bytes = 7'000'000;
  TimingRow gradients{.kind = TimingRow::Kind::kTransfer, .name = "gradients", .type = {}, .out = {}};
  gradients.ms = 0.5, gradients.transfer_ms = 2, gradients.bytes_sent = 6'000'000;
  TimingRow rest{.kind = TimingRow::Kind::kRest, .name = "rest", .type = {}, .out = {}};
  rest.ms = 1;
  TimingRow step{.kind = TimingRow::Kind::kStep, .name = "step", .type = {}, .out = {}};
  step.ms = 5;
  report.rows = {conv, gradients, rest, step};
  return report;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Report, HasARowForEachLayerEachTransferAndTheRest) {
  Profiler profiler;
  run_steps(profiler);

  std::vector<std::string> names;
  for (const TimingRow& row : report_of(profiler).rows) names.push_back(row.name);
  EXPECT_THAT(names, ElementsAre("conv1", "data wait", "loss", "clip", "gradients", "rest", "step"));
}

TEST(Report, RowsAddUpToTheMedianStep) {
  Profiler profiler;
  run_steps(profiler);

  const TimingReport report = report_of(profiler);

  double sum = 0;
  for (size_t i = 0; i + 1 < report.rows.size(); ++i) sum += report.rows[i].ms;
  EXPECT_DOUBLE_EQ(report.step().ms, median(profiler.step_ms()));
  EXPECT_NEAR(sum, report.step().ms, 1e-9);
  const TimingRow& conv = report.rows[0];
  EXPECT_GT(conv.ms, 0);
  EXPECT_DOUBLE_EQ(conv.ms, conv.forward_ms + conv.backward_ms + conv.update_ms);
  EXPECT_EQ(report.steps, 3);
}

TEST(Report, CountsATransferPerStep) {
  Profiler profiler;
  run_steps(profiler);

  const TimingRow transfer = report_of(profiler).rows[4];
  EXPECT_EQ(transfer.transfer_ms, 3);
  EXPECT_EQ(transfer.bytes_sent, 6'000'000);
  EXPECT_DOUBLE_EQ(transfer.gbytes_per_second(), 2);  // 6 MB in 3 ms
  EXPECT_LT(transfer.ms, 3);                          // only the host's waiting time
}

// A transfer of every third step: a median over the steps would not see it.
TEST(Report, OfStepsThatRepeatAfterSeveralTakesMeansOverThose) {
  Profiler profiler;
  profiler.enable(true);
  for (int step = 1; step <= 7; ++step) {
    profiler.begin_step();
    {
      const Profiler::Scope scope(&profiler, "averages", Phase::kTransfer);
      if (step % 3 == 0) profiler.add_transfer(6, 3'000'000);
    }
    profiler.end_step();
  }
  const TimingReport report = report_of(profiler, {}, 64, 3);
  ASSERT_EQ(report.rows.front().name, "averages");
  EXPECT_EQ(report.rows.front().transfer_ms, 2);
  EXPECT_EQ(report.rows.front().bytes_sent, 1'000'000);
  EXPECT_THAT(report.table(), HasSubstr("over 7 steps of 64 images, of means over 3 steps in a row\n"));
}

TEST(Report, LayersThatRanAsOneOpAreOneRow) {
  Profiler profiler;
  profiler.enable(true);
  for (int step = 0; step < 3; ++step) {
    profiler.begin_step();
    { const Profiler::Scope scope(&profiler, "conv1+relu1", Phase::kForward); }
    { const Profiler::Scope scope(&profiler, "fc1", Phase::kForward); }
    { const Profiler::Scope scope(&profiler, "conv1+relu1", Phase::kBackward); }
    profiler.end_step();
  }
  const auto facts = [](const std::string& name, const Shape& out, double flops, int64_t bytes, int64_t weights) {
    return LayerFacts{name, "type", out, flops, 2 * flops, bytes, weights, flops};
  };
  const TimingReport report = report_of(
      profiler,
      {facts("conv1", {8, 8, 2}, 100, 10, 7), facts("relu1", {4, 4, 8}, 1, 20, 0), facts("fc1", {10}, 5, 30, 3)}, 64);

  std::vector<std::string> names;
  for (const TimingRow& row : report.rows) names.push_back(row.name);
  ASSERT_THAT(names, ElementsAre("conv1+relu1", "fc1", "rest", "step"));
  const TimingRow& both = report.rows[0];
  EXPECT_EQ(both.kind, TimingRow::Kind::kLayer);
  EXPECT_GT(both.forward_ms, 0);
  EXPECT_GT(both.backward_ms, 0);
  EXPECT_EQ(both.flops, 303);
  EXPECT_EQ(both.weight_bytes, 7);
  EXPECT_EQ(both.activation_bytes, 20);  // only the second one's output is kept
  EXPECT_EQ(both.out, "4x4x8");
  EXPECT_EQ(both.memory_bytes, 100);  // data between the layers stays in caches
}

TEST(Report, TheLastLayersToRunAsOneOpAreOneRow) {
  Profiler profiler;
  profiler.enable(true);
  profiler.begin_step();
  { const Profiler::Scope scope(&profiler, "fc1+relu1", Phase::kForward); }
  profiler.end_step();
  const TimingReport report =
      report_of(profiler, {{"fc1", "dense", {10}, 5, 10, 30, 3, 0}, {"relu1", "relu", {10}, 1, 2, 40, 0, 0}}, 64);
  ASSERT_EQ(report.rows.size(), 3u);  // including the remainder and the step
  EXPECT_EQ(report.rows[0].name, "fc1+relu1");
  EXPECT_EQ(report.rows[0].flops, 18);
}

TEST(Report, RatesAreThoseOfStepsWithoutTimersWhereTheyWereMeasured) {
  TimingReport report = made_up_report();
  report.untimed_ms = 4;
  EXPECT_DOUBLE_EQ(report.images_per_second(), 25000);  // 100 in 4 ms
  EXPECT_THAT(report.table(), HasSubstr("step 5.000 ms, without timers 4.000 ms, 25000.0 images/s"));
  EXPECT_THAT(report.csv(), HasSubstr("\nuntimed,step,,,0,0,0,4.0000,"));
}

TEST(Report, ReportsALayerThatWasNeverTimed) {
  Profiler profiler;
  const TimingReport report = report_of(profiler);
  EXPECT_EQ(report.rows[0].gflops_per_second(), 0);
  EXPECT_EQ(report.images_per_second(), 0);
  EXPECT_THAT(report.table(), HasSubstr("conv1"));
}

TEST(Report, DerivesRatesFromTimes) {
  const TimingReport report = made_up_report();
  EXPECT_DOUBLE_EQ(report.rows[0].gflops_per_second(), 2000);  // 6 GFLOP in 1 + 2 ms
  EXPECT_DOUBLE_EQ(report.rows[1].gbytes_per_second(), 3);
  EXPECT_DOUBLE_EQ(report.images_per_second(), 20000);  // 100 in 5 ms
}

TEST(Report, TableShowsEveryFigureInItsColumn) {
  const std::vector<std::string> lines = lines_of(made_up_report().table());

  ASSERT_EQ(lines.size(), 12u);
  EXPECT_EQ(lines[0], "Worker 0 of 2, medians over 20 steps of 100 images");
  EXPECT_EQ(lines[2],
            "layer                type                out  forward backward  update  share   speed   activ.  "
            "weights");
  EXPECT_EQ(lines[4],
            "conv1                conv            32x32x8    1.000    2.000   0.500   70.0    2000     4.00     "
            "0.50");
  EXPECT_THAT(lines[8], StartsWith("gradients"));
  EXPECT_THAT(lines[8], HasSubstr("0.500     10.0         2.000      6.000     3.00"));
  EXPECT_THAT(lines[9], StartsWith("rest"));
  EXPECT_EQ(lines[11], "step 5.000 ms, 20000.0 images/s");
}

TEST(Report, ALayerIsHeldAgainstTheProductsOrTheMemoryThatItIsBoundBy) {
  TimingReport report = made_up_report();
  report.peak = {.flops_per_s = 4e12, .bytes_per_s = 10e9};  // 6 GFLOP in 1.5 ms, 7 MB in 0.7 ms; measured 3.5 ms
  EXPECT_DOUBLE_EQ(report.peak_share(report.rows[0]), 1.5 / 3.5);
  EXPECT_THAT(report.table(), AllOf(HasSubstr("   speed  peak    activ.  "), HasSubstr(" GFLOP/s    %         MB"),
                                    HasSubstr("  70.0    2000   43 c     4.00"),
                                    HasSubstr("\npeak 4000 GFLOP/s (c), 10.0 GB/s of memory (m)\n")));
  EXPECT_THAT(report.csv(), HasSubstr(",500000,7000000,0.4286,compute,0,0\n"));

  report.peak.bytes_per_s = 2e9;  // 7 MB in 3.5 ms
  EXPECT_THAT(report.table(), HasSubstr("  70.0    2000  100 m     4.00"));
  EXPECT_THAT(report.csv(), HasSubstr(",500000,7000000,1.0000,memory,0,0\n"));
}

TEST(Report, WithoutAPeakThereIsNoShareOfIt) {
  const TimingReport report = made_up_report();
  EXPECT_EQ(report.peak_share(report.rows[0]), 0);
  EXPECT_THAT(report.table(), testing::Not(HasSubstr("peak")));
}

TEST(Report, LongStepsAreShownWithTwoDecimals) {
  TimingReport report = made_up_report();
  report.rows.back().ms = 50;
  EXPECT_EQ(lines_of(report.table())[11], "step 50.00 ms, 2000.0 images/s");
}

TEST(Report, TableStaysNarrowWhateverTheNames) {
  TimingReport report = made_up_report();
  for (TimingRow& row : report.rows)
    row.name = std::string(200, 'x'), row.type = "a_very_long_type", row.out = "1234x1234x1234";
  report.peak = {1e12, 1e10};
  for (const std::string& line : lines_of(report.table())) EXPECT_LE(line.size(), 110u) << line;
}

TEST(Report, CsvHasAsManyFieldsInEveryLine) {
  TimingReport report = made_up_report();
  report.rows[1].name = "dense, \"fc6\"";

  const std::vector<std::string> lines = lines_of(report.csv());

  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0],
            "kind,name,type,out,forward_ms,backward_ms,update_ms,ms,share,transfer_ms,gflops_per_s,bytes_sent,"
            "gbytes_per_s,activation_bytes,weight_bytes,memory_bytes,peak_share,bound,update_in_backward,rank");
  EXPECT_EQ(
      lines[1],
      "layer,conv1,conv,32x32x8,1.0000,2.0000,0.5000,3.5000,0.70000,0.0000,2000.00,0,0.000,4000000,500000,7000000,"
      "0.0000,,0,0");
  EXPECT_THAT(lines[2], StartsWith("transfer,\"dense, \"\"fc6\"\"\",,,"));
  EXPECT_THAT(lines[4], StartsWith("step,step,,,0.0000,0.0000,0.0000,5.0000,1.00000,"));
}

// Rank 1 takes longer for conv1, rank 2 for the transfer; rank 1 has a row that rank 0 does not have.
std::vector<RankTimes> three_ranks() {
  const auto rank = [](double conv, double gradients) {
    return RankTimes{.rows = {{"conv1", Phase::kForward, conv}, {"gradients", Phase::kTransfer, gradients, 1, 500}},
                     .step_ms = 20 + conv / 10};
  };
  std::vector<RankTimes> ranks{rank(4, 5), rank(7, 2), rank(5, 6)};
  ranks[1].rows.push_back({"data wait", Phase::kData, 3});
  return ranks;
}

TEST(Report, ShowsTheSlowestRankBesideTheFirst) {
  const std::vector<std::string> lines = lines_of(make_report(three_ranks(), one_layer(), 128).table());
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_THAT(lines[2], testing::EndsWith("  weights   slowest"));
  EXPECT_THAT(lines[3], testing::EndsWith("       MB  ms @rank"));
  EXPECT_THAT(lines[4], AllOf(StartsWith("conv1  "), HasSubstr("   4.00 "), testing::EndsWith("   7.00 @1")));
  EXPECT_THAT(lines[8], AllOf(StartsWith("gradients"), testing::EndsWith("   6.00 @2")));
  EXPECT_EQ(lines[11], "step 20.40 ms, slowest worker 1 20.70 ms, 6274.5 images/s");
}

TEST(Report, CsvHasRowsOfEveryRankThoseOfTheFirstInFront) {
  const std::vector<std::string> lines = lines_of(make_report(three_ranks(), one_layer(), 128).csv());
  ASSERT_EQ(lines.size(), 1u + 4 + 5 + 4);
  EXPECT_THAT(lines[1], AllOf(StartsWith("layer,conv1,conv,32x32x8,4.0000,"), testing::EndsWith(",0")));
  EXPECT_THAT(lines[5], AllOf(StartsWith("layer,conv1,conv,32x32x8,7.0000,"), testing::EndsWith(",1")));
  EXPECT_THAT(lines[6], AllOf(StartsWith("other,data wait,,,0.0000,0.0000,0.0000,3.0000,"), testing::EndsWith(",1")));
  EXPECT_THAT(lines[9], AllOf(StartsWith("step,step,"), HasSubstr(",20.7000,1.00000,"), testing::EndsWith(",1")));
  EXPECT_THAT(lines[11], AllOf(StartsWith("transfer,gradients,"), HasSubstr(",6.0000,"), testing::EndsWith(",2")));
}

TEST(Trace, ShowsEverySpanOfEveryRankOnTheTrackOfItsStream) {
  std::vector<Profiler> ranks(2);
  for (Profiler& profiler : ranks) run_steps(profiler);

  const nlohmann::json trace = nlohmann::json::parse(trace_json(ranks));

  std::map<int, int> spans;      // process -> how many
  std::set<std::string> tracks;  // "rank 1/transfer/gradients"
  std::map<std::pair<int, int>, std::string> threads;
  for (const auto& event : trace["traceEvents"]) {
    const int process = event["pid"], thread = event["tid"];
    if (event["name"] == "thread_name") threads[{process, thread}] = event["args"]["name"];
    if (event["ph"] != "X") continue;
    ++spans[process];
    tracks.insert(concat(process, "/", threads[{process, thread}], "/", event["name"].get<std::string>()));
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_LT(event["args"]["step"].get<int>(), 3);
  }
  EXPECT_EQ(spans, (std::map<int, int>{{0, 21}, {1, 21}}));
  EXPECT_THAT(tracks, testing::IsSupersetOf({"0/compute/conv1 forward", "0/compute/loss", "1/compute/conv1 backward",
                                             "1/transfer/gradients", "1/data/data wait"}));
}

TEST(Trace, ListsTheCriticalPathAndMarksItsParts) {
  std::vector<Profiler> ranks(2);
  for (Profiler& profiler : ranks) run_steps(profiler);
  const std::vector<PathPart> path{{"conv1 forward", 0, false, 0, 2}, {"gradients", 1, true, 2, 5}};

  const nlohmann::json trace = nlohmann::json::parse(trace_json(ranks, path));

  std::map<int, std::string> processes, threads;  // threads: of the way
  std::vector<std::string> way;
  std::set<std::string> marked;
  double first = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
    if (event["name"] == "thread_name" && event["pid"] == 2) threads[event["tid"]] = event["args"]["name"];
    if (event["ph"] != "X") continue;
    if (event["args"].contains("longest_way"))
      marked.insert(concat(event["pid"].get<int>(), "/", event["name"].get<std::string>()));
    if (event["pid"] != 2) continue;
    if (way.empty()) first = event["ts"];
    way.push_back(format("{} on {}: {:.3f} for {:.3f}", event["name"].get<std::string>(), event["tid"].get<int>(),
                         event["ts"].get<double>() - first, event["dur"].get<double>()));
  }
  EXPECT_EQ(processes[2], "critical path of a typical step");
  EXPECT_EQ(threads, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}, {2, "transfers"}}));
  EXPECT_EQ(way, (std::vector<std::string>{"conv1 forward on 0: 0.000 for 2000.000",
                                           "gradients on 2: 2000.000 for 3000.000"}));
  EXPECT_EQ(marked, (std::set<std::string>{"0/conv1 forward", "0/gradients", "1/gradients"}));
}

TEST(Trace, ARankThatBeganLaterIsLaterOnTheClock) {
  std::vector<Profiler> ranks(1);
  run_steps(ranks[0]);
  ranks.emplace_back();  // all its measurements come after all of the first
  run_steps(ranks[1]);
  const nlohmann::json trace = nlohmann::json::parse(trace_json(ranks));
  double end_of_first = 0, begin_of_second = 1e30;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    if (event["pid"] == 0) end_of_first = std::max(end_of_first, begin + event["dur"].get<double>());
    if (event["pid"] == 1) begin_of_second = std::min(begin_of_second, begin);
  }
  EXPECT_LE(end_of_first, begin_of_second + 0.002);  // microseconds, printed with three digits
}

TEST(Trace, EscapesNames) {
  Profiler profiler;
  profiler.enable(true), profiler.keep_spans(true);
  profiler.begin_step();
  { const Profiler::Scope scope(&profiler, "a\"b\\c\n", Phase::kLoss); }
  profiler.end_step();

  const nlohmann::json trace = nlohmann::json::parse(trace_json({&profiler, 1}));
  EXPECT_EQ(trace["traceEvents"].back()["name"], "a\"b\\c\n");
}

}  // namespace
}  // namespace owt::report_test
