// Both sharded updates (sharded_update.h, star_update.h).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "layers/registry.h"
#include "src/comm/bf16_transport.h"
#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "src/net/net.h"
#include "src/parallel/grad_sync.h"
#include "src/parallel/star_update.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_updates.h"
#include "tests/support/front_model.h"
#include "tests/support/harness.h"

namespace owt::sharded_update_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Parameters of 18 + 2, 4 + 2 and 6 + 3 elements in layers 0, 2 and 3, which take 24 + 8, 8 + 8 and 8 + 8 in a bucket.
constexpr int kKernel = 3;

WeightSync::LayerOf layers_of(Net& net) {
  return [&net](int64_t layer) -> Layer& { return net.layer(layer); };
}

std::unique_ptr<WeightSync> sync_for(const Plan& plan, Net& net, Communicator& comm) {
  if (plan.updates() == Updates::kFirst) return std::make_unique<StarUpdate>(plan, layers_of(net), comm);
  return std::make_unique<ShardedUpdate>(plan, layers_of(net), comm);
}

// Weights take their gradients' values.
void take_gradients(std::span<const ParamPart> parts, const Stream& stream) {
  for (const ParamPart& part : parts) {
    Tensor value = part.param->value.part(part.elements.begin, {part.elements.size()});
    value.copy_from(part.gradient, stream);
    part.param->grad_is_zero = true;
  }
}

using Update = std::function<void(std::span<const ParamPart> parts, const Stream& stream)>;

// Like a step: a bucket is updated after the next one has been sent.
void run_step(WeightSync& sync, const Plan& plan, const Update& update = take_gradients) {
  const Stream stream(plan.request.on.device);
  const int buckets = static_cast<int>(plan.buckets.size());
  for (int b = 0; b <= buckets; ++b) {
    if (b < buckets) sync.start_gradients(b, stream);
    if (b == 0) continue;
    sync.wait_for_gradients(b - 1, stream);
    update(sync.share(b - 1), stream);
    sync.start_weights(b - 1, stream);
  }
  for (int b = 0; b < buckets; ++b) sync.wait_for_weights(b, stream);
  stream.synchronize();
}

// device, strategy, ranks, bytes of a bucket
using Case = std::tuple<Device, Strategy, int, int64_t>;
constexpr Strategy kBoth[] = {Strategy::kDataParallelZero, Strategy::kDataParallelStar};

class ShardedUpdateTest : public ::testing::TestWithParam<Case> {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }
  Plan plan(Precision precision = Precision::kFp32) const {
    return make_plan(front_model(kKernel), {.ranks = ranks(),
                                            .strategy = std::get<1>(GetParam()),
                                            .step_rows = ranks(),
                                            .bucket_bytes = std::get<3>(GetParam()),
                                            .on = {device(), precision}});
  }
  void on_every_rank(const std::function<void(Communicator&)>& body) const { run_ranks(ranks(), 1, body, device()); }
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [device, strategy, ranks, bytes] = info.param;
  const char* const way = strategy == Strategy::kDataParallelStar ? "star_of_" : "shares_of_";
  return concat(way, ranks, "_ranks_", bytes, "_bytes_", device);
}

INSTANTIATE_TEST_SUITE_P(RanksAndBuckets, ShardedUpdateTest,
                         ::testing::Combine(::testing::ValuesIn(devices()), ::testing::ValuesIn(kBoth),
                                            ::testing::Values(2, 3, 4),
                                            ::testing::Values(kEachItsOwn, kTwoAndOne, kAllInOne)),
                         case_name);

TEST_P(ShardedUpdateTest, EveryElementIsUpdatedByOneRank) {
  const Plan shared = plan();
  for (const int64_t layer : {0, 2, 3})
    for (size_t p = 0; p < 2; ++p) {
      int64_t next = 0;
      for (const Slice& part : updated_parts(shared, layer, p)) {
        if (part.size() == 0) continue;
        EXPECT_EQ(part.begin, next);
        next = part.end;
      }
      EXPECT_EQ(next, shared.layer(layer).params[p].elements());
    }
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel);
    const auto sync = sync_for(shared, net, comm);
    const auto rank = static_cast<size_t>(comm.rank());
    for (const int64_t layer : {0, 2, 3})
      for (size_t p = 0; p < 2; ++p)
        EXPECT_EQ(sync->updated(*net.layer(layer).params()[p]), updated_parts(shared, layer, p)[rank]);
  });
}

TEST_P(ShardedUpdateTest, EveryRankEndsWithAllUpdatedWeightsStepAfterStep) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel);
    const auto sync = sync_for(shared, net, comm);
    for (const float step : {1.0f, 2.0f, 3.0f}) {
      contribute(net, step * static_cast<float>(comm.rank() + 1));
      run_step(*sync, shared);
      for (const Param* param : net.params())
        EXPECT_EQ(download(param->value),
                  counted(param->value.elements(), step * static_cast<float>(ranks() * (ranks() + 1) / 2)))
            << param->name;
    }
  });
}

