#include "src/commands/planner_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/fixed_compute.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt::planner_files_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<CollectiveTime> kTimes = {
    {.collective = Collective::kAllReduce, .bytes = 4096, .seconds = 2e-5, .calls = 50},
    {.collective = Collective::kAllReduce, .bytes = 1 << 20, .seconds = 1e-3, .calls = 20, .overlaps = true},
    {.collective = Collective::kAllGather, .bytes = 4096, .seconds = 1e-5, .calls = 50}};

class LinksFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) const {
    write_bytes(folder_.file("links.json"), text);
    return folder_.file("links.json");
  }
  TempFolder folder_;
};

// kTimes, and one time of each collective that it lacks.
std::vector<CollectiveTime> of_all_collectives() {
  std::vector<CollectiveTime> times(std::begin(kTimes), std::end(kTimes));
  for (const Collective collective : all_collectives())
    if (std::none_of(times.begin(), times.end(), [&](const auto& time) { return time.collective == collective; }))
      times.push_back({collective, 4096, 1e-5, 50, true});
  return times;
}

TEST_F(LinksFile, ComesBackAsItWasWritten) {
  const Network network = read_links(write(links_json(of_all_collectives(), 4, 2, Device::kCpu)));
  EXPECT_EQ(network.hosts, 2);
  EXPECT_EQ(network.ranks_per_host, 2);
  EXPECT_EQ(network.measured_ranks, 4);
  EXPECT_EQ(network.measured_hosts, 2);
  EXPECT_TRUE(network.overlaps);
  EXPECT_EQ(network.measured.size(), all_collectives().size());
  EXPECT_DOUBLE_EQ(network.seconds(Collective::kAllReduce, 1 << 20, network.consecutive(4)), 1e-3);
  EXPECT_DOUBLE_EQ(network.seconds(Collective::kAllGather, 4096, network.consecutive(4)), 1e-5);
}

TEST_F(LinksFile, WithoutACollectiveIsAnErrorThatNamesIt) {
  EXPECT_THAT(message_of([&] { read_links(write(links_json(kTimes, 4, 2, Device::kCpu))); }),
              HasSubstr("no times of reduce_scatter"));
}

TEST_F(LinksFile, SaysTheSpeedsOfNcclTests) {
  const auto json = nlohmann::json::parse(links_json(kTimes, 4, 1, Device::kCpu));
  EXPECT_NEAR(json["times"][0]["algbw"].get<double>(), 4096 / 2e-5, 1);
  EXPECT_NEAR(json["times"][0]["busbw"].get<double>(), 1.5 * 4096 / 2e-5, 1);
}

TEST_F(LinksFile, WhatIsWrongInItIsAnErrorWithItsName) {
  const std::string good = links_json(kTimes, 4, 1, Device::kCpu);
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return write(text);
  };
  const auto error = [&](const std::string& path, const std::string& what) {
    EXPECT_THAT(message_of([&] { read_links(path); }),
                AllOf(HasSubstr("links.json: "), HasSubstr(what), HasSubstr("owt bench-comm --json")));
  };
  error(write("{"), "no JSON object");
  error(write("{\"format\": " + nested(1'000'000) + "}"), "nested deeper than 64 levels");
  error(write("{}"), "\"format\" is not \"owt links 1\"");
  error(broken("owt links 1", "owt links 2"), "\"format\"");
  error(broken("all_reduce", "all_together"), "no collective 'all_together'");
  error(broken("\"bytes\": 4096", "\"bytes\": 0"), "'bytes' is 0, wanted a whole number from 1");
  error(broken("\"bytes\": 4096", "\"bytes\": 40.5"), "'bytes' is 40.5, wanted a whole number");
  error(broken("\"bytes\": 4096", "\"bytes\": 18446744073709551615"), "'bytes' is 18446744073709551615, wanted");
  error(broken("\"seconds\": 2e-05", "\"seconds\": -1"), "'seconds' is -1, wanted a number above 0");
  error(broken("\"seconds\": 2e-05", "\"seconds\": 1e300"), "'seconds' is 1e+300, wanted a number above 0 and up to");
  error(broken("\"seconds\": 2e-05", "\"seconds\": 1e400"), "'seconds' is '1e400', which no number can hold");
  error(broken("\"seconds\": 2e-05", "\"seconds\": null"), "'seconds' is null, wanted a number");
  error(broken("\"seconds\"", "\"secs\""), "there is no 'seconds', wanted a number");
  error(broken("\"hosts\": 1", "\"hosts\": 3"), "4 ranks on 3 hosts");
  error(broken("\"hosts\": 1", "\"hosts\": 4294967297"), "'hosts' is 4294967297, wanted a whole number from 1 to 4");
  error(broken("\"ranks\": 4", "\"ranks\": \"four\""), "'ranks' is string, wanted a whole number from 2");
  error(broken("\"ranks\": 4", "\"ranks\": -4"), "'ranks' is -4, wanted a whole number from 2");
  error(broken("\"hosts\": 1", "\"hosts\": 0"), "'hosts' is 0, wanted a whole number from 1 to 4");
  error(broken("\"ranks\": 4", "\"ranks\": 1"), "'ranks' is 1, wanted a whole number from 2");
  error(broken("\"owt links 1\"", "1"), "'format' is 1, wanted a text");
  error(broken("\"collective\"", "\"collection\""), "there is no 'collective', wanted a text");
  error(broken("\"overlaps\": false", "\"overlaps\": 0"), "'overlaps' is 0, wanted true or false");
  error(broken("\"times\": [", "\"times\": [7, "), "'times' is array, wanted a list of objects");
  error(broken("\"times\"", "\"timings\""), "there is no 'times', wanted a list of objects");
  EXPECT_THROW(read_links(folder_.file("none.json")), Error);
}

