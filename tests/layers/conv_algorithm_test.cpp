#include "layers/conv_cpu/conv_algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::conv_algorithm_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

using Timing = ConvChoices::Timing;

constexpr auto kDirect = ConvAlgorithm::kDirect, kWinograd = ConvAlgorithm::kWinograd,
               kWinogradBf16 = ConvAlgorithm::kWinogradBf16;
constexpr double kLargestError = 1e-4;

auto finding(double direct_ms, double winograd_ms, double error = 0) {
  return [=] { return std::vector<Timing>{{kDirect, direct_ms, 0}, {kWinograd, winograd_ms, error}}; };
}
std::vector<Timing> must_not_measure() { fail("measured"); }

template <class Measure>
ConvAlgorithm choose(ConvChoices& choices, const std::string& key, const Measure& measure) {
  return choices.choose(key, {kDirect, kWinograd}, kLargestError, measure);
}

TEST(ConvChoices, TakesWinogradWhereItIsMoreThanFivePercentFaster) {
  ConvChoices choices;
  EXPECT_EQ(choose(choices, "a", finding(10, 9)), kWinograd);
  EXPECT_EQ(choose(choices, "b", finding(10, 9.7)), kDirect);
  EXPECT_EQ(choose(choices, "c", finding(10, 20)), kDirect);
}

TEST(ConvChoices, TakesTheFastestOfSeveral) {
  ConvChoices choices;
  const ConvChoices::Candidates all{kDirect, kWinogradBf16, kWinograd};
  const auto times = [](double bf16_ms, double f32_ms) {
    return [=] {
      return std::vector<Timing>{{kDirect, 10, 0}, {kWinogradBf16, bf16_ms, 5e-3}, {kWinograd, f32_ms, 0}};
    };
  };
  EXPECT_EQ(choices.choose("a", all, 1e-2, times(5, 6)), kWinogradBf16);
  EXPECT_EQ(choices.choose("b", all, 1e-2, times(6, 5)), kWinograd);
  EXPECT_EQ(choices.choose("c", all, 1e-3, times(5, 6)), kWinograd);
}

TEST(ConvChoices, RefusesAFastButInaccurateAlgorithm) {
  ConvChoices choices;
  EXPECT_EQ(choose(choices, "a", finding(10, 1, 2 * kLargestError)), kDirect);
  EXPECT_EQ(choose(choices, "b", finding(10, 1, NAN)), kDirect);
}

TEST(ConvChoices, APassWithOneAlgorithmIsNotMeasuredNorKept) {
  ConvChoices choices;
  EXPECT_EQ(choices.choose("a", {kDirect}, kLargestError, must_not_measure), kDirect);
  EXPECT_THAT(choices.exported(), IsEmpty());
}

TEST(ConvChoices, APreloadedChoiceHoldsForOtherTeamsWhereThatIsAsked) {
  const std::string two = ConvChoices::key("3x3, forward", 2), one = ConvChoices::key("3x3, forward", 1),
                    other = ConvChoices::key("3x3, backward", 1);
  ConvChoices choices;
  choices.preload_for_all_teams({{two, "winograd"}, {ConvChoices::key("3x3, forward", 4), "direct"}});
  EXPECT_EQ(choose(choices, one, must_not_measure), kWinograd);
  EXPECT_EQ(choose(choices, ConvChoices::key("3x3, forward", 4), must_not_measure), kDirect);
  EXPECT_EQ(choose(choices, other, finding(1, 2)), kDirect);
  ConvChoices training;
  training.preload({{two, "winograd"}});
  EXPECT_EQ(choose(training, one, finding(1, 2)), kDirect);
}

TEST(ConvChoices, WhoFollowsAnotherMeasuresNothing) {
  ConvChoices choices;
  choices.follow({{ConvChoices::key("3x3, forward", 2), "winograd"}});
  EXPECT_EQ(choose(choices, ConvChoices::key("3x3, forward", 1), must_not_measure), kWinograd);
  EXPECT_EQ(choose(choices, ConvChoices::key("5x5, forward", 1), must_not_measure), kDirect);
  choices.follow({{ConvChoices::key("5x5, forward", 2), "winograd"}});  // met by the other process in the meantime
  EXPECT_EQ(choose(choices, ConvChoices::key("5x5, forward", 1), must_not_measure), kWinograd);
  choices.clear();
  EXPECT_EQ(choose(choices, "a", finding(2, 1)), kWinograd);
}

