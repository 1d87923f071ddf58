#include "src/report/draw_net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "src/report/net_blocks.h"
#include "tests/support/models.h"
#include "tests/support/plans.h"

namespace owt::draw_net_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

size_t times_in(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string drawn(const Model& model, int ranks = 1, Strategy strategy = Strategy::kOwtA, int model_ranks = 0) {
  return draw_net(
      make_plan(model, {.ranks = ranks, .strategy = strategy, .step_rows = 8 * ranks, .model_ranks = model_ranks}));
}

Model small_net() {
  return model_of("[3, 8, 8]", 10, R"(
  { name = "conv1", type = "conv", out = 16, kernel = 3, pad = 1 },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 2, stride = 2 },
  { name = "fc1", type = "dense", out = 12 },
  { name = "relu2", type = "relu" },
  { name = "fc2", type = "dense", out = 10 })");
}

// A residual block with a separate shortcut, and two equal ones.
Model residual_net() {
  const auto body = [](const std::string& name, const std::string& more) {
    return "{ name = \"" + name + R"(", type = "residual", body = [
      { name = "conv", type = "conv", out = 8, kernel = 3, pad = 1 }, { name = "relu", type = "relu" },
      { name = "last", type = "conv", out = 8, kernel = 1 } ])" +
           more + " }";
  };
  return model_of("[3, 8, 8]", 10,
                  body("first", ", shortcut = [ { name = \"side\", type = \"conv\", out = 8, kernel = 1 } ]") + "," +
                      body("second", "") + "," + body("third", "") + "," + body("fourth", "") + R"(,
  { name = "pool", type = "global_avg_pool" }, { name = "fc", type = "dense", out = 10 })");
}

TEST(DrawNet, HasEveryLayerOnceAndEveryShape) {
  const Model model = small_net();
  const std::string svg = drawn(model);
  for (const LayerPlan& at : make_plan(model, {}).layers) {
    EXPECT_EQ(times_in(svg, ">" + at.name + "</text>"), 1u) << at.name;
    EXPECT_EQ(times_in(svg, "<title>" + at.name + ": "), 1u) << at.name;
  }
  // The input; the outputs of conv1, pool1, fc1 and fc2.
  for (const char* shape : {">8x8x3</text>", ">8x8x16</text>", ">4x4x16</text>", ">12</text>", ">10</text>"})
    EXPECT_EQ(times_in(svg, shape), 1u) << shape;
  EXPECT_THAT(svg, AllOf(HasSubstr(">448</text>"), HasSubstr(">3.1 K</text>"), HasSubstr("weights 16x3x3x3, 16")));
  EXPECT_EQ(times_in(svg, "<rect class=\"card\""), 4u);  // relus are drawn in the boxes of the layers before them
  EXPECT_EQ(times_in(svg, "<svg "), 1u);
}

TEST(DrawNet, NamesNoAddressWithinAPage) {
  const Plan plan = make_plan(small_net(), {});
  EXPECT_THAT(draw_net(plan), HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\" "));
  EXPECT_THAT(draw_net(plan, true), AllOf(HasSubstr("<svg viewBox="), Not(HasSubstr("http"))));
}

TEST(DrawNet, SumsUpWhatTheLayersHave) {
  EXPECT_THAT(drawn(small_net()), AllOf(HasSubstr("3.7 K parameters, 0.01 MB; "), Not(HasSubstr(">0</text>")),
                                        HasSubstr("aria-label=\"The network small: 6 layers, 3662 parameters")));
}

// With one worker there are no parts to show.
TEST(DrawNet, ShowsPartsOfSeveralRanksAlone) {
  EXPECT_THAT(drawn(small_net()),
              AllOf(Not(HasSubstr(" workers")), Not(HasSubstr("class=\"cell\"")), Not(HasSubstr("class=\"cut\""))));
}

// Widths of the coloured parts of the bars of a layer, rank by rank, as parts of a cell.
std::vector<double> held(const std::string& svg, const std::string& layer) {
  std::vector<double> parts;
  const std::regex cell("<title>" + layer +
                        ", rank \\d+: [^<]*</title><rect class=\"cell\"[^>]*width=\"([0-9.]+)\"[^>]*>"
                        "<rect fill[^>]*width=\"([0-9.]+)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), cell), end; at != end; ++at)
    parts.push_back(std::round(100 * std::stod((*at)[2]) / std::stod((*at)[1])) / 100);
  return parts;
}
using Parts = std::vector<double>;

TEST(DrawNet, AfterTheBoundaryEveryRankHasAPart) {
  const std::string svg = drawn(small_net(), 4);
  EXPECT_EQ(held(svg, "conv1"), (Parts{1, 1, 1, 1}));
  EXPECT_EQ(held(svg, "fc1"), (Parts{.25, .25, .25, .25}));
  EXPECT_EQ(held(svg, "fc2"), (Parts{.3, .3, .2, .2}));
  EXPECT_EQ(held(svg, "pool1"), Parts{});
  EXPECT_EQ(times_in(svg, "class=\"cut\""), 1u);
  EXPECT_LT(svg.find("<title>pool1: "), svg.find("class=\"cut\""));
  EXPECT_LT(svg.find("class=\"cut\""), svg.find("<title>fc1: "));
  EXPECT_THAT(svg, AllOf(HasSubstr("data-parallel: "), HasSubstr("model-parallel: "), HasSubstr("↓ all_gather "),
                         HasSubstr("↑ reduce_scatter "), HasSubstr("4 workers under owt-a, 32 rows a step")));
}

TEST(DrawNet, UnderDpEveryRankHasAll) {
  const std::string svg = drawn(small_net(), 2, Strategy::kDataParallel);
  for (const char* layer : {"conv1", "fc1", "fc2"}) EXPECT_EQ(held(svg, layer), (Parts{1, 1})) << layer;
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("class=\"cut\"")), Not(HasSubstr("all_gather"))));
}

