#include "src/train/session.h"

#include <gtest/gtest.h>

#include <atomic>

#include "src/comm/launch.h"
#include "src/core/threads.h"
#include "src/files/checkpoint_files.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt::session_test {
namespace {

Settings on_the_cpu(const std::string& algorithm) {
  return small_settings(kSmallRecipe, {{"run.device", "cpu"}, {"run.conv_algorithm", algorithm}});
}

TEST(Session, GivesEveryRankItsPartOfTheThreads) {
  const Session session(on_the_cpu("auto"), 4);
  EXPECT_EQ(team_size(), threads_per_rank(4, 1));
  std::atomic<int> ranks{0};
  session.run(2, [&](Communicator& comm) {
    EXPECT_EQ(comm.ranks(), 2);
    EXPECT_EQ(team_size(), threads_per_rank(4, 2));
    ++ranks;
  });
  EXPECT_EQ(ranks, 2);
}

TEST(Session, WarnsOnceOfMoreThreadsOrWorkersThanCores) {
  const int cores = hardware_cores();
  if (omp_get_thread_limit() <= cores) GTEST_SKIP() << "OMP_THREAD_LIMIT";
  const auto said = [&](int threads, int ranks) {
    testing::internal::CaptureStderr();
    Session(on_the_cpu("auto"), threads).run(ranks, [](Communicator&) {});
    return testing::internal::GetCapturedStderr();
  };
  const std::string many = concat("warning: ", cores + 1, " compute threads on ", cores, " core");
  EXPECT_EQ(said(cores + 1, 1).find(many), 0u);
  EXPECT_EQ(said(cores + 1, 1).rfind("warning: "), 0u);
  EXPECT_EQ(said(1, cores + 1).find(concat("warning: ", cores + 1, " compute threads of ", cores + 1, " workers")), 0u);
  EXPECT_EQ(said(cores, 1), "");
}

TEST(Session, ConvolutionsChooseAsTheRecipeSays) {
  for (const std::string algorithm : {"direct", "auto"}) {
    [[maybe_unused]] const Session session(on_the_cpu(algorithm), 1);
    EXPECT_EQ(ConvChoices::process().mode(), algorithm == "auto" ? ConvAlgorithm::kAuto : ConvAlgorithm::kDirect);
  }
}

TEST(Session, StartsWithTheAlgorithmsOfTheRunThatMadeTheWeights) {
  const TempFolder folder;
  const std::string pass = ConvChoices::key("a geometry of this test", 3);
  RunState state;
  state.conv_choices = {{pass, "direct"}};
  write_file_atomically(folder.file("state.json"), state.to_json());

  [[maybe_unused]] const Session session(on_the_cpu("auto"), 1, folder.file("weights.safetensors"));

  EXPECT_EQ(ConvChoices::process().exported()[pass], "direct");
}

}  // namespace
}  // namespace owt::session_test
