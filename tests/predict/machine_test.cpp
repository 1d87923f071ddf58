#include "src/predict/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/predict/step_price.h"
#include "tests/support/message_of.h"
#include "tests/support/models.h"
#include "tests/support/temp_folder.h"

namespace owt::machine_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kTwoGroups = R"(
name = "two groups"
gpu = "K20"
gpus = 8
group = 4
one_port = true
collectives = "direct"
link = { bandwidth = "6GB/s", latency = "20us" }
between = { bandwidth = "12GB/s", latency = "40us" }
assumptions = ["this", "that"]
source = "somebody, somewhere"

[[speed]]
model = "small"
rows = 16
images_per_second = 50.0
)";

class MachineTest : public ::testing::Test {
 protected:
  Machine machine(const std::string& text) const {
    const std::string path = folder_.file("machine.toml");
    write_bytes(path, text);
    return read_machine(path);
  }
  // The text with one word in place of another.
  static std::string with(const std::string& word, const std::string& other) {
    std::string text = kTwoGroups;
    text.replace(text.find(word), word.size(), other);
    return text;
  }
  void refused(const std::string& text, const std::string& why) const {
    EXPECT_THAT(message_of([&] { machine(text); }), AllOf(HasSubstr(why), HasSubstr("machine.toml:"))) << text;
  }

 private:
  TempFolder folder_;
};

TEST_F(MachineTest, ItsGroupsAreHosts) {
  const Machine two = machine(kTwoGroups);
  EXPECT_EQ(two.gpu.name, "K20");
  EXPECT_EQ(two.network(1).ranks(), 1);
  for (const int ranks : {2, 3, 4}) {
    EXPECT_EQ(two.network(ranks).hosts, 1);
    EXPECT_EQ(two.network(ranks).ranks(), ranks);
  }
  const Network all = two.network(8);
  EXPECT_EQ(all.hosts, 2);
  EXPECT_EQ(all.ranks_per_host, 4);
  EXPECT_EQ(all.algorithm, Network::Algorithm::kDirect);
  EXPECT_TRUE(all.one_port);
  EXPECT_DOUBLE_EQ(all.local.bytes_per_s, 6e9);
  EXPECT_NEAR(all.local.latency_s, 20e-6, 1e-18);
  EXPECT_DOUBLE_EQ(all.between.bytes_per_s, 12e9);
  EXPECT_NEAR(all.between.latency_s, 40e-6, 1e-18);
  EXPECT_THROW(two.network(6), Error);
  EXPECT_THROW(two.network(16), Error);
}

TEST_F(MachineTest, OneCardTrainsAsManyImagesASecondAsTheFileSays) {
  const Machine two = machine(kTwoGroups);
  Model model = tiny_model();
  const Plan alone = make_plan(model, {.step_rows = 16, .on = {Device::kCuda, Precision::kFp32}});
  const auto known = two.compute(model, Precision::kFp32);
  EXPECT_NEAR(price_step(alone, two.network(1), *known).images_per_second(), 50, 1e-9);
  // Layers keep their shares, and a model without a speed has the floors of the card.
  model.name = "another";
  const auto floors = two.compute(model, Precision::kFp32);
  const double factor = known->forward(2, 16, 1) / floors->forward(2, 16, 1);
  EXPECT_GT(factor, 1);
  EXPECT_NEAR(known->update(0, 1) / floors->update(0, 1), factor, 1e-9 * factor);
  EXPECT_DOUBLE_EQ(floors->forward(2, 16, 1),
                   device_compute(device_speed("K20"), model, Precision::kFp32)->forward(2, 16, 1));
}

TEST_F(MachineTest, SaysWhereItIsFromAndWhatWasAssumed) {
  EXPECT_EQ(machine(kTwoGroups).text(),
            "two groups: 8 K20 in groups of 4.\n"
            "  Source: somebody, somewhere\n"
            "  One card trains 50 images/s of small, 16 rows a step.\n"
            "  Assumed: this\n"
            "  Assumed: that\n");
}

TEST_F(MachineTest, WithoutGroupsAllCardsAreInOne) {
  const Machine one = machine("name = 'x'\ngpu = 'V100'\ngpus = 4\nlink = { bandwidth = '1GB/s', latency = '1us' }\n");
  EXPECT_EQ(one.network(4).hosts, 1);
  EXPECT_EQ(one.links.algorithm, Network::Algorithm::kHierarchical);
  EXPECT_FALSE(one.links.one_port);
}

TEST_F(MachineTest, WhatIsWrongInAFileIsNamedWithItsLine) {
  refused(with("K20", "K21"), "did you mean 'K20'?");
  refused(with("group = 4", "group = 3"), "wanted a divisor of 8 cards");
  refused(with("6GB/s", "6 apples"), "no bandwidth");
  refused(with("40us", "40"), "40");
  refused(with("direct", "directly"), "did you mean 'direct'?");
  refused(with("rows = 16", "rows = 0"), "rows");
  refused(with("one_port", "one_prot"), "one_prot");
  refused(with("between = { bandwidth = \"12GB/s\", latency = \"40us\" }", ""), "bandwidth");
}

}  // namespace
}  // namespace owt::machine_test
