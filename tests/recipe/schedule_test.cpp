#include "src/recipe/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::schedule_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kStepsPerEpoch = 10;

Schedule schedule(const std::string& text) {
  Config config = Config::text(text);
  return Schedule(ScheduleSettings::from(config));
}

// The rate at the start of an epoch of ten steps.
double at(const std::string& text, double epoch) {
  return schedule(text).rate(static_cast<int64_t>(std::lround(epoch * kStepsPerEpoch)), kStepsPerEpoch);
}

std::string complaint(const std::string& text) {
  return message_of([&] { schedule(text); });
}

TEST(Schedule, ConstantIsOneAllTheTime) {
  EXPECT_EQ(at("epochs = 4", 0), 1);
  EXPECT_EQ(at("epochs = 4\ntype = 'constant'", 3.9), 1);
}

TEST(Schedule, StepMultipliesEveryFewEpochs) {
  EXPECT_EQ(at("epochs = 9\ntype = 'step'\nevery = 0.2\nfactor = 0.5", 0.6), 0.125)
      << "0.6 / 0.2 is rounded to below 3";
  const std::string text = "epochs = 9\ntype = 'step'\nevery = 3\nfactor = 0.5";
  EXPECT_EQ(at(text, 0), 1);
  EXPECT_EQ(at(text, 2.9), 1);
  EXPECT_EQ(at(text, 3), 0.5);
  EXPECT_EQ(at(text, 6), 0.25);
}

TEST(Schedule, MultistepMultipliesAtEachMilestone) {
  const std::string text = "epochs = 10\ntype = 'multistep'\nmilestones = [8, 9.5]\nfactor = 0.5";
  EXPECT_EQ(at(text, 7.9), 1);
  EXPECT_EQ(at(text, 8), 0.5);
  EXPECT_EQ(at(text, 9.4), 0.5);
  EXPECT_EQ(at(text, 9.5), 0.25);
}

TEST(Schedule, PolyFallsStepByStepToItsEnd) {
  EXPECT_DOUBLE_EQ(at("epochs = 10\ntype = 'poly'\npower = 2", 5), 0.25);
  EXPECT_DOUBLE_EQ(at("epochs = 10\ntype = 'poly'\npower = 1", 0.1), 0.99);
  EXPECT_NEAR(at("epochs = 10\ntype = 'poly'\npower = 1\nend = 0.2", 5), 0.6, 1e-12);
  EXPECT_DOUBLE_EQ(at("epochs = 10\ntype = 'poly'\npower = 1\nend = 0.2", 12), 0.2);
}

TEST(Schedule, CosineGoesFromOneToItsEnd) {
  const std::string text = "epochs = 10\ntype = 'cosine'\nend = 0.1";
  EXPECT_DOUBLE_EQ(at(text, 0), 1);
  EXPECT_NEAR(at(text, 5), 0.55, 1e-12);
  EXPECT_NEAR(at("epochs = 3\ntype = 'cosine'", 1), 0.75, 1e-12);  // cos(60 degrees) = 0.5
  EXPECT_DOUBLE_EQ(at(text, 10), 0.1);
}

TEST(Schedule, ExpDividesByTheTargetFactorOverTheRun) {
  const std::string text = "epochs = 10\ntype = 'exp'\ntarget_factor = 100";
  EXPECT_EQ(at(text, 0), 1);
  EXPECT_NEAR(at(text, 5), 0.1, 1e-12);
  EXPECT_NEAR(at(text, 10), 0.01, 1e-12);
}

TEST(Schedule, DexpTakesTheLevelsOfThePaper) {
  // base 0.01, target factor 250, four levels: 0.01, 0.001587, 0.000252, 0.00004 at 0, 25, 50 and 75 %.
  const std::string text = "epochs = 8\ntype = 'dexp'\ntarget_factor = 250\nsteps = 4";
  EXPECT_EQ(at(text, 0), 1);
  EXPECT_EQ(at(text, 2), 1);  // p = 0.25 belongs to the first level
  EXPECT_NEAR(at(text, 2.1), 0.1587, 1e-4);
  EXPECT_NEAR(at(text, 4.1), 0.0252, 1e-4);
  EXPECT_NEAR(at(text, 6.1), 0.004, 1e-12);
  EXPECT_NEAR(at(text, 8), 0.004, 1e-12);
}

TEST(Schedule, StepsTakesEachFactorUpToItsEpoch) {
  const std::string text = "epochs = 9\ntype = 'steps'\nuntil = [4, 7.5]\nfactors = [0.5, 0.75, 0.01]";
  EXPECT_EQ(at(text, 0), 0.5);
  EXPECT_EQ(at(text, 3.9), 0.5);
  EXPECT_EQ(at(text, 4), 0.75);
  EXPECT_EQ(at(text, 7.4), 0.75);
  EXPECT_EQ(at(text, 7.5), 0.01);
  EXPECT_EQ(at(text, 9), 0.01);
}

