#include "layers/base/in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/harness.h"

namespace owt::in_place_test {
namespace {

using ::testing::ElementsAre;

// work_in_place() for layers after a dense one.
std::vector<bool> in_place(const std::vector<std::string>& kinds) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(layer_from("type='dense' out=4", {1, 4}));
  for (const std::string& kind : kinds) {
    const bool own_type = kind == "relu" || kind == "dropout";
    layers.push_back(layer_from(own_type ? "type='" + kind + "'" + (kind == "dropout" ? " rate=0.5" : "")
                                         : "type='activation' kind='" + kind + "'",
                                {1, 4}));
  }
  std::vector<bool> all = work_in_place(layers);
  EXPECT_FALSE(all.front());
  all.erase(all.begin());
  return all;
}

TEST(InPlace, IsALayerThatLeavesWhatThoseBeforeItRead) {
  EXPECT_THAT(in_place({"relu", "dropout"}), ElementsAre(true, true));
  EXPECT_THAT(in_place({"dropout", "relu"}), ElementsAre(true, true));
  EXPECT_THAT(in_place({"leaky", "dropout"}), ElementsAre(true, true));
  EXPECT_THAT(in_place({"relu", "tanh"}), ElementsAre(true, true));
  EXPECT_THAT(in_place({"tanh", "relu"}), ElementsAre(true, true)) << "where it changes a value no gradient comes";
  EXPECT_THAT(in_place({"sigmoid", "relu6"}), ElementsAre(true, true));
  EXPECT_THAT(in_place({"dropout", "softplus"}), ElementsAre(true, true)) << "a dropout reads nothing";
}

TEST(InPlace, IsNoLayerThatOverwritesWhatOneBeforeItReads) {
  for (const char* reads : {"tanh", "sigmoid", "softplus", "relu6"})
    for (const char* changes : {"dropout", "tanh", "leaky", "sigmoid", "softplus"})
      EXPECT_THAT(in_place({reads, changes}), ElementsAre(true, false)) << reads << ", " << changes;
  EXPECT_THAT(in_place({"relu", "sigmoid"}), ElementsAre(true, false));
  EXPECT_THAT(in_place({"leaky", "softplus"}), ElementsAre(true, false));
  EXPECT_THAT(in_place({"gelu", "tanh"}), ElementsAre(false, true));
}

// All layers that wrote into the memory count, not only the previous layer.
TEST(InPlace, AllLayersCountThatHaveTheMemory) {
  EXPECT_THAT(in_place({"relu", "dropout", "softplus"}), ElementsAre(true, true, false));
  EXPECT_THAT(in_place({"tanh", "relu", "dropout"}), ElementsAre(true, true, false));
  EXPECT_THAT(in_place({"tanh", "dropout", "softplus"}), ElementsAre(true, false, true))
      << "the dropout has memory of its own, in which nobody reads";
}

TEST(InPlace, TheFirstLayerIsNot) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(layer_from("type='relu'", {1, 4}));
  layers.push_back(layer_from("type='relu'", {1, 4}));
  EXPECT_THAT(work_in_place(layers), ElementsAre(false, true));
  EXPECT_TRUE(work_in_place(std::span<Layer* const>()).empty());
}

}  // namespace
}  // namespace owt::in_place_test
