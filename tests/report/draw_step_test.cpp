#include "src/report/draw_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fixed_compute.h"
#include "tests/support/models.h"

namespace owt::draw_step_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

DrawnStep drawn(Strategy strategy, const PipelineRequest& pipeline = {}, int ema_every = 0) {
  Network network;
  network.ranks_per_host = 2;
  network.local = {0, 96};
  DrawnStep step{make_plan(tiny_model(), {.ranks = 2,
                                          .strategy = strategy,
                                          .step_rows = 8,
                                          .bucket_bytes = 1,
                                          .ema_every = ema_every,
                                          .options = {.pipeline = pipeline}}),
                 {},
                 {}};
  const FixedCompute compute({{1, 2, 0.5}, {0, 0, 0}, {3, 4, 1}}, 0.25);
  step.prediction = price_step(step.plan, network, compute, &step.times);
  return step;
}

TEST(DrawStep, HasABoxForEverythingThatTakesTime) {
  const DrawnStep a = drawn(Strategy::kOwtA), dp = drawn(Strategy::kDataParallel);
  const std::string svg = draw_steps({a, dp});
  EXPECT_EQ(count(svg, "<title>"), a.times.size() + dp.times.size());
  EXPECT_THAT(svg, AllOf(HasSubstr("owt-a of "), HasSubstr("dp of "), HasSubstr("on the wire: fc input, round 1"),
                         HasSubstr("waiting: "), HasSubstr("update: ")));
  EXPECT_EQ(count(svg, "<svg "), 1u);
  EXPECT_EQ(count(svg, "<rect "), count(svg, "</title></rect>") + 7 + 4);  // the legend, and two lanes a step
}

TEST(DrawStep, HasCopiesOfWeightsWhereThereAreSome) {
  const PipelineRequest spectrain{.schedule = PipelineSchedule::kSpecTrain2, .micro_batches = 4};
  EXPECT_THAT(draw_steps({drawn(Strategy::kPipeline, spectrain)}),
              AllOf(HasSubstr(">weights copied</text>"), HasSubstr("<title>weights copied: conv to relu, round 2, ")));
  EXPECT_THAT(draw_steps({drawn(Strategy::kPipeline)}), Not(HasSubstr("weights copied")));
}

TEST(DrawStep, HasAveragesOfWeightsWhereThereAreSome) {
  EXPECT_THAT(draw_steps({drawn(Strategy::kDataParallel, {}, 1)}),
              AllOf(HasSubstr(">weights averaged</text>"), Not(HasSubstr("weights copied"))));
  EXPECT_THAT(draw_steps({drawn(Strategy::kDataParallel)}), Not(HasSubstr("weights averaged")));
}

// The times of a step's actions are at their positions, on one scale.
TEST(DrawStep, TheLastActionEndsWithTheStep) {
  const DrawnStep step = drawn(Strategy::kDataParallel);
  double end = 0;
  for (const TimedAction& at : step.times) end = std::max(end, at.end_s);
  EXPECT_DOUBLE_EQ(end, step.prediction.step_s());
}

TEST(DrawStep, ASeparateAxisEnlargesAShortStep) {
  const DrawnStep step = drawn(Strategy::kDataParallel);
  DrawnStep fast = step;
  for (TimedAction& at : fast.times) at.begin_s /= 10, at.end_s /= 10;
  const std::string svg = draw_steps({step, fast});
  EXPECT_EQ(count(svg, "<title>"), step.times.size() + 2 * fast.times.size());
  EXPECT_THAT(svg, HasSubstr(" again, enlarged 10 times"));
  EXPECT_THAT(draw_steps({step, step}), Not(HasSubstr("enlarged")));
}

TEST(DrawStep, NamesOfAModelAreText) {
  DrawnStep step = drawn(Strategy::kOwtA);
  step.plan.model = "<script>\"&";
  EXPECT_THAT(draw_steps({step}), AllOf(HasSubstr("&lt;script&gt;&quot;&amp;"), Not(HasSubstr("<script>"))));
}

TEST(DrawStep, OfNothingIsAnEmptyDrawing) { EXPECT_THAT(draw_steps({}), HasSubstr("</svg>")); }

}  // namespace
}  // namespace owt::draw_step_test
