// cuDNN plans of processes with one GPU each, started by mpirun (tests/simulated_gpu/CMakeLists.txt). Each process has
// its own cache (tests/layers/plan_choice_gpu_test.cpp). A single process has no other to agree with.
#include "tests/simulated_gpu/device.h"

#include "src/parallel/shared_choices.h"

#include <gtest/gtest.h>

#include "layers/gpu/conv_plans.h"
#include "layers/gpu/plan_choice.h"
#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/core/memory.h"

namespace owt::shared_choices_gpu_test {
namespace {

class EndOfProcesses : public testing::Environment {
 public:
  void TearDown() override { end_together(0); }
};
const auto* const end_of_processes = testing::AddGlobalTestEnvironment(new EndOfProcesses);

// The plan of a convolution, chosen by a rank that takes only the plan at `place` of cuDNN's offers.
std::string choose(int64_t extent, int place) {
  const ConvGeometry geometry{extent, extent, 8, extent, extent, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  int offered = 0;
  const auto chosen = choose_plan(conv_forward_graph(geometry, 1, DType::kF32), {}, setup_stream(Device::kCuda),
                                  [&](const auto&, const auto& run) {
                                    run();
                                    return offered++ == place;
                                  });
  return chosen ? chosen->plan.json() : "none";
}

void expect_the_same_on_all(const std::string& plan) {
  EXPECT_NE(plan, "none");
  for (const std::string& of_a_rank : from_every_rank(plan)) EXPECT_EQ(of_a_rank, plan);
}

TEST(ChoicesOfProcesses, AreTheFirstRanksWhateverTheOthersMeasure) {
  std::string chosen;
  bind_alike([&] { chosen = choose(9, launch().rank); });
  expect_the_same_on_all(chosen);
}

TEST(ChoicesOfProcesses, AreTheLastRanksWhereItAloneKnowsTheGeometry) {
  const bool last = launch().rank == launch().ranks - 1;
  bind_alike([&] {
    if (last) choose(10, 1);
  });
  expect_the_same_on_all(choose(10, last ? 1 : 0));
}

}  // namespace
}  // namespace owt::shared_choices_gpu_test
