#include "src/recipe/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "src/plan/plan_rows.h"
#include "src/system/check.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt::settings_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(LossSettings, AreReadFromTheRecipe) {
  EXPECT_EQ(small_settings(kSmallRecipe).loss.label_smoothing, 0);
  EXPECT_EQ(small_settings(kSmallRecipe, {{"loss.label_smoothing", "0.1"}}).loss.label_smoothing, 0.1);
  EXPECT_EQ(small_settings(kSmallRecipe).loss.type, LossType::kSoftmax);
  EXPECT_EQ(small_settings(kSmallRecipe, {{"loss.type", "logistic"}}).loss.type, LossType::kLogistic);
}

TEST(LossSettings, AMarginIsReadFromTheRecipe) {
  const auto settings = [](const std::string& margin) {
    return small_settings(cosine_recipe(), {{"loss.margin", margin}});
  };
  const auto read = [&](const std::string& margin) { return settings(margin).loss.margin; };
  const auto same = [](const LossMargin& a, const LossMargin& b) {
    return a.scale == b.scale && a.factor == b.factor && a.angle == b.angle && a.cosine == b.cosine;
  };
  EXPECT_TRUE(same(small_settings(kSmallRecipe).loss.margin, {}));
  EXPECT_TRUE(same(read("{ type = 'arcface' }"), {.scale = 64, .angle = 0.5}));
  EXPECT_TRUE(same(read("{ type = 'arcface', m = 0.25, scale = 32 }"), {.scale = 32, .angle = 0.25}));
  EXPECT_TRUE(same(read("{ type = 'cosface' }"), {.scale = 64, .cosine = 0.35}));
  EXPECT_TRUE(same(read("{ type = 'combined', m1 = 0.9, m2 = 0.4, m3 = 0.15 }"),
                   {.scale = 64, .factor = 0.9, .angle = 0.4, .cosine = 0.15}));
  EXPECT_EQ(settings("{ type = 'cosface' }").plan_request().loss.margin.cosine, 0.35);
}

TEST(LossSettings, AMarginThatCannotBeIsRefusedInOneLine) {
  const auto said = [](const Overrides& changes) {
    return message_of([&] { small_settings(cosine_recipe(), changes); });
  };
  EXPECT_EQ(said({{"loss.label_smoothing", "0.1"}}), "");
  EXPECT_THAT(said({{"loss.type", "logistic"}}), HasSubstr("'margin' is for the softmax"));
  EXPECT_THAT(said({{"data.augment", "{ crop = 12, mixup = 0.2 }"}}),
              HasSubstr("'margin' is for images with one label"));
  EXPECT_THAT(said({{"loss.margin", "{ type = 'arcface', m = 1.6 }"}}), HasSubstr("'m' is 1.6"));
  EXPECT_THAT(said({{"loss.margin", "{ type = 'arcface', m1 = 1.0 }"}}), HasSubstr("m1"));
  EXPECT_THAT(said({{"loss.margin", "{ type = 'cosface', scale = 0 }"}}), HasSubstr("'scale' is 0"));
  EXPECT_THAT(said({{"loss.margin", "{ m = 0.5 }"}}), HasSubstr("'type' is missing"));
  EXPECT_THAT(message_of([] {
                small_settings(kSmallRecipe, {{"loss.margin", "{ type = 'arcface' }"}});
              }),
              HasSubstr("the last layer is of type 'dense'; use type 'cosine' there"));
}

TEST(LossSettings, RejectBadTables) {
  const auto read = [](const std::string& key, const std::string& value) {
    return [=] { small_settings(kSmallRecipe, {{key, value}}); };
  };
  EXPECT_THAT(message_of(read("loss.label_smoothing", "1.0")), HasSubstr("'label_smoothing' is 1"));
  EXPECT_THAT(message_of(read("loss.label_smoothing", "-0.1")), HasSubstr("'label_smoothing' is -0.1"));
  EXPECT_THAT(message_of(read("loss.label_smothing", "0.1")),
              AllOf(HasSubstr("keys of [loss]"), HasSubstr("did you mean 'label_smoothing'?")));
}

constexpr const char* kShardsRecipe = R"(
[data]
format = "shards"
batch = 8
augment = { mirror = true, mean = "channel" }
[model]
name = "small"
input = [3, 24, 24]
classes = 4
[[model.layer]]
name = "fc"
type = "dense"
out = 4
[optimizer]
learning_rate = 0.1
[schedule]
epochs = 1
)";

