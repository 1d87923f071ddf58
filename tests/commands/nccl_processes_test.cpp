// NCCL without a second GPU: two processes share one, as with owt launch --share-gpu. Every process runs every test.
// The tests of collectives and messages are in tests/comm. Training steps must have the same losses as among threads.
//
// A process that was started alone starts the others: first one that trains among threads, then two that run the tests.
// It uses no GPU itself. Without a GPU it runs nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/commands/launch_processes.h"
#include "src/core/gpus.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt::nccl_processes_test {
namespace {

constexpr int kProcesses = 2, kSteps = 20;
constexpr const char* kStrategies[] = {"dp", "dp-star", "owt-a", "owt-c", "owt-d", "mp", "pipeline"};
constexpr const char* kAmongThreads = "--among-threads";                // FILE: writes the losses by strategy
constexpr const char* kLossesOfThreads = "OWT_TEST_LOSSES_OF_THREADS";  // the file, for the processes

std::vector<double> losses_of_rank_0(const std::string& strategy) {
  return run_small(kSmallRecipe, kSteps,
                   {{"parallel.workers", std::to_string(kProcesses)},
                    {"parallel.strategy", strategy},
                    {"run.device", "cuda"}})
      .losses;
}

nlohmann::json read_losses(const std::string& file) { return nlohmann::json::parse(std::ifstream(file)); }

class StepsThroughNccl : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Strategies, StepsThroughNccl, ::testing::ValuesIn(kStrategies), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST_P(StepsThroughNccl, HaveTheLossesOfThreads) {
  const std::vector<double> losses = losses_of_rank_0(GetParam());
  if (launch().rank != 0) return;
  const std::vector<double> wanted = read_losses(std::getenv(kLossesOfThreads)).at(GetParam());
  ASSERT_EQ(losses.size(), wanted.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 1e-3 * wanted[i]) << "step " << i;
}

int train_among_threads(const std::string& file) {
  nlohmann::json losses = nlohmann::json::object();
  if (gpu_present())
    for (const char* const strategy : kStrategies) losses[strategy] = losses_of_rank_0(strategy);
  std::ofstream(file) << losses;
  return 0;
}

int start_all(const std::vector<std::string>& words) {
  const TempFolder folder;
  const std::string losses = folder.file("losses.json");
  ProcessesToLaunch what;
  what.hosts = {{"localhost", 1}};
  what.command = {words.front(), kAmongThreads, losses};
  if (const int code = launch_processes(what)) return code;
  if (read_losses(losses).empty()) {
    std::cout << "skipped: there is no GPU\n";
    return 0;
  }
  setenv(kLossesOfThreads, losses.c_str(), 1);
  what.hosts.front().workers = kProcesses;
  what.share_gpu = true;
  what.command = words;
  return launch_processes(what);
}

int run_tests(int count, char** words) {
  testing::GTEST_FLAG(brief) = launch().rank != 0;  // one process lists the tests
  testing::InitGoogleTest(&count, words);
  const int failed = RUN_ALL_TESTS();
  end_together(failed);
  return failed;
}

}  // namespace
}  // namespace owt::nccl_processes_test

int main(int count, char** words) {
  using namespace owt;
  try {
    if (launch().several()) return nccl_processes_test::run_tests(count, words);
    if (count == 3 && std::string(words[1]) == nccl_processes_test::kAmongThreads)
      return nccl_processes_test::train_among_threads(words[2]);
    return nccl_processes_test::start_all({words, words + count});
  } catch (const std::exception& e) {
    return end_with_error(e, e.what(), 1);
  }
}
