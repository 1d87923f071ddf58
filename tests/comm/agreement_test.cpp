#include "src/comm/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace owt::agreement_test {
namespace {

using testing::Optional;

Facts facts_of(const std::string& host, const std::string& images, const std::string& recipe = "a = 1\nb = 2\n") {
  return {host, {{"recipe", recipe, "give all the same recipe"}, {"images", images, "copy them", "in /data/" + host}}};
}

TEST(Agreement, IsThereWhereAllValuesAreTheSame) {
  EXPECT_EQ(first_difference({facts_of("n0", "9"), facts_of("n1", "9"), facts_of("n1", "9")}), std::nullopt);
}

TEST(Agreement, WhereThingsLieMayDiffer) {
  Facts other = facts_of("n1", "9");
  other.facts[1].where = "in /scratch";
  EXPECT_EQ(first_difference({facts_of("n0", "9"), other}), std::nullopt);
}

TEST(Agreement, TheErrorNamesTheRankItsHostBothValuesAndTheCure) {
  EXPECT_THAT(
      first_difference({facts_of("n0", "9"), facts_of("n1", "9"), facts_of("n2", "8")}),
      Optional(std::string("images: rank 2 on n2 has 8 in /data/n2, rank 0 on n0 has 9 in /data/n0; copy them")));
}

TEST(Agreement, OfLongTextsTheFirstLineThatDiffersIsShown) {
  EXPECT_THAT(first_difference({facts_of("n0", "9"), facts_of("n1", "8", "a = 1\nb = 3\n")}),
              Optional(std::string("recipe: rank 1 on n1 has the line 'b = 3', rank 0 on n0 has the line 'b = 2'; give "
                                   "all the same recipe")));
  EXPECT_THAT(
      first_difference({facts_of("n0", "9"), facts_of("n1", "9", "a = 1\nb = 2\nc = 3\n")}),
      Optional(std::string("recipe: rank 1 on n1 has the line 'c = 3', rank 0 on n0 has no more lines; give all "
                           "the same recipe")));
}

TEST(Agreement, OfOneLineAndOfMoreTheFirstLineThatDiffersIsShown) {
  EXPECT_THAT(
      first_difference({facts_of("n0", "9"), facts_of("n1", "9", "a = 1\n")}),
      Optional(std::string("recipe: rank 1 on n1 has no more lines, rank 0 on n0 has the line 'b = 2'; give all "
                           "the same recipe")));
}

TEST(Agreement, AnotherCommandComparesOtherThings) {
  Facts other = facts_of("n1", "9");
  other.facts.pop_back();
  EXPECT_THAT(first_difference({facts_of("n0", "9"), other}),
              Optional(std::string("rank 1 on n1 has nothing to say of: images; start the same command everywhere")));
}

TEST(Agreement, AProcessThatWasStartedAloneAgreesWithItself) { check_alike({{"anything", "at all", "no cure"}}); }

}  // namespace
}  // namespace owt::agreement_test
