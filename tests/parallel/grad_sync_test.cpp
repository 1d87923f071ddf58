#include "src/parallel/grad_sync.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "layers/registry.h"
#include "src/comm/profiled.h"
#include "src/comm/solo.h"
#include "src/comm/threads.h"
#include "src/net/net.h"
#include "src/system/check.h"
#include "tests/support/front_model.h"
#include "tests/support/harness.h"
#include "tests/support/late_communicator.h"

namespace owt::grad_sync_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Parameters of 2 + 2, 4 + 2 and 6 + 3 elements in layers 0, 2 and 3, each padded to 8 in a bucket.
constexpr int kKernel = 1;

Plan plan_for(int ranks, int64_t bucket_bytes, const Compute& on = {}) {
  return make_plan(front_model(kKernel), {.ranks = ranks,
                                          .strategy = Strategy::kDataParallel,
                                          .step_rows = ranks,
                                          .bucket_bytes = bucket_bytes,
                                          .on = on});
}

WeightSync::LayerOf layers_of(Net& net) {
  return [&net](int64_t layer) -> Layer& { return net.layer(layer); };
}

GradSync sync_of(const Plan& plan, Net& net, Communicator& comm) {
  return GradSync(plan.buckets, layers_of(net), plan.request.on, comm);
}

int buckets_of(const Plan& plan) { return static_cast<int>(plan.buckets.size()); }

// Like a step: starts all buckets before it waits for the first.
void sum_all(GradSync& sync, const Plan& plan) {
  const Stream stream(plan.request.on.device);
  for (int b = 0; b < buckets_of(plan); ++b) sync.start_gradients(b, stream);
  for (int b = 0; b < buckets_of(plan); ++b) sync.wait_for_gradients(b, stream);
  stream.synchronize();
}

void expect_gradients(const Net& net, float scale) {
  for (const Param* param : net.params()) {
    EXPECT_FALSE(param->grad_is_zero) << param->name;
    EXPECT_EQ(download(param->grad), counted(param->grad.elements(), scale)) << param->name;
  }
}

// device, ranks, bytes of a bucket
using Case = std::tuple<Device, int, int64_t>;

class GradSyncTest : public ::testing::TestWithParam<Case> {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  Plan plan() const { return plan_for(ranks(), std::get<2>(GetParam()), device()); }
  void on_every_rank(const std::function<void(Communicator&)>& body) const { run_ranks(ranks(), 1, body, device()); }
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [device, ranks, bytes] = info.param;
  return concat(ranks, "_ranks_", bytes, "_bytes_", device);
}

INSTANTIATE_TEST_SUITE_P(RanksAndBuckets, GradSyncTest,
                         ::testing::Combine(::testing::ValuesIn(devices()), ::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(kEachItsOwn, kTwoAndOne, kAllInOne)),
                         case_name);

TEST_P(GradSyncTest, SumsEveryGradientOverTheRanksStepAfterStep) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel);
    GradSync sync = sync_of(shared, net, comm);
    for (const float step : {1.0f, 2.0f, 3.0f}) {
      contribute(net, step * static_cast<float>(comm.rank() + 1));
      sum_all(sync, shared);
      expect_gradients(net, step * static_cast<float>(ranks() * (ranks() + 1) / 2));
    }
  });
}

TEST_P(GradSyncTest, WhereGradientsAreCopiedThoseOfTheFirstRankAreEverybodys) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    const auto alone = make_solo_communicator(device());
    Net net = front_net(kKernel);
    GradSync sync(shared.buckets, layers_of(net), shared.request.on, *alone, &comm);
    const Stream stream(device());
    for (const float step : {1.0f, 2.0f}) {
      contribute(net, step * static_cast<float>(comm.rank() + 1));
      for (int b = 0; b < buckets_of(shared); ++b) sync.start_copies(b, stream);
      for (int b = 0; b < buckets_of(shared); ++b) sync.wait_for_gradients(b, stream);
      stream.synchronize();
      expect_gradients(net, step);
    }
  });
}

