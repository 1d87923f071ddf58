#include "src/report/layer_facts.h"

#include <gtest/gtest.h>

#include "tests/support/models.h"

namespace owt::layer_facts_test {
namespace {

// conv 4 -> 12 and fc 12 -> 4 features of an image.
Plan plan_of(Strategy strategy, int model_ranks, int ranks = 4) {
  return make_plan(tiny_model(), {.ranks = ranks, .strategy = strategy, .step_rows = 8, .model_ranks = model_ranks});
}

LayerFacts fc_of(Strategy strategy, int model_ranks, int64_t step_rows = 8) {
  return layer_facts(plan_of(strategy, model_ranks), step_rows)[2];
}

TEST(LayerFacts, OfASplitLayerAreThoseOfTheRowsOfItsGroup) {
  // A quarter of all work: a quarter of the outputs of all rows, or half of the outputs of half of the rows.
  const double quarter = 2 * 12 * 4 * 8 / 4;
  for (const int model_ranks : {4, 2}) {
    const LayerFacts fc = fc_of(Strategy::kOwtA, model_ranks);
    EXPECT_EQ(fc.forward_flops, quarter) << model_ranks;
    EXPECT_EQ(fc.backward_flops, 2 * quarter) << model_ranks;
    EXPECT_EQ(fc.activation_bytes, 4 * 8 * 4 / 4) << model_ranks;
  }
}

TEST(LayerFacts, OfRoundsCountTheWorkOfAllAndTheMemoryOfOne) {
  for (const Strategy strategy : {Strategy::kOwtB, Strategy::kOwtC}) {
    EXPECT_EQ(fc_of(strategy, 4, 16).forward_flops, fc_of(Strategy::kOwtA, 4, 16).forward_flops);
    EXPECT_EQ(fc_of(strategy, 4, 16).activation_bytes, 4 * 4);  // four rounds of four rows
  }
}

TEST(LayerFacts, OfALayerSplitByInputsKeepAllItsSummands) {
  EXPECT_EQ(fc_of(Strategy::kOwtD, 4).forward_flops, fc_of(Strategy::kOwtA, 4).forward_flops);
  EXPECT_EQ(fc_of(Strategy::kOwtD, 4).activation_bytes, 4 * 8 * 4);
}

TEST(LayerFacts, OfALayerSplitByInputsCountTheShareOfTheInputs) {
  const Plan plan = plan_of(Strategy::kOwtD, 3, 3);
  ASSERT_TRUE(plan.layers[2].by_inputs());
  const LayerFacts fc = layer_facts(plan, 8)[2];
  EXPECT_DOUBLE_EQ(fc.forward_flops, 2 * 12 * 4 * 8 / 3.0);  // 4 of 12 inputs; 2 of 4 outputs would be the most
  EXPECT_EQ(fc.weight_bytes, 12 * 4 * 4 / 3);
}

TEST(LayerFacts, OfUnevenRoundsCountTheMemoryOfTheLargest) {
  EXPECT_EQ(fc_of(Strategy::kOwtB, 4, 10).activation_bytes, 4 * 3);  // rounds of 3, 3, 2 and 2 rows
}

TEST(LayerFacts, OfAnEvaluationHaveNothingThatGoesBackward) {
  const LayerFacts fc = layer_facts(plan_of(Strategy::kOwtA, 4), 8, Mode::kEval)[2];
  EXPECT_EQ(fc.forward_flops, fc_of(Strategy::kOwtA, 4).forward_flops);
  EXPECT_EQ(fc.backward_flops, 0);
}

// fc has 12 inputs, 4 outputs and 48 weights.
TEST(LayerFacts, CountEveryArrayThatALayerReadsOrWritesOnceInAPass) {
  Plan plan = plan_of(Strategy::kOwtA, 1, 1);
  const double forward = 8 * (12 + 4), backward = 8 * (4 + 12 + 12);  // dy; x; dx
  const double weights = 48 * 3, update = 48 * 5;  // two products and a gradient; weight and velocity both ways
  // A gradient that is not kept is neither written nor read.
  EXPECT_EQ(layer_facts(plan, 8)[2].memory_bytes, 4 * (forward + backward + weights + update - 2 * 48));
  plan.request.keeps_gradients = true;
  EXPECT_EQ(layer_facts(plan, 8)[2].memory_bytes, 4 * (forward + backward + weights + update));
  EXPECT_EQ(layer_facts(plan, 8, Mode::kEval)[2].memory_bytes, 4 * (forward + 48));
  // The images have no gradient.
  const LayerPlan& conv = plan.layers[0];
  const auto in = static_cast<double>(conv.in.elements()), out = static_cast<double>(conv.out.elements());
  const double of_weights = static_cast<double>(conv.weight_bytes) / 4 * (2 + 5);
  EXPECT_EQ(layer_facts(plan, 8)[0].memory_bytes, 4 * (8 * (in + out + out + in) + of_weights));
}

TEST(LayerFacts, OfAGpuThatComputesAGradientInTheUpdateLeaveItOutOfBackward) {
  Plan plan = plan_of(Strategy::kOwtA, 1, 1);
  plan.request.on = {Device::kCuda, Precision::kBf16};
  const double product = 2 * 12 * 4 * 8;
  EXPECT_EQ(layer_facts(plan, 8)[2].backward_flops, product);
  EXPECT_TRUE(layer_facts(plan, 8)[2].update_in_backward);
  plan.request.keeps_gradients = true;
  EXPECT_EQ(layer_facts(plan, 8)[2].backward_flops, 2 * product);
  EXPECT_FALSE(layer_facts(plan, 8)[2].update_in_backward);
}

TEST(LayerFacts, FollowTheRowsOfTheStep) {
  EXPECT_EQ(fc_of(Strategy::kOwtA, 4, 4).forward_flops, fc_of(Strategy::kOwtA, 4, 8).forward_flops / 2);
}

}  // namespace
}  // namespace owt::layer_facts_test