TEST_P(ShardedUpdateTest, ARankWithoutAGradientAddsNothingWhateverItsMemoryHolds) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel);
    const auto sync = sync_for(shared, net, comm);
    const bool empty = comm.rank() == ranks() - 1;
    contribute(net, empty ? kNaN : 1);
    if (empty)
      for (Param* param : net.params()) param->grad_is_zero = true;
    run_step(*sync, shared);
    for (const Param* param : net.params())
      EXPECT_EQ(download(param->value), counted(param->value.elements(), static_cast<float>(ranks() - 1)));
  });
}

TEST_P(ShardedUpdateTest, SendsTheBytesOfThePlan) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    Net net = front_net(kKernel);
    const auto sync = sync_for(shared, net, comm);
    contribute(net, 1);
    run_step(*sync, shared);
    EXPECT_EQ(shared.transfers.at(0).name, "gradients");
    EXPECT_EQ(shared.transfers.at(1).name, "weights");
    const int64_t result = shared.transfers.at(2).bytes;  // is sent at the end of a step
    EXPECT_EQ(comm.bytes(), traffic(shared, StepKind::kSynchronous, comm.rank()).out - result);
  });
}

TEST_P(ShardedUpdateTest, KeepsTheValuesThatAreThere) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel);
    for (Param* param : net.params()) {
      param->allocate({device()});
      param->set_value(upload(counted(param->value.elements(), 2.0f), param->shape(), Device::kCpu));
    }
    const auto sync = sync_for(shared, net, comm);
    for (const Param* param : net.params())
      EXPECT_EQ(download(param->value), counted(param->value.elements(), 2.0f)) << param->name;
  });
}

class ShardedUpdateOnGpu : public ShardedUpdateTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ShardedUpdateOnGpu);  // the CPU keeps no copies
INSTANTIATE_TEST_SUITE_P(RanksAndBuckets, ShardedUpdateOnGpu,
                         ::testing::Combine(::testing::ValuesIn(gpu_devices()), ::testing::ValuesIn(kBoth),
                                            ::testing::Values(2, 3, 4),
                                            ::testing::Values(kEachItsOwn, kTwoAndOne, kAllInOne)),
                         case_name);

TEST_P(ShardedUpdateOnGpu, CopiesInBf16AreRenewedEverywhereAndLieWhereKernelsWantThem) {
  const Plan shared = plan(Precision::kBf16);
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel);
    const auto sync = sync_for(shared, net, comm);
    contribute(net, 1.01f);
    run_step(*sync, shared);
    for (const Param* param : net.params()) {
      const std::vector<float> values = download(param->value), copies = download(param->copy16);
      for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(copies[i], from_bf16(to_bf16(values[i]))) << param->name;
      for (const void* place : {param->value.raw(), param->grad.raw(), param->copy16.raw()})
        EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % 16, 0u) << param->name;
    }
  });
}

// The numbers are rounded when they are added.
TEST_P(ShardedUpdateTest, SumsHaveTheBitsOfDp) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& comm) {
    Net net = front_net(kKernel), other = front_net(kKernel);
    const auto sync = sync_for(shared, net, comm);
    GradSync all(shared.buckets, layers_of(other), shared.request.on, comm);
    const float scale = 1 / (3 + 0.1f * static_cast<float>(comm.rank()));
    contribute(net, scale);
    contribute(other, scale);
    const Stream stream(device());
    for (int b = 0; b < static_cast<int>(shared.buckets.size()); ++b) all.start_gradients(b, stream);
    for (int b = 0; b < static_cast<int>(shared.buckets.size()); ++b) all.wait_for_gradients(b, stream);
    stream.synchronize();
    run_step(*sync, shared);
    for (size_t i = 0; i < net.params().size(); ++i)
      EXPECT_EQ(download(net.params()[i]->value), download(other.params()[i]->grad)) << net.params()[i]->name;
  });
}

// Gradients may be rounded in transfers, weights must not: a step changes them by less than bf16 resolution.
TEST_P(ShardedUpdateTest, WeightsTravelUnroundedWhereF32IsHalved) {
  const Plan shared = plan();
  on_every_rank([&](Communicator& inner) {
    const auto comm = make_bf16_transport(inner, device());
    Net net = front_net(kKernel);
    const auto to_odd_numbers = [&](std::span<const ParamPart> parts, const Stream& stream) {
      for (const ParamPart& part : parts) {
        Tensor value = part.param->value.part(part.elements.begin, {part.elements.size()});
        value.copy_from(
            upload(std::vector<float>(static_cast<size_t>(part.elements.size()), 259), value.shape(), device()),
            stream);
        stream.synchronize();
      }
    };
    const auto sync = sync_for(shared, net, *comm);
    contribute(net, 1);
    run_step(*sync, shared, to_odd_numbers);
    for (const Param* param : net.params()) EXPECT_THAT(download(param->value), ::testing::Each(259)) << param->name;
  });
}

}  // namespace
}  // namespace owt::sharded_update_test