DataSettings shards_data(const std::string& augment, const Overrides& more = {}) {
  Config recipe = Config::text(kShardsRecipe, "made.toml");
  recipe.set("data.augment", augment);
  for (const auto& [key, value] : more) recipe.set(key, value);
  return settings_from(recipe, "made").data;
}

TEST(ShardSettings, ImagesComeAsTheModelWantsThem) {
  const DataSettings data = shards_data("{ mirror = true }");
  EXPECT_EQ(data.image, Shape({24, 24, 3}));
  EXPECT_EQ(data.crop.crop, 24);
  EXPECT_EQ(data.crop.short_side, 256);
  EXPECT_EQ(data.crop.area[1], 0);
  EXPECT_EQ(data.max_corrupt, 0.001);
}

TEST(ShardSettings, AModelOfOneChannelSeesTheLumaAndOtherNumbersAreRefused) {
  const DataSettings grey = shards_data("{ mirror = true, mean = [120.0] }", {{"model.input", "[1, 24, 24]"}});
  EXPECT_EQ(grey.image, Shape({24, 24, 1}));
  EXPECT_EQ(grey.crop.channels, 1);
  EXPECT_THAT(message_of([] {
                shards_data("{ mirror = true }", {{"model.input", "[2, 24, 24]"}});
              }),
              AllOf(HasSubstr("3 channels, or 1 for a model of grey images; the model's input has 2"),
                    HasSubstr("format = \"synthetic\"")));
}

TEST(Settings, KeysWithoutTheKeyThatTheyServeAreRefused) {
  for (const auto& [key, value, wanted] :
       {std::tuple("optimizer.ema_every", "32", "'ema_every' is for averages of the weights; set 'ema'"),
        std::tuple("optimizer.ema_ramp", "3", "'ema_ramp' changes the decay of the averages, and 'ema' is 0"),
        std::tuple("parallel.average_from", "2", "set 'average_every'"),
        std::tuple("schedule.warmup_factor", "0.1", "set 'warmup_epochs'"),
        std::tuple("data.augment", "{ pad_mode = 'reflect' }", "set 'pad', e.g. to 4")})
    EXPECT_THAT(message_of([&] { small_settings(kSmallRecipe, {{key, value}}); }), HasSubstr(wanted));
  EXPECT_THAT(message_of([] {
                small_settings(kSmallRecipe, {{"run.patience", "3"}, {"run.eval_every_epochs", "0"}});
              }),
              HasSubstr("'patience' counts evaluations, and there is none"));
}

TEST(Settings, SyntheticImagesHaveTheChannelsOfTheModel) {
  for (const int64_t channels : {1, 2, 3, 5})
    EXPECT_EQ(small_settings(kSmallRecipe, {{"model.input", concat("[", channels, ", 12, 12]")}}).data.image[2],
              channels);
  EXPECT_THAT(message_of([] {
                small_settings(kSmallRecipe, {{"model.input", "[2, 12, 12]"},
                                              {"data.augment", "{ crop = 12, jitter = { contrast = 0.4 } }"}});
              }),
              HasSubstr("'jitter' is for images of 1 or 3 channels, not of 2"));
}

TEST(ShardSettings, EveryKeyIsRead) {
  const DataSettings data = shards_data(
      "{ crop = 24, short_side = 30, area = [0.08, 1.0], aspect = [0.5, 2.0], mirror = true, pca = 0.1, mean = "
      "'channel', std = [1.0, 2.0, 3.0] }",
      {{"data.max_corrupt", "0.25"}});
  EXPECT_EQ(data.crop, (CropSettings{.crop = 24, .short_side = 30, .area = {0.08, 1.0}, .aspect = {0.5, 2.0}}));
  EXPECT_EQ(data.augment.pca, 0.1);
  EXPECT_TRUE(data.augment.needs_statistics());
  EXPECT_EQ(data.max_corrupt, 0.25);
}

