// Every transfer of a plan is in the prediction, under any strategy, once for each of its calls.
#include <gtest/gtest.h>

#include "src/plan/plan_bytes.h"
#include "src/plan/plan_table.h"
#include "src/predict/step_price.h"
#include "tests/support/fixed_compute.h"
#include "tests/support/strategies.h"

namespace owt::step_price_transfers_test {
namespace {

// Dense layers before and after a normalisation, and enough classes that the loss works on shards of the logits.
Model model_of(int classes) {
  Config config = Config::text(concat(R"(
name = "wide"
input = [2, 4, 4]
classes = )",
                                      classes, R"(
layer = [
  { name = "conv1", type = "conv", out = 4, kernel = 3, pad = 1 },
  { name = "bn1", type = "batch_norm" },
  { name = "conv2", type = "conv", out = 2, kernel = 3, pad = 1, bias = false },
  { name = "fc1", type = "dense", out = 22 },
  { name = "relu", type = "relu" },
  { name = "fc2", type = "dense", out = 64 },
  { name = "fc3", type = "dense", out = )",
                                      classes, " },\n]\n"));
  return read_model(config);
}

// Without latency, the time of a ring is the time of the bytes that a rank sends. A chain takes the time of the whole
// tensor between two ranks, because no tensor here exceeds a chunk. A star takes the time of all parts through one
// link.
double seconds_of(const Plan& plan, double bytes_per_s) {
  double sum = 0;
  for (const Transfer& transfer : plan.transfers) {
    const double n = plan.ranks_of(transfer.group);
    const bool ring = !is_message(transfer.collective) && transfer.collective != Collective::kBroadcast &&
                      transfer.collective != Collective::kReduce;
    if (n > 1) sum += static_cast<double>(transfer.bytes) * (ring ? 1 : n) / bytes_per_s;
  }
  return sum;
}

TEST(PredictTransfers, TakeTheTimeOfAllBytesOfThePlan) {
  Network network;
  network.ranks_per_host = 4;
  network.local = {0, 1e6};
  network.overlaps = false;
  for (const int classes : {5, 300})
    for (const Strategy strategy : strategies_without_stages())
      for (const int model_ranks : {0, 2})
        for (const DenseUpdate update : {DenseUpdate::kStep, DenseUpdate::kRound})
          for (const bool half : {false, true}) {
            PlanRequest request;
            request.ranks = 4;
            request.strategy = strategy;
            request.model_ranks = model_ranks;
            request.dense_update = update;
            request.bf16_transport = half;
            request.step_rows = 24;
            request.bucket_bytes = 300;
            const Plan plan = make_plan(model_of(classes), request);
            const FixedCompute compute(std::vector<FixedCompute::Layer>(plan.layers.size(), {1e-3, 2e-3, 1e-4}));
            const Prediction p = price_step(plan, network, compute);
            const double expected = seconds_of(plan, 1e6);
            EXPECT_NEAR(p.transfer_s, expected, 1e-9 + 1e-6 * expected) << plan_table(plan);
            EXPECT_NEAR(p.exposed_s, p.transfer_s, 1e-9);  // no overlap
            EXPECT_EQ(p.bytes, bytes_per_step(plan));
            EXPECT_EQ(p.busiest_link, busiest_link(plan));
          }
}

// Under local SGD figures are means over the steps between two averages, whatever precedes them.
TEST(PredictTransfers, OfWeightsThatAreAveragedCountForTheirPartOfTheSteps) {
  Network network;
  network.ranks_per_host = 4;
  network.local = {0, 1e6};
  network.overlaps = false;
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtC})
    for (const double from : {0.0, 3.0}) {
      const Plan plan = make_plan(model_of(5), {.ranks = 4,
                                                .strategy = strategy,
                                                .step_rows = 24,
                                                .bucket_bytes = 300,
                                                .average_every = 5,
                                                .average_from = from});
      const FixedCompute compute(std::vector<FixedCompute::Layer>(plan.layers.size(), {1e-3, 2e-3, 1e-4}));
      const Prediction prediction = price_step(plan, network, compute);
      EXPECT_NEAR(prediction.transfer_s * 1e6, static_cast<double>(bytes_per_step(plan)), 1.0);
      EXPECT_NEAR(prediction.transfer_s, prediction.exposed_s, 1e-9);  // no overlap
      EXPECT_EQ(prediction.bytes, bytes_per_step(plan));
    }
}

}  // namespace
}  // namespace owt::step_price_transfers_test
