#include "layers/conv_algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "src/core/check.h"

namespace owt {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::ThrowsMessage;

auto finding(ConvChoices::Measured measured) {
  return [=] { return measured; };
}
ConvChoices::Measured must_not_measure() { fail("measured"); }

TEST(ConvChoices, TakesWinogradWhereItIsMoreThanFivePercentFaster) {
  ConvChoices choices;
  EXPECT_EQ(choices.choose("a", finding({.direct_ms = 10, .winograd_ms = 9})), ConvAlgorithm::kWinograd);
  EXPECT_EQ(choices.choose("b", finding({.direct_ms = 10, .winograd_ms = 9.7})), ConvAlgorithm::kDirect);
  EXPECT_EQ(choices.choose("c", finding({.direct_ms = 10, .winograd_ms = 20})), ConvAlgorithm::kDirect);
}

TEST(ConvChoices, RefusesAFastButInaccurateAlgorithm) {
  ConvChoices choices;
  EXPECT_EQ(choices.choose("a", finding({.direct_ms = 10, .winograd_ms = 1, .error = 2e-4})), ConvAlgorithm::kDirect);
  EXPECT_EQ(choices.choose("b", finding({.direct_ms = 10, .winograd_ms = 1, .error = NAN})), ConvAlgorithm::kDirect);
}

TEST(ConvChoices, APreloadedChoiceHoldsForOtherTeamsWhereThatIsAsked) {
  const std::string two = ConvChoices::key("3x3, forward", 2), one = ConvChoices::key("3x3, forward", 1),
                    other = ConvChoices::key("3x3, backward", 1);
  ConvChoices choices;
  choices.preload_for_all_teams({{two, "winograd"}, {ConvChoices::key("3x3, forward", 4), "direct"}});
  EXPECT_EQ(choices.choose(one, must_not_measure), ConvAlgorithm::kWinograd);
  EXPECT_EQ(choices.choose(ConvChoices::key("3x3, forward", 4), must_not_measure), ConvAlgorithm::kDirect);
  EXPECT_THROW(choices.choose(other, must_not_measure), Error);
  ConvChoices training;
  training.preload({{two, "winograd"}});
  EXPECT_THROW(training.choose(one, must_not_measure), Error);
}

TEST(ConvChoices, WhoFollowsAnotherMeasuresNothing) {
  ConvChoices choices;
  choices.follow({{ConvChoices::key("3x3, forward", 2), "winograd"}});
  EXPECT_EQ(choices.choose(ConvChoices::key("3x3, forward", 1), must_not_measure), ConvAlgorithm::kWinograd);
  EXPECT_EQ(choices.choose(ConvChoices::key("5x5, forward", 1), must_not_measure), ConvAlgorithm::kDirect);
  choices.follow({{ConvChoices::key("5x5, forward", 2), "winograd"}});  // which the other has met since
  EXPECT_EQ(choices.choose(ConvChoices::key("5x5, forward", 1), must_not_measure), ConvAlgorithm::kWinograd);
  choices.clear();
  EXPECT_EQ(choices.choose("a", finding({.direct_ms = 2, .winograd_ms = 1})), ConvAlgorithm::kWinograd);
}

TEST(ConvChoices, MeasuresAKeyOnce) {
  ConvChoices choices;
  choices.choose("a", finding({.direct_ms = 2, .winograd_ms = 1}));
  EXPECT_EQ(choices.choose("a", must_not_measure), ConvAlgorithm::kWinograd);
}

TEST(ConvChoices, ThreadsShareOneMeasurement) {
  ConvChoices choices;
  int measured = 0, winograd = 0;
  std::mutex mutex;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&] {
      const auto chosen = choices.choose("a", [&] {
        ++measured;  // not guarded: one thread measures at a time
        return ConvChoices::Measured{.direct_ms = 2, .winograd_ms = 1};
      });
      const std::lock_guard lock(mutex);
      winograd += chosen == ConvAlgorithm::kWinograd;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(winograd, 4);
}

TEST(ConvChoices, AFixedModeNeverMeasuresAndIsNotKept) {
  ConvChoices choices;
  for (const auto mode : {ConvAlgorithm::kDirect, ConvAlgorithm::kWinograd}) {
    choices.set_mode(mode);
    EXPECT_EQ(choices.choose("a", must_not_measure), mode);
  }
  EXPECT_TRUE(choices.exported().empty());
}

TEST(ConvChoices, AnExportedTableDecidesElsewhere) {
  ConvChoices first, second;
  first.choose("a", finding({.direct_ms = 2, .winograd_ms = 1}));
  first.choose("b", finding({.direct_ms = 1, .winograd_ms = 2}));
  EXPECT_THAT(first.exported(), ElementsAre(Pair("a", "winograd"), Pair("b", "direct")));
  second.preload(first.exported());
  EXPECT_EQ(second.choose("a", must_not_measure), ConvAlgorithm::kWinograd);
  EXPECT_EQ(second.choose("b", must_not_measure), ConvAlgorithm::kDirect);
  second.clear();
  EXPECT_TRUE(second.exported().empty());
}

TEST(ConvChoices, AnUnknownAlgorithmChangesNothing) {
  ConvChoices choices;
  EXPECT_THAT(
      [&] {
        choices.preload({{"a", "direct"}, {"b", "fft"}});
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("'fft'"), HasSubstr("winograd"))));
  EXPECT_THAT([&] { choices.preload({{"a", "auto"}}); }, ThrowsMessage<Error>(HasSubstr("'a'")));
  EXPECT_TRUE(choices.exported().empty());
}

