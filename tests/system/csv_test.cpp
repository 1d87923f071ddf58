#include "src/system/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace owt::csv_test {
namespace {

using ::testing::ElementsAre;

TEST(CsvTable, FieldsMayBeQuoted) {
  const CsvTable table = csv_table_from("name,n\r\n\"a,\"\"b\"\"\nc\",1.5\nd,\n\nlast,2");
  EXPECT_THAT(table.head, ElementsAre("name", "n"));
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(table.text(table.rows[0], "name"), "a,\"b\"\nc");
  EXPECT_EQ(table.number(table.rows[0], "n"), 1.5);
  EXPECT_EQ(table.number(table.rows[1], "n"), 0);
  EXPECT_EQ(table.text(table.rows[2], "n"), "");
  EXPECT_EQ(table.number(table.rows[3], "n"), 2);
  EXPECT_EQ(table.text(table.rows[0], "none"), "");
}

TEST(CsvTable, OfNothingHasNoRows) { EXPECT_TRUE(csv_table_from("").rows.empty()); }

TEST(CsvTable, AByteOrderMarkIsNoPartOfTheFirstName) {
  EXPECT_THAT(csv_table_from("\xEF\xBB\xBFname,n\n").head, ElementsAre("name", "n"));
}

TEST(CsvTable, QuotedCellsAreReadBack) {
  for (const std::string cell : {"plain", "a b", "a,b", "\"a\"", "a\nb", ""})
    EXPECT_THAT(csv_table_from(csv_quoted(cell) + ",end\n").head, ElementsAre(cell, "end"));
}

}  // namespace
}  // namespace owt::csv_test
