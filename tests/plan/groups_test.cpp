#include "src/plan/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <tuple>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/models.h"

namespace owt::groups_test {
namespace {

Plan plan_of(Strategy strategy, int ranks, int model_ranks, Device device) {
  const Model model = model_of("[2, 1, 1]", 4, R"(
  { name = "fc1", type = "dense", out = 4 })");
  return make_plan(
      model, {.ranks = ranks, .strategy = strategy, .step_rows = ranks, .on = device, .model_ranks = model_ranks});
}

// The ranks of the world in a group, in its order.
std::vector<float> members(Communicator& group, int world_rank, Device device) {
  Tensor all({group.ranks()}, DType::kF32, device);
  group.all_gather(upload({static_cast<float>(world_rank)}, {1}, device), all, {}).wait();
  return download(all);
}

using Case = std::tuple<Device, int, int>;  // device, ranks, model ranks

class GroupsTest : public ::testing::TestWithParam<Case> {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  int model_ranks() const { return std::get<2>(GetParam()); }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Device device : devices())
    for (const auto& [ranks, model_ranks] :
         {std::pair(1, 1), {2, 1}, {2, 2}, {3, 3}, {4, 1}, {4, 2}, {4, 4}, {6, 2}, {6, 3}})
      all.emplace_back(device, ranks, model_ranks);
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [device, ranks, model_ranks] = info.param;
  return concat(ranks, "_in_", model_ranks, "s_", device);
}
INSTANTIATE_TEST_SUITE_P(Grids, GroupsTest, ::testing::ValuesIn(cases()), case_name);

TEST_P(GroupsTest, AreConsecutiveRanksAndThoseWithTheSamePlace) {
  const Plan plan = plan_of(Strategy::kOwtA, ranks(), model_ranks(), device());
  const auto body = [&](Communicator& world) {
    const Groups groups(plan, world);
    const int rank = world.rank();
    std::vector<float> all, model, replicas;
    for (int r = 0; r < ranks(); ++r) {
      all.push_back(static_cast<float>(r));
      if (r / model_ranks() == rank / model_ranks()) model.push_back(static_cast<float>(r));
      if (r % model_ranks() == rank % model_ranks()) replicas.push_back(static_cast<float>(r));
    }
    EXPECT_EQ(members(groups.world(), rank, device()), all);
    EXPECT_EQ(members(groups.model(), rank, device()), model);
    EXPECT_EQ(members(groups.replicas(), rank, device()), replicas);
    EXPECT_EQ(groups.model().rank(), rank % model_ranks());
    EXPECT_EQ(groups.replicas().rank(), rank / model_ranks());
    EXPECT_EQ(&groups.of(Group::kWorld), &groups.world());
    EXPECT_EQ(&groups.of(Group::kModel), &groups.model());
    EXPECT_EQ(&groups.of(Group::kReplicas), &groups.replicas());
    for (const Group group : {Group::kWorld, Group::kModel, Group::kReplicas})
      EXPECT_EQ(groups.of(group).ranks(), plan.ranks_of(group)) << name_of(group);
  };
  run_ranks(ranks(), 1, body, device());
}

TEST_P(GroupsTest, TheBytesOfAllGroupsCountWithThoseOfTheWorld) {
  const Plan plan = plan_of(Strategy::kOwtA, ranks(), model_ranks(), device());
  const auto body = [&](Communicator& inner) {
    ProfiledCommunicator world(inner, nullptr);
    const Groups groups(plan, world);
    int64_t wanted = 0;
    for (const Group group : {Group::kWorld, Group::kModel, Group::kReplicas}) {
      Tensor sum = upload(std::vector<float>(60, 1), {60}, device());
      groups.of(group).all_reduce(sum, {}).wait();
      EXPECT_EQ(download(sum).front(), static_cast<float>(plan.ranks_of(group)));
      wanted += bytes_sent(Collective::kAllReduce, 240, plan.ranks_of(group));
    }
    EXPECT_EQ(world.bytes(), wanted);
  };
  run_ranks(ranks(), 1, body, device());
}

TEST(Groups, UnderDataParallelEveryRankIsAModelGroupOfItsOwn) {
  const Plan plan = plan_of(Strategy::kDataParallel, 4, 2, Device::kCpu);
  run_ranks(4, 1, [&](Communicator& world) {
    const Groups groups(plan, world);
    EXPECT_EQ(groups.model().ranks(), 1);
    EXPECT_EQ(groups.replicas().ranks(), 4);
    EXPECT_EQ(groups.replicas().rank(), world.rank());
  });
}

TEST(Groups, RefuseAWorldOfAnotherSize) {
  const Plan plan = plan_of(Strategy::kOwtA, 2, 2, Device::kCpu);
  EXPECT_THROW(run_ranks(3, 1, [&](Communicator& world) { const Groups groups(plan, world); }), Error);
}

}  // namespace
}  // namespace owt::groups_test
