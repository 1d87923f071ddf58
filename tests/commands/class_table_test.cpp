#include "src/commands/class_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace owt::class_table_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Class i has ten images, of which i % 10 are right; every class before the last one.
std::vector<ClassAccuracy> classes_of(int64_t count) {
  std::vector<ClassAccuracy> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back({.name = "<" + std::to_string(i) + ">", .images = 10, .top1 = i % 10, .top5 = 10});
  return all;
}

int64_t lines_in(const std::string& text) { return std::ranges::count(text, '\n'); }

TEST(ClassTable, HasALineForEachOfAThousandClasses) {
  EXPECT_EQ(lines_in(class_table(classes_of(1000), true)), 1 + 1000 + 1);
  EXPECT_THAT(class_table(classes_of(1000), true), Not(HasSubstr("left out")));
}

TEST(ClassTable, EndsWithTheMeanInWhichEachClassCountsEqually) {
  std::vector<ClassAccuracy> classes = classes_of(2);  // 0 and 1 of 10 are right
  classes.push_back({.name = "rare", .images = 1, .top1 = 1, .top5 = 1});
  EXPECT_THAT(class_table(classes, true), EndsWith("\nmean over 3 classes: top-1 36.67 %\n"));
  EXPECT_THAT(class_table(classes_of(2000), true), EndsWith("\nmean over 2000 classes: top-1 45.00 %\n"));
}

TEST(ClassTable, DoesNotGrowWithVeryManyClassesAndShowsTheWorst) {
  std::vector<ClassAccuracy> classes = classes_of(41'031);
  classes[7].top1 = 0, classes[7].images = 12;
  const std::string table = class_table(classes, true);
  EXPECT_EQ(lines_in(table), 1 + 50 + 1 + 1);
  EXPECT_THAT(table, HasSubstr("wrong class\n<7> "));  // class 7 has more images than class 0
  EXPECT_THAT(table, HasSubstr("\n<0> "));
  EXPECT_THAT(table, Not(HasSubstr("<1> ")));
  EXPECT_THAT(table, HasSubstr("40981 more are left out; --json FILE"));
}

}  // namespace
}  // namespace owt::class_table_test
