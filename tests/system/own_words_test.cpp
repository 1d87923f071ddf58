#include "src/system/own_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>

#include "src/system/check.h"

namespace owt::own_words_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(OwnWords, SayTheReasonAndNotTheLibrarysFunction) {
  EXPECT_EQ(own_words(Error("a, wanted b")), "a, wanted b");
  EXPECT_EQ(own_words(std::bad_alloc()), "out of memory");
  const std::error_code denied = std::make_error_code(std::errc::permission_denied);
  EXPECT_EQ(own_words(std::filesystem::filesystem_error("status", "a/b", denied)), "cannot use a/b: Permission denied");
  EXPECT_EQ(own_words(std::system_error(denied, "thread")), "Permission denied");
  EXPECT_EQ(own_words(std::out_of_range("map::at")), "unexpected error: map::at");
}

TEST(Messages, KeepFrontAndEndOfWhatIsTooLong) {
  EXPECT_EQ(fit_for_message(std::string(4000, 'x')), std::string(4000, 'x'));
  const std::string fit = fit_for_message("front" + std::string(1 << 20, 'x') + "cure");
  EXPECT_LT(fit.size(), 4100u);
  EXPECT_THAT(fit, StartsWith("front"));
  EXPECT_THAT(fit, EndsWith("cure"));
  EXPECT_THAT(fit, HasSubstr(" bytes) ... "));
  std::string umlauts;
  while (umlauts.size() < 9000) umlauts += "\xc3\xa4";
  for (const char* front : {"", "a"}) EXPECT_EQ(fit_for_message(front + umlauts).find("\xc3 "), std::string::npos);
}

}  // namespace
}  // namespace owt::own_words_test