TEST(ConvChoices, ReportsWhatWasMeasured) {
  ConvChoices choices;
  choices.choose("conv", finding({.direct_ms = 46.01, .winograd_ms = 27.72, .error = 1e-6}));
  choices.preload({{"other", "direct"}});
  EXPECT_THAT(choices.report(), ElementsAre("conv: winograd (direct 46.01 ms, winograd 27.72 ms, error 1e-06)",
                                            "other: direct (as before)"));
}

TEST(ConvChoices, APreloadedWinogradThatCannotBeUsedBecomesDirectAndIsTold) {
  ConvChoices choices;
  choices.preload({{"a", "winograd"}, {"b", "winograd"}, {"c", "direct"}});
  for (const char* key : {"a", "a", "c", "unknown"}) choices.has_no_winograd(key);
  EXPECT_THAT(choices.exported(), ElementsAre(Pair("a", "direct"), Pair("b", "winograd"), Pair("c", "direct")));
  EXPECT_THAT(choices.warnings(), ElementsAre(AllOf(HasSubstr("1 pass(es)"), HasSubstr("direct from here on"),
                                                    HasSubstr("not bit for bit"))));
  choices.clear();
  EXPECT_THAT(choices.warnings(), IsEmpty());
}

TEST(ConvChoices, AMachineWithoutWinogradIsReported) {
  ConvChoices choices("oneDNN 9.8.7 has none");
  EXPECT_THAT(choices.report(), IsEmpty());  // no convolution on the CPU so far
  choices.has_no_winograd("a");
  EXPECT_THAT(choices.report(), ElementsAre("of every kind: direct (oneDNN 9.8.7 has none)"));
  EXPECT_THAT(choices.warnings(), IsEmpty());
}

TEST(ConvChoices, WinogradAskedForWhereThereIsNoneIsAWarning) {
  ConvChoices choices("oneDNN 9.8.7 has none"), other;
  for (ConvChoices* each : {&choices, &other}) {
    each->set_mode(ConvAlgorithm::kWinograd);
    each->has_no_winograd("a");
  }
  EXPECT_THAT(choices.warnings(), ElementsAre(AllOf(HasSubstr("'winograd'"), HasSubstr("oneDNN 9.8.7 has none"))));
  EXPECT_THAT(choices.report(), IsEmpty());
  EXPECT_THAT(other.warnings(), IsEmpty());  // it has kernels, for other passes
}

TEST(ConvAlgorithm, NamesGoBothWays) {
  for (const auto algorithm : {ConvAlgorithm::kAuto, ConvAlgorithm::kDirect, ConvAlgorithm::kWinograd})
    EXPECT_EQ(conv_algorithm_from(name_of(algorithm)), algorithm);
}

}  // namespace
}  // namespace owt