TEST(ShardSettings, RejectWhatDoesNotFit) {
  const auto read = [](const std::string& augment) { return [=] { shards_data(augment); }; };
  EXPECT_THAT(message_of(read("{ mean = 'pixel' }")), HasSubstr("the images of shards differ in size"));
  EXPECT_THAT(message_of(read("{ pad = 4 }")), HasSubstr("'pad' is not for shards"));
  EXPECT_THAT(message_of(read("{ short_side = 20 }")), HasSubstr("'crop' is 24, wanted at most 20"));
  EXPECT_THAT(message_of(read("{ crop = 20 }")), HasSubstr("set augment.crop"));
  EXPECT_THAT(message_of(read("{ area = [0.5, 0.1] }")), HasSubstr("'area' wants two numbers"));
  EXPECT_THAT(message_of(read("{ area = [0.0, 1.0] }")), HasSubstr("'area' wants two numbers"));
  EXPECT_THAT(message_of(read("{ aspect = [1.0, 2.0] }")), HasSubstr("give 'area' too"));
  EXPECT_THAT(message_of(read("{ pca = 0.1, color = 0.1 }")), HasSubstr("give one of them"));
  EXPECT_THAT(message_of(read("{ areas = [0.1, 1.0] }")), HasSubstr("did you mean 'area'?"));
}

TEST(ShardSettings, AreNotForOtherFormats) {
  EXPECT_THAT(message_of([] {
                small_settings(kSmallRecipe, {{"data.augment", "{ pca = 0.1 }"}});
              }),
              HasSubstr("'pca' is for shards"));
  EXPECT_THAT(message_of([] {
                small_settings(kSmallRecipe, {{"data.max_corrupt", "0.1"}});
              }),
              HasSubstr("no key 'max_corrupt'"));
}

// Four workers in two groups of two: under owt-b a round holds one worker's rows in each of the groups.
TEST(Settings, TheRateOfDenseLayersGrowsWithTheWorkersWhoseRowsAnUpdateSees) {
  const Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "4"},
                                                          {"parallel.model_ranks", "2"},
                                                          {"parallel.strategy", "owt-b"},
                                                          {"parallel.dense_update", "round"},
                                                          {"parallel.scale_lr", "linear"}});
  const Plan plan = make_plan(settings.model, settings.plan_request());
  EXPECT_EQ(settings.front_rate_scale(plan), 4);
  EXPECT_EQ(settings.back_rate_scale(plan), 2);
}

const std::string kTwoClasses = R"(
name = "two"
input = [3, 8, 8]
classes = 2
layer = [{ name = "fc", type = "dense", out = 2 }]
)";
const std::string kNamesAModel = R"(
model = "two.toml"
data = { format = "synthetic", batch = 4 }
optimizer = { learning_rate = 0.1 }
schedule = { epochs = 1 }
)";

TEST(Settings, ARecipesBatchCanBeReplacedByOnePerRank) {
  const Overrides per_rank{{"data.batch_per_rank", "6"}, {"parallel.workers", "3"}};
  EXPECT_THAT(message_of([&] { small_settings(kSmallRecipe, per_rank); }), HasSubstr("--set data.batch= "));
  Overrides instead = per_rank;
  instead.emplace_back("data.batch", "");
  EXPECT_EQ(small_settings(kSmallRecipe, instead).step_rows(), 18);
}

TEST(Settings, AnotherModelFileCanBeNamed) {
  const TempFolder folder;
  const std::string recipe = folder.file("recipe.toml");
  write_bytes(recipe, kNamesAModel);
  write_bytes(folder.file("two.toml"), kTwoClasses);
  std::string other = kTwoClasses;
  other.replace(other.find("two"), 3, "other");
  write_bytes(folder.file("other.toml"), other);
  EXPECT_EQ(read_settings(recipe).model.name, "two");
  // Other overrides of the model act on the file that is named, whatever their order.
  const Settings changed = read_settings(recipe, {{"model.input", "[3, 9, 9]"}, {"model", "other.toml"}});
  EXPECT_EQ(changed.model.name, "other");
  EXPECT_EQ(changed.model.input, (Shape{9, 9, 3}));
  EXPECT_THAT(message_of([&] {
                read_settings(recipe, {{"model", "third.toml"}});
              }),
              AllOf(HasSubstr("--set model=third.toml"), HasSubstr("no model file")));
  EXPECT_THAT(message_of([&] { read_settings(recipe, {{"model", ""}}); }), HasSubstr("names no file"));
  EXPECT_THAT(message_of([&] {
                read_settings(folder.file("other.toml"), {{"model", "third.toml"}});
              }),
              HasSubstr("is a model file itself"));
}

Overrides shares_of(const char* workers, const char* strategy, const char* shares, const char* model_ranks = "0") {
  return {{"parallel.workers", workers},
          {"parallel.strategy", strategy},
          {"parallel.model_ranks", model_ranks},
          {"parallel.shares", shares}};
}

