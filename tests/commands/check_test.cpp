#include "src/commands/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/plan/step_order.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"

namespace owt::check_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckTest : public DeviceTest {
 protected:
  // Uses fewer elements on a simulated GPU, which is slow.
  CheckOutcome check(const Overrides& changes, const std::string& recipe = kSmallRecipe) const {
    const Overrides on{{"run.device", name_of(device())}};
    return check_gradients(small_settings(recipe, merged(changes, on)), {.samples = is_cpu() ? 3 : 1});
  }
  bool is_cpu() const { return device() == Device::kCpu; }
};
INSTANTIATE_TEST_SUITE_P(Devices, CheckTest, ::testing::ValuesIn(devices()), device_name);

// Convolutions and dense layers have a weight and a bias each.
constexpr size_t kParameters = 2 * (2 + 3);

TEST_P(CheckTest, GradientsOfEveryStrategyAreRight) {
  for (const Overrides& changes :
       {Overrides{{"parallel.workers", "1"}}, Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "dp-zero"}},
        Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "owt-c"}},
        Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "owt-d"}, {"parallel.shares", "[1, 3, 2]"}},
        Overrides{{"parallel.workers", "4"}, {"parallel.strategy", "mp"}, {"parallel.model_ranks", "2"}},
        Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "pipeline"}},
        Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "ps"}, {"ps.delay", "3"}},
        Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "ps"}, {"ps.servers", "1"}},
        Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "owt-a"}, {"data.accumulate", "2"}}}) {
    if (!is_cpu() && changes.size() != 2) continue;
    SCOPED_TRACE(changes.back().first + " " + changes.back().second);
    const CheckOutcome outcome = check(changes);
    EXPECT_FALSE(outcome.wrong()) << outcome.table();
    ASSERT_EQ(outcome.parameters.size(), kParameters);
    const bool compared = changes.size() > 1;
    EXPECT_EQ(outcome.loss_of_one.has_value(), compared);
    for (const CheckedParameter& at : outcome.parameters) {
      EXPECT_EQ(at.of_loss, Verdict::kRight) << at.name << outcome.table();
      EXPECT_GT(at.gradient, 0) << at.name;
      ASSERT_EQ(at.from_one.has_value(), compared) << at.name;
      if (compared) {
        EXPECT_LT(*at.from_one, 1e-4) << at.name;
      }
    }
  }
}

TEST_P(CheckTest, GradientsOfCosinesWithAMarginAreRight) {
  for (const char* margin : {"{ type = 'arcface', m = 0.5, scale = 16 }", "{ type = 'cosface', scale = 16 }",
                             "{ type = 'combined', m1 = 0.9, m2 = 0.4, m3 = 0.15, scale = 16 }"})
    for (const char* strategy : {"dp", "owt-a", "owt-c", "owt-d", "mp"}) {
      if (!is_cpu() && strategy != std::string("owt-c")) continue;
      SCOPED_TRACE(concat(margin, " ", strategy));
      const CheckOutcome outcome = check(
          {{"loss.margin", margin}, {"parallel.workers", "3"}, {"parallel.strategy", strategy}}, cosine_recipe(50));
      EXPECT_FALSE(outcome.wrong()) << outcome.table();
      for (const CheckedParameter& at : outcome.parameters) {
        EXPECT_EQ(at.of_loss, Verdict::kRight) << at.name << outcome.table();
        EXPECT_LT(at.from_one.value(), 1e-4) << at.name;
      }
    }
}

// Like dp; if `errs`, everything is done twice and added to the gradients. Other tests iterate over all strategies and
// need it to be correct.
bool errs = false;

class Erring {
 public:
  Erring() { errs = true; }
  ~Erring() { errs = false; }
  Erring(const Erring&) = delete;
  Erring& operator=(const Erring&) = delete;
};

void backward_twice(StepOrder& step) {
  for (int times = errs ? 2 : 1; times > 0; --times) {
    step.forward_front();
    step.loss(0);
    step.backward_front();
  }
  step.gradient_norms();
  step.update_dense();
  step.update_front();
}