TEST(ConvChoices, MeasuresAKeyOnce) {
  ConvChoices choices;
  choose(choices, "a", finding(2, 1));
  EXPECT_EQ(choose(choices, "a", must_not_measure), kWinograd);
}

TEST(ConvChoices, ThreadsShareOneMeasurement) {
  ConvChoices choices;
  int measured = 0, winograd = 0;
  std::mutex mutex;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&] {
      const auto chosen = choose(choices, "a", [&] {
        ++measured;  // not guarded: one thread measures at a time
        return finding(2, 1)();
      });
      const std::lock_guard lock(mutex);
      winograd += chosen == kWinograd;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(winograd, 4);
}

TEST(ConvChoices, AFixedModeNeverMeasuresAndIsNotKept) {
  ConvChoices choices;
  for (const auto mode : {kDirect, kWinograd}) {
    choices.set_mode(mode);
    EXPECT_EQ(choose(choices, "a", must_not_measure), mode);
    EXPECT_EQ(choices.choose("b", {kDirect}, kLargestError, must_not_measure), kDirect);
  }
  choices.set_mode(kWinogradBf16);
  EXPECT_EQ(choose(choices, "a", must_not_measure), kDirect);
  choices.set_mode(ConvAlgorithm::kByShape);
  EXPECT_EQ(choose(choices, "a", must_not_measure), kWinograd);
  EXPECT_EQ(choices.choose("b", {kDirect}, kLargestError, must_not_measure), kDirect);
  EXPECT_TRUE(choices.exported().empty());
}

TEST(ConvChoices, AnExportedTableDecidesElsewhere) {
  ConvChoices first, second;
  choose(first, "a", finding(2, 1));
  choose(first, "b", finding(1, 2));
  EXPECT_THAT(first.exported(), ElementsAre(Pair("a", "winograd"), Pair("b", "direct")));
  second.preload(first.exported());
  EXPECT_EQ(choose(second, "a", must_not_measure), kWinograd);
  EXPECT_EQ(choose(second, "b", must_not_measure), kDirect);
  second.clear();
  EXPECT_TRUE(second.exported().empty());
}

TEST(ConvChoices, AnUnknownAlgorithmChangesNothing) {
  ConvChoices choices;
  EXPECT_THAT(message_of([&] {
                choices.preload({{"a", "direct"}, {"b", "fft"}});
              }),
              AllOf(HasSubstr("'fft'"), HasSubstr("winograd")));
  for (const std::string mode : {"auto", "by-shape"})
    EXPECT_THAT(message_of([&] { choices.preload({{"a", mode}}); }), AllOf(HasSubstr("'a'"), HasSubstr(mode)));
  EXPECT_TRUE(choices.exported().empty());
}

TEST(ConvChoices, ReportsWhatWasMeasured) {
  ConvChoices choices;
  choose(choices, "conv", finding(46.01, 27.72, 1e-6));
  choices.preload({{"other", "direct"}});
  EXPECT_THAT(choices.report(), ElementsAre("conv: winograd (direct 46.01 ms, winograd 27.72 ms with error 1e-06)",
                                            "other: direct (as before)"));
}

TEST(ConvChoices, APreloadedAlgorithmThatCannotBeUsedBecomesDirectAndIsReported) {
  ConvChoices choices;
  choices.preload({{"a", "winograd-bf16"}, {"b", "winograd-bf16"}, {"c", "winograd"}});
  for (const char* key : {"a", "a"}) EXPECT_EQ(choose(choices, key, must_not_measure), kDirect);
  EXPECT_EQ(choose(choices, "c", must_not_measure), kWinograd);
  EXPECT_THAT(choices.exported(), ElementsAre(Pair("a", "direct"), Pair("b", "winograd-bf16"), Pair("c", "winograd")));
  EXPECT_THAT(choices.warnings(), ElementsAre(AllOf(HasSubstr("1 pass(es)"), HasSubstr("direct from here on"),
                                                    HasSubstr("not bit for bit"))));
  choices.clear();
  EXPECT_THAT(choices.warnings(), IsEmpty());
}

TEST(ConvAlgorithm, NamesAreReadAsTheyAreWritten) {
  for (const auto algorithm : {ConvAlgorithm::kAuto, ConvAlgorithm::kByShape, kDirect, ConvAlgorithm::kFewChannels,
                               ConvAlgorithm::kDepthwise, kWinograd, kWinogradBf16})
    EXPECT_EQ(conv_algorithm_from(name_of(algorithm)), algorithm);
}

}  // namespace
}  // namespace owt::conv_algorithm_test