constexpr const char* kNormRecipe = R"(
[data]
format = "synthetic"
side = 12
batch = 96
[model]
name = "small"
input = [3, 12, 12]
classes = 4
[[model.layer]]
name = "norm"
type = "batch_norm"
rows = 16
[[model.layer]]
name = "block"
type = "residual"
body = [{ name = "norm", type = "batch_norm", rows = 32 }]
[[model.layer]]
name = "fc"
type = "dense"
out = 4
[optimizer]
learning_rate = 0.1
[schedule]
epochs = 1
)";

TEST(Settings, BatchesAreDealtInWholeGroupsOfTheRowsThatBatchNormWorksOn) {
  const auto rows = [](const std::string& workers, const Overrides& changes = {}) {
    Overrides all = changes;
    all.emplace_back("parallel.workers", workers);
    return small_settings(kNormRecipe, all).step_rows();
  };
  EXPECT_EQ(small_settings(kNormRecipe).model.row_group, 32);
  EXPECT_EQ(rows("1"), 96);
  EXPECT_EQ(rows("1", {{"data.batch", "50"}}), 50);
  EXPECT_EQ(rows("3"), 96);
  EXPECT_EQ(rows("2", {{"parallel.shares", "[1, 2]"}}), 96);
  EXPECT_EQ(rows("2", {{"parallel.strategy", "mp"}}), 96);
  EXPECT_EQ(rows("2", {{"data.batch", ""}, {"data.batch_per_rank", "64"}}), 128);
  EXPECT_EQ(rows("1", {{"data.batch", ""}, {"data.batch_per_rank", "48"}}), 48);
  EXPECT_EQ(rows("2"), 96);
  const auto dealt = [](const std::string& workers, const std::string& batch) {
    const Settings settings = small_settings(
        kNormRecipe, {{"parallel.workers", workers}, {"parallel.strategy", "dp"}, {"data.batch", batch}});
    return rows_of(settings.plan_to_run(), settings.step_rows()).text();
  };
  EXPECT_EQ(dealt("2", "96"), "64 + 32");
  EXPECT_EQ(dealt("3", "100"), "32 + 32 + 36");  // four rows belong to the group before them
  EXPECT_EQ(dealt("4", "96"), "32 + 32 + 32 + 0");
  EXPECT_THAT(message_of(([&] {
                rows("2", {{"data.batch", ""}, {"data.batch_per_rank", "48"}});
              })),
              HasSubstr("use 32 or 64, --shares, fewer workers, or smaller groups"));
}

TEST(Settings, MicroBatchesAreNotSmallerThanTheGroupsOfBatchNorm) {
  const auto plan = [](const std::string& micro_batches) {
    return small_settings(kNormRecipe, {{"parallel.workers", "2"},
                                        {"parallel.strategy", "pipeline"},
                                        {"pipeline.micro_batches", micro_batches}})
        .plan_to_run();
  };
  EXPECT_EQ(plan("0").equal_parts, 3);
  EXPECT_THAT(message_of([&] { plan("4"); }), HasSubstr("3 groups of 32 (batch_norm's 'rows'); use 3 or less"));
}

TEST(Settings, BatchNormOfTheWholeStepWantsAllOfItAtOnce) {
  const auto refuses = [](const Overrides& changes, const char* why) {
    std::string recipe = kNormRecipe;
    recipe.replace(recipe.find("rows = 16"), 9, "rows = \"step\"");
    recipe.replace(recipe.find("rows = 32"), 9, "rows = \"step\"");
    EXPECT_THAT(message_of([&] {
                  small_settings(recipe, merged({{"parallel.workers", "2"}}, changes)).plan_to_run();
                }),
                AllOf(HasSubstr("layer 'norm' normalises over all rows of the step (rows = "
                                "\"step\"), but "),
                      HasSubstr(why), HasSubstr("; use e.g. rows = 32")));
  };
  refuses({{"parallel.strategy", "pipeline"}}, "in a pipeline it sees one micro-batch at a time");
  refuses({{"data.accumulate", "2"}}, "with data.accumulate it sees one micro-batch at a time");
  refuses({{"parallel.strategy", "dp"}, {"parallel.average_every", "4"}}, "each worker trains on its own");
}