TEST(Schedule, LinearRisesToItsPeakAndFallsToItsEnd) {
  const std::string triangle = "epochs = 10\ntype = 'linear'\nstart = 0.2\npeak = 0.25\nend = 0.1";
  EXPECT_DOUBLE_EQ(at(triangle, 0), 0.2);
  EXPECT_DOUBLE_EQ(at(triangle, 1), 0.52);
  EXPECT_DOUBLE_EQ(at(triangle, 2.5), 1);
  EXPECT_DOUBLE_EQ(at(triangle, 4), 0.82);
  EXPECT_DOUBLE_EQ(at(triangle, 10), 0.1);
  EXPECT_DOUBLE_EQ(at("epochs = 10\ntype = 'linear'", 0), 1);
  EXPECT_DOUBLE_EQ(at("epochs = 10\ntype = 'linear'", 4), 0.6);
}

// The example of Krizhevsky's recipe: biases from 0.02 to 0.002 in two steps, weights from 0.01 down by 250 in four.
TEST(Schedule, BiasesMayFollowACurveOfTheirOwn) {
  const Schedule made = schedule(
      "epochs = 8\ntype = 'dexp'\ntarget_factor = 250\nsteps = 4\n"
      "biases = { type = 'dexp', target_factor = 10, steps = 2 }");
  EXPECT_EQ(made.bias_rate(0, 10), 1);
  EXPECT_EQ(made.bias_rate(40, 10), 1);
  EXPECT_NEAR(made.rate(40, 10), 0.1587, 1e-4);
  EXPECT_NEAR(made.bias_rate(41, 10), 0.1, 1e-12);
  EXPECT_NEAR(made.bias_rate(79, 10), 0.1, 1e-12);
  EXPECT_NEAR(made.rate(79, 10), 0.004, 1e-12);
  const Schedule alike = schedule("epochs = 4\ntype = 'poly'\npower = 1");
  EXPECT_EQ(alike.bias_rate(10, 10), alike.rate(10, 10));
}

TEST(Schedule, BiasesWarmUpAsTheWeightsDo) {
  const Schedule made =
      schedule("epochs = 4\nwarmup_epochs = 2\nbiases = { type = 'steps', until = [3], factors = [0.5, 1] }");
  EXPECT_DOUBLE_EQ(made.rate(10, 10), 0.5);
  EXPECT_DOUBLE_EQ(made.bias_rate(10, 10), 0.25);
  EXPECT_DOUBLE_EQ(made.bias_rate(30, 10), 1);
}

// The factor after each of these evaluations.
std::vector<double> falls_after(const std::string& keys, const std::vector<double>& values) {
  const Schedule made = schedule("epochs = 4\ntype = 'plateau'\nfactor = 0.5\n" + keys);
  const bool loss = keys.find("loss") != std::string::npos;
  Plateau seen;
  std::vector<double> factors;
  for (const double value : values) {
    const double before = made.rate(5, 10, seen);
    const bool falls = made.note_evaluation(loss ? value : 1, loss ? 0.5 : value, seen);
    factors.push_back(made.rate(5, 10, seen));
    EXPECT_EQ(falls, factors.back() < before);
  }
  return factors;
}

TEST(Schedule, APlateauLowersTheRateWhereNothingGetsBetter) {
  using testing::ElementsAre;
  // Like torch.optim.lr_scheduler.ReduceLROnPlateau with a threshold of 0.
  EXPECT_THAT(falls_after("patience = 1", {0.5, 0.6, 0.6, 0.5, 0.7, 0.6, 0.7, 0.7, 0.7}),
              ElementsAre(1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125));
  EXPECT_THAT(falls_after("patience = 0", {0.5, 0.4, 0.6, 0.6}), ElementsAre(1, 0.5, 0.5, 0.25));
  EXPECT_THAT(falls_after("patience = 0\nmetric = 'loss'", {2, 1, 1.5, 0.5}), ElementsAre(1, 1, 0.5, 0.5));
}

TEST(Schedule, OthersSeeNothingOfEvaluations) {
  Plateau seen;
  EXPECT_FALSE(schedule("epochs = 4").note_evaluation(1, 0.5, seen));
  EXPECT_EQ(seen, Plateau());
}