// The number of channels decides about the kernels of the first convolution.
TEST_P(CheckTest, GradientsAreRightForAnyNumberOfInputChannels) {
  for (const char* channels : {"1", "2", "4", "5"})
    for (const char* workers : {"2", "4"}) {
      if (!is_cpu() && *workers == '4') continue;
      SCOPED_TRACE(concat(channels, " channels, ", workers, " workers"));
      const CheckOutcome outcome = check({{"model.input", concat("[", channels, ", 12, 12]")},
                                          {"parallel.workers", workers},
                                          {"parallel.strategy", "owt-d"}});
      EXPECT_FALSE(outcome.wrong()) << outcome.table();
      for (const CheckedParameter& at : outcome.parameters) {
        EXPECT_EQ(at.of_loss, Verdict::kRight) << at.name << outcome.table();
        EXPECT_GT(at.gradient, 0) << at.name;
        ASSERT_TRUE(at.from_one.has_value());
        EXPECT_LT(*at.from_one, 1e-4) << at.name;
      }
    }
}

TEST_P(CheckTest, AStepWithWrongGradientsIsFoundOut) {
  static const Strategy twice =
      add_strategy({.name = "twice", .help = "as dp, backward twice", .order = backward_twice});
  ASSERT_EQ(strategy_from("twice"), twice);
  for (const char* workers : {"2", "3"}) {  // one alone has no use for a strategy
    if (!is_cpu() && workers != std::string("2")) continue;
    const Erring erring;
    const CheckOutcome outcome = check({{"parallel.workers", workers}, {"parallel.strategy", "twice"}});
    EXPECT_TRUE(outcome.wrong());
    EXPECT_THAT(outcome.table(), HasSubstr("wrong"));
    for (const CheckedParameter& at : outcome.parameters) {
      EXPECT_EQ(at.of_loss, Verdict::kWrong) << at.name;
      EXPECT_GT(at.error, 0.4) << at.name;
    }
  }
  const CheckOutcome right = check({{"parallel.workers", "2"}, {"parallel.strategy", "twice"}});
  EXPECT_FALSE(right.wrong()) << right.table();
}

std::string normalised(const std::string& rows) {
  return recipe_of("[3, 12, 12]", "train_images = 96\nside = 12\nbatch = 32", R"(
  { name = "conv1", type = "conv", out = 8, kernel = 3, init = { type = "msra" } },
  { name = "norm", type = "batch_norm", rows = )" + rows + R"( },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc", type = "dense", out = 10, init = { type = "gaussian", std = 0.1 } })");
}

// A bias before a normalisation has no gradient, except for rounding.
TEST_P(CheckTest, WhatDependsOnTheNumberOfWorkersIsNotComparedWithOne) {
  const Overrides two{{"parallel.workers", "2"}, {"parallel.strategy", "dp"}};
  for (const char* rows : {"4", "\"step\""}) {
    const CheckOutcome outcome = check(two, normalised(rows));
    EXPECT_FALSE(outcome.wrong()) << outcome.table();
    EXPECT_TRUE(outcome.loss_of_one) << rows;
  }
  const CheckOutcome outcome = check(two, normalised("0"));
  EXPECT_FALSE(outcome.wrong()) << outcome.table();
  EXPECT_FALSE(outcome.loss_of_one);
  EXPECT_THAT(outcome.table(), HasSubstr("Nothing was compared with one worker: 'norm' normalises over the rows of a "
                                         "worker"));
}

TEST(Check, RoundingForTheTransferIsNotWrong) {
  const CheckOutcome outcome = check_gradients(
      small_settings(kSmallRecipe,
                     {{"parallel.workers", "2"}, {"parallel.strategy", "owt-a"}, {"parallel.wire", "bf16"}}),
      {});
  EXPECT_FALSE(outcome.wrong()) << outcome.table();
  EXPECT_GT(*outcome.parameters.front().from_one, 1e-5);
}

TEST(Check, FrozenParametersAreLeftOut) {
  const CheckOutcome outcome = check_gradients(small_settings(kSmallRecipe, {{"optimizer.freeze", "[\"conv*\"]"}}), {});
  EXPECT_EQ(outcome.parameters.size(), kParameters - 4);
  EXPECT_THAT(outcome.parameters, Each(Field(&CheckedParameter::name, Not(HasSubstr("conv")))));
}

TEST(Check, AStepWithoutAGradientOfAllItsRowsIsAnError) {
  const Settings settings = small_settings(
      kSmallRecipe, {{"parallel.workers", "2"}, {"parallel.strategy", "pipeline"}, {"pipeline.schedule", "pipedream"}});
  EXPECT_THAT(message_of([&] { check_gradients(settings, {}); }),
              AllOf(HasSubstr("without a flush"), HasSubstr("pipeline.schedule=1f1b")));
}

}  // namespace
}  // namespace owt::check_test