TEST(Settings, SharesAreThoseOfWorkersOrOfGroupsThatHaveTheirRowsInCommon) {
  const auto shares = [](const Overrides& changes) { return small_settings(kSmallRecipe, changes).parallel.shares; };
  EXPECT_THAT(shares(shares_of("3", "owt-c", "[2, 1, 0.5]")), ElementsAre(2, 1, 0.5));
  EXPECT_THAT(shares(shares_of("4", "mp", "[2, 1]", "2")), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(shares(shares_of("4", "mp", "[4, 3, 2, 1]", "2")), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(shares(shares_of("4", "mp", "[7]")), ElementsAre(7, 7, 7, 7));
  EXPECT_EQ(small_settings(kSmallRecipe, shares_of("5", "owt-c", "[2, 1, 1, 1, 1]")).step_rows(), 24);  // not by 5
}

TEST(Settings, WrongSharesAreRefusedInOneLine) {
  const auto refused = [](const Overrides& changes, const std::string& why) {
    EXPECT_THAT(message_of([&] { small_settings(kSmallRecipe, changes); }),
                AllOf(HasSubstr("[parallel]: 'shares' "), HasSubstr(why)));
  };
  refused(shares_of("3", "owt-c", "[2, 1]"), "has 2 numbers, wanted 3, one for each worker");
  refused(shares_of("2", "dp", "[1]"), "has 1 number, wanted 2");
  refused(shares_of("4", "owt-a", "[2, 1]", "2"), "has 2 numbers, wanted 4, one for each worker;");
  refused(shares_of("4", "mp", "[2, 1, 1]", "2"), "or 2, one for each group of 2 that share rows under mp");
  refused(shares_of("2", "dp", "[1, 0]"), "has 0, wanted positive numbers");
  refused(shares_of("2", "dp", "[1, -2]"), "has -2, wanted positive numbers");
  refused(shares_of("2", "dp", "[nan, 1]"), "has nan, wanted positive numbers");
  refused(shares_of("2", "dp", "[inf, 1]"), "has inf, wanted positive numbers");
  refused(shares_of("2", "dp", "quick"), "is 'quick', wanted one of equal, measured");
}

TEST(Settings, FewerWorkersHaveTheSameStepsAndRates) {
  const Settings all = small_settings(kSmallRecipe, {{"parallel.workers", "6"},
                                                     {"parallel.strategy", "ps"},
                                                     {"ps.servers", "2"},
                                                     {"data.batch", "28"},
                                                     {"parallel.scale_lr", "linear"}});
  const double rate = all.optimizer.learning_rate * all.front_rate_scale(all.plan_to_run());
  Settings left = all;
  for (const char* rows : {"10 + 9 + 9 + 0 + 0", "14 + 14 + 0 + 0", "28 + 0 + 0"}) {
    left = left.without_workers(1);
    const Plan plan = left.plan_to_run();
    EXPECT_EQ(left.step_rows(), 28);
    EXPECT_EQ(rows_of(plan, 28).text(), rows);
    EXPECT_NEAR(left.optimizer.learning_rate * left.front_rate_scale(plan), rate, 1e-12);
  }
  EXPECT_EQ(rows_of(all.without_workers(3).plan_to_run(), 28).text(), "28 + 0 + 0");
}

TEST(Settings, RowsThatEachWorkerHadAreDealtToFewerOfThem) {
  const Settings left = small_settings(kSmallRecipe, {{"parallel.workers", "4"},
                                                      {"parallel.strategy", "ps"},
                                                      {"ps.servers", "1"},
                                                      {"data.batch", ""},
                                                      {"data.batch_per_rank", "7"}})
                            .without_workers(1);
  EXPECT_EQ(left.step_rows(), 21);
  EXPECT_EQ(rows_of(left.plan_to_run(), 21).text(), "11 + 10 + 0");
}

TEST(Settings, TheRateGrowsByTheRule) {
  const auto scales = [](const char* rule) {
    const Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "4"},
                                                            {"parallel.strategy", "owt-c"},
                                                            {"parallel.dense_update", "round"},
                                                            {"parallel.scale_lr", rule}});
    const Plan plan = make_plan(settings.model, settings.plan_request());
    return std::pair(settings.front_rate_scale(plan), settings.back_rate_scale(plan));
  };
  EXPECT_EQ(scales("none"), std::pair(1.0, 1.0));
  EXPECT_EQ(scales("linear"), std::pair(4.0, 1.0));
  EXPECT_EQ(scales("sqrt"), std::pair(2.0, 1.0));
}

}  // namespace
}  // namespace owt::settings_test
