// The bytes that a dense layer sends, counted at run time, against Dettmers 2014, "How to Parallelize Deep Learning on
// GPUs": 1000 inputs, 500 outputs, 128 rows, two workers.
#include <gtest/gtest.h>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/parallel/step.h"
#include "src/plan/loss_stats.h"
#include "src/plan/plan_rows.h"
#include "src/plan/step_result.h"
#include "src/train/made_up_batch.h"
#include "tests/support/models.h"

namespace owt::dense_split_test {
namespace {

constexpr int64_t kInputs = 1000, kOutputs = 500, kRows = 128;

// The normalisation is trained, so that the gradient of the dense layer's input is needed.
Model one_dense_layer() {
  return model_of("[10, 10, 10]", kOutputs, R"(
  { name = "norm", type = "batch_norm" },
  { name = "fc", type = "dense", out = 500, bias = false })");
}
constexpr int64_t kStatistics = kLossStats * kRows;
constexpr int64_t kNormElements = 4 * 16;  // gradients of the normalisation; 10 channels each are padded for its bucket

struct Counted {
  std::vector<double> losses;  // one for each step
  int64_t elements = 0;        // f32, sent by rank 0 in a step, without the step result
};

// The loss works on columns of the logits, so its ranks exchange statistics and not the logits.
Counted count(Strategy strategy, DenseSplit split, int ranks, int64_t rows = kRows) {
  const Model model = one_dense_layer();
  const Plan plan = make_plan(model, {.ranks = ranks, .strategy = strategy, .step_rows = rows, .split = split});
  constexpr int kSteps = 3;
  Counted counted;
  run_ranks(ranks, 1, [&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    RankModel mine(model, plan, comm.rank());
    Optimizer optimizer({.learning_rate = 0.01});
    Step step(plan, mine, optimizer, comm, nullptr, {});
    mine.initialize(1);
    const Batch batch = made_up_batch(model, rows_of(plan, rows).of(comm.rank()), plan.request);
    std::vector<double> losses;
    for (int i = 0; i < kSteps; ++i)
      losses.push_back(step.train(batch, i, {0.01, 0.01}, false).sums.loss / static_cast<double>(rows));
    if (comm.rank() == 0)
      counted = {losses, (comm.bytes() / kSteps - bytes_sent(Collective::kAllReduce, kStepResultBytes, ranks)) / 4};
  });
  return counted;
}

// Every weight's gradient is summed: 2 * (2 - 1) / 2 * 1000 * 500.
TEST(DenseSplit, UnderDpTwoWorkersSend500000Elements) {
  const Counted dp = count(Strategy::kDataParallel, DenseSplit::kOfStrategy, 2);
  EXPECT_EQ(dp.elements - kNormElements, 500'000);
}

// Half of the outputs to the other, 128 * 500 / 2, and the gradient of the input summed, 128 * 1000. A next layer would
// gather the outputs, but this loss does not.
TEST(DenseSplit, ByColumnsTwoWorkersSend160000Elements) {
  const Counted columns = count(Strategy::kModelParallel, DenseSplit::kColumns, 2);
  EXPECT_EQ(columns.elements - kNormElements / 2 - kStatistics + kRows * kOutputs / 2, 160'000);
}

// The outputs summed, 128 * 500 (one half of it for the outputs, one for their gradients), and half of the gradient of
// the input to the other, 128 * 1000 / 2.
TEST(DenseSplit, ByRowsTwoWorkersSend128000Elements) {
  const Counted rows = count(Strategy::kModelParallel, DenseSplit::kRows, 2);
  EXPECT_EQ(rows.elements - kNormElements / 2 - kStatistics, 128'000);
}

// 128 is all rows of a step split by rows or columns, and the rows of one worker under dp, whose step has 256 rows. For
// each row of the batch dp sends 1953, and the split by rows 1000.
TEST(DenseSplit, ARowSplitIsTwiceAsCheapAndNotFourTimes) {
  const Counted rows = count(Strategy::kModelParallel, DenseSplit::kRows, 2);
  const Counted dp = count(Strategy::kDataParallel, DenseSplit::kOfStrategy, 2, 2 * kRows);
  const auto of_a_row = [](int64_t elements, int64_t batch) {
    return static_cast<double>(elements) / static_cast<double>(batch);
  };
  const double dp_sends = of_a_row(dp.elements - kNormElements, 2 * kRows),
               rows_send = of_a_row(rows.elements - kNormElements / 2 - kStatistics, kRows);
  EXPECT_NEAR(dp_sends, 1953.125, 1e-9);
  EXPECT_NEAR(rows_send, 1000, 1e-9);
  EXPECT_NEAR(dp_sends / rows_send, 1.95, 0.01);
}

TEST(DenseSplit, LearnsWhatOneRankLearnsWithEitherSplit) {
  const Counted one = count(Strategy::kDataParallel, DenseSplit::kOfStrategy, 1);
  for (const DenseSplit split : {DenseSplit::kColumns, DenseSplit::kRows, DenseSplit::kLess})
    for (const int ranks : {2, 3}) {
      const Counted many = count(Strategy::kModelParallel, split, ranks);
      ASSERT_EQ(many.losses.size(), one.losses.size());
      for (size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(many.losses[i], one.losses[i], 1e-4 * one.losses[i]) << name_of(split) << ", step " << i;
    }
}

}  // namespace
}  // namespace owt::dense_split_test