TEST(Schedule, WarmsUpLinearlyToWhatTheScheduleSaysThen) {
  EXPECT_EQ(at("epochs = 4\nwarmup_epochs = 2", 0), 0);
  EXPECT_DOUBLE_EQ(at("epochs = 4\nwarmup_epochs = 2", 0.5), 0.25);
  EXPECT_EQ(at("epochs = 4\nwarmup_epochs = 2", 2), 1);
  EXPECT_DOUBLE_EQ(at("epochs = 4\nwarmup_epochs = 2\nwarmup_factor = 0.5", 1), 0.75);
  // Poly of power 1 says 0.5 after half the run; half way there the warm-up is at 0.25.
  EXPECT_DOUBLE_EQ(at("epochs = 4\nwarmup_epochs = 2\ntype = 'poly'\npower = 1", 1), 0.25);
  EXPECT_DOUBLE_EQ(at("epochs = 4\nwarmup_epochs = 2\ntype = 'poly'\npower = 1", 3), 0.25);
}

// Every step of runs whose boundaries are at steps and between them.
TEST(Schedule, EveryStepHasTheRateOfItsPlace) {
  const struct {
    const char* text;
    // The rate at step s of 6 epochs of n steps each.
    double (*rate)(double s, double n);
  } cases[] = {
      {"type = 'step'\nevery = 1.5\nfactor = 0.5",
       [](double s, double n) {
         return s < 1.5 * n ? 1 : s < 3 * n ? 0.5 : s < 4.5 * n ? 0.25 : s < 6 * n ? 0.125 : 0.0625;
       }},
      {"type = 'multistep'\nmilestones = [2, 4.5]\nfactor = 0.1",
       [](double s, double n) { return s < 2 * n     ? 1
                                       : s < 4.5 * n ? 0.1
                                                     : 0.01; }},
      {"type = 'poly'\npower = 3\nend = 0.1",
       [](double s, double n) { return 0.1 + 0.9 * (1 - s / (6 * n)) * (1 - s / (6 * n)) * (1 - s / (6 * n)); }},
      {"type = 'cosine'\nend = 0.2",
       [](double s, double n) { return 0.2 + 0.4 * (1 + std::cos(std::acos(-1.0) * s / (6 * n))); }},
      {"type = 'exp'\ntarget_factor = 50", [](double s, double n) { return 1 / std::pow(50, s / (6 * n)); }},
      {"type = 'dexp'\ntarget_factor = 64\nsteps = 4",
       [](double s, double n) {
         return s <= 1.5 * n ? 1 : s <= 3 * n ? 1. / 4 : s <= 4.5 * n ? 1. / 16 : 1. / 64;
       }},
  };
  for (const auto& [text, rate] : cases)
    for (const int64_t n : {1, 2, 7, 10})
      for (const double warmup : {0.0, 1.0, 2.5})
        for (int64_t step = 0; step <= 6 * n; ++step) {
          const auto s = static_cast<double>(step), per_epoch = static_cast<double>(n), end = warmup * per_epoch;
          const double wanted = s < end ? 0.25 + (rate(end, per_epoch) - 0.25) * (s / end) : rate(s, per_epoch);
          const Schedule made =
              schedule(concat("epochs = 6\nwarmup_epochs = ", warmup, "\nwarmup_factor = 0.25\n", text));
          ASSERT_NEAR(made.rate(step, n), wanted, 1e-12) << text << ", step " << step << " of " << n << " an epoch";
        }
}

TEST(Schedule, MayWarmUpToItsEnd) { EXPECT_DOUBLE_EQ(at("epochs = 2\nwarmup_epochs = 2", 1), 0.5); }

TEST(Schedule, NeverRisesIfItsWarmUpIsTheWholeRunAndItEndsAtZero) {
  EXPECT_TRUE(schedule("max_steps = 5\nwarmup_epochs = 0.5\ntype = 'cosine'").never_rises(10));
  EXPECT_FALSE(schedule("max_steps = 6\nwarmup_epochs = 0.5\ntype = 'cosine'").never_rises(10));
  EXPECT_FALSE(schedule("max_steps = 5\nwarmup_epochs = 0.5").never_rises(10));
  EXPECT_FALSE(schedule("max_steps = 5\nwarmup_epochs = 0.5\nwarmup_factor = 0.1\ntype = 'cosine'").never_rises(10));
}

TEST(Schedule, EndsAtTheFirstOfItsTwoLimits) {
  EXPECT_EQ(schedule("epochs = 2.5").total_steps(10), 25);
  EXPECT_EQ(schedule("epochs = 2.51").total_steps(10), 26);
  EXPECT_EQ(schedule("epochs = 1.1").total_steps(50), 55) << "1.1 * 50 is rounded to more than 55";
  EXPECT_EQ(schedule("epochs = 2\nmax_steps = 7").total_steps(10), 7);
  EXPECT_EQ(schedule("epochs = 2\nmax_steps = 70").total_steps(10), 20);
  EXPECT_EQ(schedule("max_steps = 70").total_steps(10), 70);
}

