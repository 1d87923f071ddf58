#include "src/system/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"

namespace owt::texts_test {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

TEST(Texts, ComeBackWhateverBytesTheyHold) {
  const std::vector<std::string> texts{"", "3:abc", std::string("a\0b", 3), ":", std::string(1000, 'x')};
  EXPECT_THAT(unpacked(packed(texts)), ElementsAreArray(texts));
  EXPECT_THAT(unpacked(packed({})), IsEmpty());
}

TEST(Texts, DamagedOnesAreRefused) {
  for (const char* damaged :
       {"5:abc", "x", "3", "3abc", "-1:a", "99999999999999999999:a", "2:a", "1:a2:b", "1:", "0:1"})
    EXPECT_THROW(unpacked(damaged), Error) << damaged;
}

}  // namespace
}  // namespace owt::texts_test