TEST(PredictionJson, HoldsEveryStrategy) {
  const Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "2"}});
  PlanRequest request = settings.plan_request();
  Network network;
  network.ranks_per_host = 2;
  network.local = {1e-6, 1e9};
  const Plan plan = make_plan(settings.model, request);
  const FixedCompute compute(std::vector<FixedCompute::Layer>(plan.layers.size(), {1e-3, 2e-3, 1e-3}));
  PlannerResult result;
  result.choice = choose_strategy(settings.model, request, network, compute);
  result.model = "small";
  result.network = "a link";
  result.compute = "a device";
  result.crossover_rows = 42;
  result.crossover_rows_by_bytes = 43;
  const auto json = nlohmann::json::parse(prediction_json(result));
  EXPECT_EQ(json["format"], "owt prediction 1");
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["model"], "small");
  EXPECT_EQ(json["step_rows"], request.step_rows);
  EXPECT_EQ(json["network"], "a link");
  EXPECT_EQ(json["compute"], "a device");
  EXPECT_EQ(json["reason"], result.choice.reason());
  EXPECT_EQ(json["crossover_rows"], 42);
  EXPECT_EQ(json["crossover_rows_by_bytes"], 43);
  EXPECT_EQ(json["best"], result.choice.chosen().name());
  ASSERT_EQ(json["strategies"].size(), result.choice.all.size());
  for (size_t i = 0; i < result.choice.all.size(); ++i) {
    const auto& entry = json["strategies"][i];
    EXPECT_EQ(entry["name"], result.choice.all[i].name());
    const Prediction& p = result.choice.all[i];
    EXPECT_EQ(entry["strategy"], name_of(p.request.strategy));
    EXPECT_EQ(entry["model_ranks"], p.model_ranks);
    EXPECT_EQ(entry["bytes"], p.bytes);
    EXPECT_EQ(entry["busiest_link"], p.busiest_link);
    EXPECT_EQ(entry["memory_bytes"], p.memory_bytes);
    EXPECT_EQ(entry["compute_s"], p.compute_s);
    EXPECT_EQ(entry["exposed_s"], p.exposed_s);
    EXPECT_EQ(entry["update_s"], p.update_s);
    EXPECT_EQ(entry["transfer_s"], p.transfer_s);
    EXPECT_EQ(entry["images_per_second"], p.images_per_second());
    EXPECT_NEAR(entry["step_s"].get<double>(),
                entry["compute_s"].get<double>() + entry["exposed_s"].get<double>() + entry["update_s"].get<double>(),
                1e-12);
  }
  EXPECT_FALSE(json.contains("step"));
  EXPECT_EQ(json["refused"].size(), result.choice.refused.size());
  result.choice.refused = {{"mp", "no"}};
  EXPECT_EQ(nlohmann::json::parse(prediction_json(result))["refused"][0]["why"], "no");
}

TEST(PredictionJson, HoldsEveryLaunchOfOneWorkersStepWhereItWasEstimated) {
  const Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "1"}});
  const PlanRequest request = settings.plan_request();
  PlannerResult result;
  const FixedCompute compute(
      std::vector<FixedCompute::Layer>(make_plan(settings.model, request).layers.size(), {1e-3, 2e-3, 1e-3}));
  result.choice = choose_strategy(settings.model, request, Network(), compute);
  result.step = estimate_step(device_speed("H200"), settings.model, make_plan(settings.model, request));
  const auto step = nlohmann::json::parse(prediction_json(result))["step"];
  EXPECT_EQ(step["device"], "H200");
  EXPECT_EQ(step["seconds"], result.step->seconds());
  EXPECT_EQ(step["images_per_second"], result.step->images_per_second());
  EXPECT_EQ(step["floor_s"], result.step->floor_seconds);
  EXPECT_EQ(step["assumptions"], result.step->assumptions);
  ASSERT_EQ(step["launches"].size(), result.step->launches.size());
  for (size_t i = 0; i < result.step->launches.size(); ++i) {
    const StepEstimate::Launch& each = result.step->launches[i];
    const auto& entry = step["launches"][i];
    EXPECT_EQ(entry["layer"], each.launch.name);
    EXPECT_EQ(entry["kernel"], each.launch.kernel);
    EXPECT_EQ(entry["phase"], name_of(each.launch.phase));
    EXPECT_EQ(entry["bytes"], each.launch.bytes(static_cast<double>(request.step_rows)));
    EXPECT_EQ(entry["flops"], each.launch.flops * static_cast<double>(request.step_rows));
    EXPECT_EQ(entry["seconds"], each.seconds);
    EXPECT_EQ(entry["bound"], each.bound);
    EXPECT_EQ(entry["beside"], each.launch.beside);
  }
}

}  // namespace
}  // namespace owt::planner_files_test