// 3 steps more were done than the place in the epochs says, since they were smaller.
TEST(Schedule, CountsStepsOfOtherSizesAgainstMaxStepsAlone) {
  EXPECT_EQ(schedule("epochs = 2").total_steps(10, 3), 23);
  EXPECT_EQ(schedule("epochs = 2\nmax_steps = 15").total_steps(10, 3), 15);
  EXPECT_EQ(schedule("max_steps = 15").total_steps(10, 3), 15);
  const auto rate = [](const std::string& length, int64_t more_steps) {
    return schedule(length + "\ntype = 'poly'\npower = 1").rate(5, 10, {}, more_steps);
  };
  EXPECT_DOUBLE_EQ(rate("epochs = 1", 3), 0.5);
  EXPECT_DOUBLE_EQ(rate("max_steps = 10", 0), 0.5);
  EXPECT_NEAR(rate("max_steps = 10", 3), 0.2, 1e-12);
}

TEST(Schedule, AStepThatIsBegunBelongsToTheEpochs) { EXPECT_EQ(schedule("epochs = 2.5").total_steps(5), 13); }

TEST(Schedule, KeepsItsCourseWhenARunIsCutShort) {
  const std::string poly = "type = 'poly'\npower = 1\n";
  EXPECT_DOUBLE_EQ(schedule(poly + "epochs = 10\nmax_steps = 50").rate(25, 10), 0.75);
  EXPECT_DOUBLE_EQ(schedule(poly + "max_steps = 50").rate(25, 10), 0.5);
}

TEST(Schedule, RejectsBadTables) {
  EXPECT_THAT(complaint("type = 'constant'"), HasSubstr("epochs"));
  EXPECT_THAT(complaint("epochs = 0"), HasSubstr("epochs"));
  EXPECT_THAT(complaint("epochs = 2\ntype = 'cosin'"), HasSubstr("did you mean 'cosine'?"));
  EXPECT_THAT(complaint("epochs = 2\ntype = 'step'\nfactor = 0.1"), HasSubstr("every"));
  EXPECT_THAT(complaint("epochs = 2\ntype = 'step'\nevery = 1\nfactor = 0"), HasSubstr("factor"));
  EXPECT_THAT(complaint("epochs = 2\ntype = 'cosine'\npower = 1"),
              AllOf(HasSubstr("no key 'power'"), HasSubstr("schedule type 'cosine'")));
  EXPECT_THAT(complaint("epochs = 9\ntype = 'multistep'\nmilestones = [5, 5]\nfactor = 0.1"),
              AllOf(HasSubstr("text:3"), HasSubstr("5 after 5")));
  EXPECT_THAT(complaint("epochs = 9\ntype = 'multistep'\nmilestones = []\nfactor = 0.1"), HasSubstr("empty"));
  EXPECT_THAT(complaint("epochs = 9\ntype = 'steps'\nuntil = [5]\nfactors = [1]"), HasSubstr("wanted 2"));
  EXPECT_THAT(complaint("epochs = 9\ntype = 'steps'\nuntil = [5]\nfactors = [1, 0]"), HasSubstr("above 0"));
  EXPECT_THAT(complaint("epochs = 9\ntype = 'linear'\npeak = 1"), HasSubstr("wanted less"));
  EXPECT_THAT(complaint("epochs = 9\ntype = 'plateau'\nfactor = 1\npatience = 1"), HasSubstr("never fall"));
  EXPECT_THAT(complaint("epochs = 9\ntype = 'plateau'\nfactor = 0.5"), HasSubstr("patience"));
  EXPECT_THAT(complaint("epochs = 9\nbiases = { type = 'plateau' }"), HasSubstr("'plateau'"));
  EXPECT_THAT(complaint("epochs = 9\nbiases = { epochs = 3 }"), HasSubstr("no key 'epochs'"));
  EXPECT_THAT(complaint("epochs = 9\nbiases = 3"), HasSubstr("biases"));
  EXPECT_THAT(complaint("epochs = 2\nwarmup_epochs = 3"), HasSubstr("wanted at most 'epochs', 2"));
  EXPECT_THAT(complaint("epochs = 2\nwarmup_epochs = 2\ntype = 'cosine'"), HasSubstr("wanted less than 'epochs', 2"));
  EXPECT_EQ(complaint("epochs = 2\nwarmup_epochs = 2\ntype = 'cosine'\nend = 0.1"), "");
  EXPECT_THAT(complaint("epochs = 2\ntype = 'dexp'\ntarget_factor = 4\nsteps = 1"), HasSubstr("steps"));
}

}  // namespace
}  // namespace owt::schedule_test