TEST(DrawNet, AGridHasCopiesOfParts) {
  const std::string svg = drawn(small_net(), 4, Strategy::kOwtA, 2);
  EXPECT_EQ(held(svg, "fc1"), (Parts{.5, .5, .5, .5}));
  EXPECT_EQ(times_in(svg, "<title>fc1, rank 2: 0 to 50 % of its outputs"), 1u);
  EXPECT_THAT(svg, HasSubstr("4 workers under owt-a, 2 groups of 2, "));
}

TEST(DrawNet, APipelineIsCutWhereItsStagesBegin) {
  const std::string svg = drawn(small_net(), 2, Strategy::kPipeline);
  EXPECT_EQ(times_in(svg, "class=\"cut\""), 2u);
  EXPECT_THAT(svg, AllOf(HasSubstr(">stage 1 of 2: rank 0</text>"), HasSubstr(">stage 2 of 2: rank 1</text>")));
  EXPECT_EQ(held(svg, "conv1"), (Parts{1, 0}));
  EXPECT_EQ(held(svg, "fc2"), (Parts{0, 1}));
}

TEST(DrawNet, OfManyRanksTheFirstAreDrawn) {
  const std::string svg = drawn(small_net(), 20, Strategy::kDataParallel);
  EXPECT_EQ(held(svg, "conv1").size(), 16u);
  EXPECT_THAT(svg, HasSubstr("the first 16 workers"));
}

TEST(DrawNet, BranchesMeetAgainAndEqualBlocksAreDrawnOnce) {
  const std::string svg = drawn(residual_net());
  EXPECT_EQ(times_in(svg, ">+</text>"), 2u);  // the first block, and the others as one
  EXPECT_EQ(times_in(svg, ">side</text>"), 1u);
  EXPECT_EQ(times_in(svg, ">last</text>"), 2u);
  EXPECT_THAT(svg, AllOf(HasSubstr(">second to fourth</text>"), HasSubstr(">3 × 656</text>")));
  EXPECT_EQ(times_in(svg, "<rect class=\"frame\""), 2u + 1 + 2);  // blocks, the shadow of three, images and loss
}

// Like a layer that concatenates its branches' outputs, one of which passes its input on.
TEST(DrawNet, BranchesMayLieSideBySide) {
  Plan plan = make_plan(residual_net(), {});
  LayerPlan& block = plan.layers[1];
  block.out = Shape{8, 8, 16};
  plan.layers.resize(2);
  EXPECT_EQ(times_in(draw_net(plan), ">side by side</text>"), 1u);
  block.inner.back().out = block.out;
  EXPECT_EQ(times_in(draw_net(plan), ">side by side</text>"), 0u);
}

// The input passes beside the layers that compute its factors.
TEST(DrawNet, AScaleIsAProductOfItsInputAndItsBody) {
  const Plan plan = make_plan(model_of("[8, 4, 4]", 8, R"(
  { name = "se", type = "scale", body = [
    { name = "pool", type = "global_avg_pool" },
    { name = "fc", type = "dense", out = 8 } ] },
  { name = "pool", type = "global_avg_pool" })"),
                              {});
  EXPECT_EQ(times_in(draw_net(plan), ">×</text>"), 1u);
  EXPECT_EQ(times_in(draw_net(plan), ">side by side</text>"), 0u);
  ASSERT_EQ(drawing::blocks_of(plan.layers, nullptr).front().branches.size(), 2u);
}

TEST(DrawNet, NamesAreText) {
  Plan plan = make_plan(small_net(), {.ranks = 2, .step_rows = 8});
  plan.model = plan.layers[0].name = plan.layers[0].type = "<script>\"&";
  EXPECT_THAT(draw_net(plan), AllOf(HasSubstr("&lt;script&gt;&quot;&amp;"), Not(HasSubstr("<script>"))));
}

}  // namespace
}  // namespace owt::draw_net_test