TEST_P(GradSyncTest, WhereSumsAreCopiedTheyAreSummedFirst) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel);
    GradSync sync(shared.buckets, layers_of(net), shared.request.on, comm, &comm);
    const Stream stream(device());
    for (const float step : {1.0f, 2.0f}) {
      contribute(net, step * static_cast<float>(comm.rank() + 1));
      for (int b = 0; b < buckets_of(shared); ++b) {
        sync.start_gradients(b, stream);
        sync.start_copies(b, stream);
      }
      for (int b = 0; b < buckets_of(shared); ++b) sync.wait_for_gradients(b, stream);
      stream.synchronize();
      expect_gradients(net, step * static_cast<float>(ranks() * (ranks() + 1) / 2));
    }
  });
}

TEST_P(GradSyncTest, WaitsForSumsHoweverLateTheyCome) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    LateCommunicator late(comm);
    Net net = front_net(kKernel);
    GradSync sync = sync_of(shared, net, late);
    for (const float step : {1.0f, 2.0f}) {
      contribute(net, step * static_cast<float>(comm.rank() + 1));
      sum_all(sync, shared);
      expect_gradients(net, step * static_cast<float>(ranks() * (ranks() + 1) / 2));
    }
  });
}

TEST_P(GradSyncTest, ARankWithoutAGradientAddsNothingWhateverItsMemoryHolds) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel);
    GradSync sync = sync_of(shared, net, comm);
    const bool empty = comm.rank() == ranks() - 1;
    contribute(net, empty ? kNaN : static_cast<float>(comm.rank() + 1));
    if (empty)
      for (Param* param : net.params()) param->grad_is_zero = true;
    sum_all(sync, shared);
    expect_gradients(net, static_cast<float>(ranks() * (ranks() - 1) / 2));
  });
}

TEST_P(GradSyncTest, SendsTheBytesOfThePlan) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    Net net = front_net(kKernel);
    GradSync sync = sync_of(shared, net, comm);
    contribute(net, 1);
    sum_all(sync, shared);
    EXPECT_EQ(shared.transfers.at(0).name, "gradients");
    EXPECT_EQ(comm.bytes(), shared.transfers[0].bytes);
  });
}

// Replicas of a part that is smaller than the largest one: padding after its gradients is sent too and does no harm.
TEST_P(GradSyncTest, BucketsMayBeLongerThanTheirParameters) {
  Plan shared = plan();
  for (Bucket& bucket : shared.buckets) bucket.elements += 8;
  on_every_rank([&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    Net net = front_net(kKernel);
    GradSync sync = sync_of(shared, net, comm);
    int64_t planned = 0;
    for (const float step : {1.0f, 2.0f}) {
      contribute(net, step * static_cast<float>(comm.rank() + 1));
      sum_all(sync, shared);
      expect_gradients(net, step * static_cast<float>(ranks() * (ranks() + 1) / 2));
      for (const Bucket& bucket : shared.buckets)
        planned += bytes_sent(Collective::kAllReduce, bucket.elements * 4, ranks());
    }
    EXPECT_EQ(comm.bytes(), planned);
  });
}

TEST(GradSync, RefusesABucketThatIsTooShort) {
  Plan shared = plan_for(2, kAllInOne);
  --shared.buckets[0].elements;
  Net net = front_net(kKernel);
  run_ranks(1, 1, [&](Communicator& comm) { EXPECT_NO_THROW(sync_of(shared, net, comm)); });  // its end is padding
  shared.buckets[0].elements -= 6;                                                            // for 2 elements in 8
  run_ranks(1, 1, [&](Communicator& comm) { EXPECT_THROW(sync_of(shared, net, comm), Error); });
}

TEST(GradSync, GradientsOfABucketLieOnMultiplesOf32BytesAndOutliveInitialization) {
  const Plan plan = plan_for(2, kAllInOne);
  const auto comm = make_solo_communicator(Device::kCpu);
  Net net = front_net(kKernel);
  GradSync sync = sync_of(plan, net, *comm);
  for (Param* param : net.params()) param->initialize(1);
  const float* conv3 = net.layer(3).params()[0]->grad.data();
  EXPECT_EQ(net.layer(3).params()[1]->grad.data(), conv3 + 8);
  EXPECT_EQ(net.layer(2).params()[0]->grad.data(), conv3 + 16);
  EXPECT_EQ(net.layer(0).params()[0]->grad.data(), conv3 + 32);
}

}  // namespace
}  // namespace owt::grad_sync_test
