#include "src/system/toml_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace owt::toml_values_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(TomlValues, AreListedByTheirDottedKeys) {
  const std::string text = R"(
name = "a 'b'"
[data]
batch = 64
rate = 0.05
augment = { mirror = true, sizes = [1, 2] }
[[layer]]
name = "conv1"
out = 3
[[layer]]
out = 4
)";
  EXPECT_THAT(toml_values(text, "x"),
              ElementsAre(Pair("data.augment.mirror", "true"), Pair("data.augment.sizes", "[ 1, 2 ]"),
                          Pair("data.batch", "64"), Pair("data.rate", "0.05"), Pair("layer.conv1.name", "conv1"),
                          Pair("layer.conv1.out", "3"), Pair("layer.1.out", "4"), Pair("name", "a 'b'")));
}

TEST(TomlValues, OfNoTomlNameTheLine) {
  EXPECT_THAT(message_of([] { toml_values("a = 1\nb = ]\n", "run/config.toml"); }), HasSubstr("run/config.toml:2"));
}

}  // namespace
}  // namespace owt::toml_values_test
