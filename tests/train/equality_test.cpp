#include "src/train/equality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "src/comm/on_host.h"
#include "src/comm/threads.h"
#include "src/core/threads.h"
#include "src/parallel/spread_weights.h"
#include "src/plan/plan_rows.h"
#include "src/train/made_up_batch.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/runs.h"

namespace owt::equality_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class EqualityTest : public DeviceTest {
 protected:
  // The message of check_equality after `spoil` has changed the model of `rank`, and `mend` all models; empty: none.
  std::string check(
      const Overrides& changes, int rank, const std::function<void(RankModel&)>& spoil,
      const std::function<void(RankModel&, const Groups&)>& mend = [](RankModel&, const Groups&) {}) const {
    Overrides all = changes;
    all.emplace_back("run.device", name_of(device()));
    const Settings settings = small_settings(kSmallRecipe, all);
    const Plan plan = settings.plan_to_run();
    std::string said;
    try {
      run_ranks(
          plan.ranks(), 1,
          [&](Communicator& comm) {
            const Groups groups(plan, comm);
            RankModel model(settings.model, plan, comm.rank());
            model.allocate(plan.request.on);
            model.initialize(3);
            if (comm.rank() == rank) spoil(model);
            mend(model, groups);
            check_equality(plan, model, groups, 41, "nothing is kept");
          },
          device());
    } catch (const Error& e) {
      said = e.what();
    }
    return said;
  }

  static void flip_one_bit(Param& param) {
    Tensor here = param.value.to(Device::kCpu).clone();
    reinterpret_cast<uint32_t*>(here.data())[here.elements() / 2] ^= 1;
    param.value.copy_from(here);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, EqualityTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(EqualityTest, FindsNothingWhereAllIsWell) {
  for (const char* strategy : {"dp", "owt-a", "owt-d", "mp"})
    for (const char* model_ranks : {"2", "4"})
      EXPECT_EQ(
          check({{"parallel.workers", "4"}, {"parallel.strategy", strategy}, {"parallel.model_ranks", model_ranks}}, 0,
                [](RankModel&) {}),
          "")
          << strategy << " in groups of " << model_ranks;
}

TEST_P(EqualityTest, RanksThatDrewOtherWeightsBeginWithThoseOfTheFirst) {
  for (const char* strategy : {"dp", "dp-zero", "dp-star", "owt-a", "mp"})
    for (const char* model_ranks : {"2", "4"})
      for (int rank = 0; rank < 4; ++rank)
        EXPECT_EQ(
            check(
                {{"parallel.workers", "4"}, {"parallel.strategy", strategy}, {"parallel.model_ranks", model_ranks}},
                rank, [](RankModel& model) { model.initialize(4); }, spread_weights),
            "")
            << strategy << " in groups of " << model_ranks << ", rank " << rank;
}

// Hosts with other numbers of cores round the sums of a gradient otherwise.
TEST_P(EqualityTest, CopiesStayEqualWhateverTeamsTheRanksHave) {
  for (const char* strategy : {"dp", "dp-zero", "dp-star", "owt-a", "mp"})
    for (const char* model_ranks : {"2", "4"}) {
      const Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "4"},
                                                              {"parallel.strategy", strategy},
                                                              {"parallel.model_ranks", model_ranks},
                                                              {"run.device", name_of(device())}});
      const Plan plan = settings.plan_to_run();
      run_ranks(
          plan.ranks(), 1,
          [&](Communicator& comm) {
            set_team_size(1 + comm.rank());
            Worker worker(settings, plan, comm);
            RankModel& model = worker.model;
            Step& step = worker.step;
            model.initialize(3);
            const Batch batch = on_all_hosts(comm, [&] {
              return made_up_batch(settings.model, rows_of(plan, plan.request.step_rows).of(comm.rank()), plan.request);
            });
            for (int64_t number = 0; number < 4; ++number) step.train(batch, number, {0.01, 0.01}, false);
            check_equality(plan, model, step.groups(), 4, "nothing is kept");
          },
          device());
    }
}

TEST_P(EqualityTest, OneBitBeforeTheBoundaryNamesParameterRankAndStep) {
  const std::string said = check({{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}}, 2,
                                 [](RankModel& model) { flip_one_bit(*model.front_params()[2]); });
  EXPECT_THAT(
      said, AllOf(HasSubstr("step 41: 'conv2.weight' of rank 2 is not that of rank 0"), EndsWith("; nothing is kept")));
}

TEST_P(EqualityTest, OneBitOfAPartNamesTheReplicas) {
  const std::string said =
      check({{"parallel.workers", "4"}, {"parallel.strategy", "owt-a"}, {"parallel.model_ranks", "2"}}, 3,
            [](RankModel& model) { flip_one_bit(*model.back_params()[0]); });
  EXPECT_THAT(said, HasSubstr("step 41: 'fc1.weight' of rank 3 is not that of rank 1"));
}

TEST_P(EqualityTest, PartsThatNobodyElseHoldsMayBeWhateverTheyAre) {
  EXPECT_EQ(check({{"parallel.workers", "2"}, {"parallel.strategy", "owt-a"}}, 1,
                  [](RankModel& model) { flip_one_bit(*model.back_params()[0]); }),
            "");
}

}  // namespace
}  // namespace owt::equality_test
