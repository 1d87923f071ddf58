// The data facts of a run are compared with the data in use.
#include "src/train/data_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/shard_statistics.h"
#include "src/files/safetensors.h"
#include "src/system/check.h"
#include "src/train/job.h"
#include "tests/support/message_of.h"
#include "tests/support/shards.h"
#include "tests/support/whole_runs.h"

namespace owt::data_identity_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Lines = std::vector<std::string>;

// The small recipe for shards of 40 x 52 images, with a model of `classes` classes.
Settings shards_settings(int classes, const Overrides& changes = {}) {
  std::string recipe = kSmallRecipe;
  const size_t begin = recipe.find("format = \"synthetic\""), end = recipe.find("[optimizer]");
  recipe.replace(begin, end - begin,
                 "format = \"shards\"\nbatch = 6\naugment = { crop = 12, short_side = 16, mean = \"channel\" }\n");
  const std::string count = std::to_string(classes);
  return small_settings(
      recipe, merged({{"model.classes", count}, {"model.layer.13.out", count}, {"schedule.epochs", "1"}}, changes));
}

DataClasses data_of(const Lines& lines) { return {lines, static_cast<int>(lines.size()), "the data in there"}; }
DataClasses unnamed(int count) { return {{}, count, "the data in there"}; }
RunFacts run_of(const Lines& lines) { return {"runs/a", {}, lines}; }

const Lines kPets = {"bird", "cat", "dog"};

LabelMap matched(const Lines& run, const DataClasses& data, const Overrides& changes = {}, int outputs = 3) {
  return match_classes(shards_settings(outputs, changes), run_of(run), data, Use::kEvaluation);
}

TEST(MatchClasses, MatchesTheSameNamesInAnyOrderAndSomeOfThem) {
  EXPECT_THAT(matched(kPets, data_of(kPets)).outputs, ElementsAre(0, 1, 2));
  EXPECT_THAT(matched(kPets, data_of(kPets)).said, IsEmpty());
  EXPECT_THAT(matched(kPets, data_of({"dog", "bird", "cat"})).outputs, ElementsAre(2, 0, 1));
  const LabelMap some = matched(kPets, data_of({"cat", "dog"}));
  EXPECT_THAT(some.outputs, ElementsAre(1, 2));
  EXPECT_EQ(some.output_lines, kPets);
  EXPECT_THAT(some.said, HasSubstr("2 of the 3 classes of runs/a"));
}

TEST(MatchClasses, MatchesKeysWhereTheWordsAfterThemAreMissing) {
  EXPECT_THAT(matched({"n1\ttench", "n2\tgoldfish", "n3\tshark"}, data_of({"n3", "n1"})).outputs, ElementsAre(2, 0));
  EXPECT_THAT(matched({"n1", "n2", "n3"}, data_of({"n2\tgoldfish"})).outputs, ElementsAre(1));
  EXPECT_THAT(matched({"n1 tench", "n2", "n3"}, data_of({"n1\ttench"})).outputs, ElementsAre(0));  // an older run's
}

TEST(MatchClasses, AClassThatTheRunDoesNotKnowIsNamed) {
  EXPECT_THAT(message_of([] {
                matched(kPets, data_of({"cat", "emu"}));
              }),
              AllOf(HasSubstr("the class 'emu', which runs/a does not know ('bird', 'cat', 'dog')"),
                    HasSubstr("--classes number"), Not(HasSubstr("--classes data"))));
  EXPECT_THAT(message_of([] {
                matched(kPets, data_of({"ant", "bee", "cow"}));
              }),
              HasSubstr("the classes 'ant', 'bee', 'cow', which runs/a does not know"));
  EXPECT_THAT(message_of([] {
                match_classes(shards_settings(3), run_of(kPets), data_of({"ant", "bee", "cow"}), Use::kTraining);
              }),
              HasSubstr("add --classes data"));
  EXPECT_THAT(message_of([] { matched({"a", "a", "b"}, data_of({"a"})); }), HasSubstr("the class 'a'"));
  EXPECT_THAT(matched({"a", "a", "b"}, data_of({"a", "a", "b"})).outputs, ElementsAre(0, 1, 2));
}

TEST(MatchClasses, ByNumberWhereThatIsSaid) {
  const Overrides number{{"data.classes", "number"}};
  const LabelMap map = matched(kPets, data_of({"ant", "bee", "cow"}), number);
  EXPECT_THAT(map.outputs, ElementsAre(0, 1, 2));
  EXPECT_EQ(map.output_lines, kPets);
  EXPECT_THAT(matched(kPets, unnamed(2), number).outputs, ElementsAre(0, 1));
  EXPECT_THAT(message_of([&] { matched(kPets, unnamed(4), number); }), HasSubstr("has 4 classes"));
}

TEST(MatchClasses, WithoutNamesCountsAreCompared) {
  for (const DataClasses& three : {unnamed(3), data_of({"0", "1", "2"})}) {
    EXPECT_THAT(matched(kPets, three).outputs, ElementsAre(0, 1, 2));
    EXPECT_THAT(matched({}, three).outputs, ElementsAre(0, 1, 2));
    EXPECT_THAT(matched({"0", "1", "2"}, three).outputs, ElementsAre(0, 1, 2));
  }
  EXPECT_THAT(matched({}, data_of(kPets)).output_lines, kPets);
  for (const int other : {2, 4})
    for (const Lines& run : {Lines{}, kPets, Lines{"0", "1", "2"}}) {
      EXPECT_THAT(message_of([&] { matched(run, unnamed(other)); }),
                  HasSubstr(concat("has ", other, " classes, but model 'small' has 3")));
      EXPECT_THAT(message_of([&] {
                    match_classes(shards_settings(3), run_of(run), data_of(Lines(size_t(other), "0")), Use::kTraining);
                  }),
                  HasSubstr("--classes data"));
    }
}

TEST(MatchClasses, DrawnImagesMayHaveFewerClassesThanTheModel) {
  Settings settings = small_settings(kSmallRecipe);
  settings.model.classes = 1000;
  EXPECT_NO_THROW(match_classes(settings, {}, unnamed(10), Use::kTraining));
}

// Shards with these classes; image i has label i modulo their number.
class DataIdentity : public ::testing::Test, protected WholeRuns {
 protected:
  std::string shards(const std::string& name, const Lines& classes, int64_t images = 12) const {
    MadeShards made;
    made.images = images;
    made.classes = static_cast<int>(classes.size());
    std::string text;
    for (const std::string& line : classes) text += line + "\n";
    for (const char* split : {"train", "val"}) write_split(path(name), split, made);
    write_bytes(path(name) + "/classes.txt", text);
    write_mean(path(name), 100);
    return path(name);
  }
  static void write_mean(const std::string& folder, double mean) {
    DatasetStatistics statistics;
    set_colours(statistics, {mean, mean, mean}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
    write_statistics(folder, statistics);
  }
  TrainOptions options(const std::string& out, const std::string& data) const {
    TrainOptions all;
    all.out = path(out);
    all.data = data;
    all.threads = 1;
    return all;
  }
  std::string log_of(const std::string& out) const { return read_file(path(out) + "/log.txt"); }
  static Lines classes_of(const std::string& folder) { return text_lines(folder + "/classes.txt"); }
};

// The new model calls its last layer by another name.
TEST_F(DataIdentity, ALastLayerThatTheFileLacksHasNoClasses) {
  std::filesystem::create_directories(path("pets"));
  write_bytes(path("pets/config.toml"), "");
  write_data_facts(path("pets"), {{}, kPets});
  SafetensorsWriter file(path("pets/w.safetensors"), {{"head.weight", {3, 2}}});
  file.write("head.weight", std::vector<float>(6));
  file.finish();
  const Settings settings = shards_settings(3);
  StartWeights start{.file = path("pets/w.safetensors")};
  EXPECT_EQ(known_of_start(settings, start).class_names, kPets);
  start.except_mismatched = true;
  EXPECT_THAT(known_of_start(settings, start).class_names, ::testing::IsEmpty());
}

TEST_F(DataIdentity, ATestFolderWithSomeOfTheClassesHasTheLabelsOfTheRun) {
  write_data_facts(path("."), {{}, kPets});
  Job job;
  job.settings = shards_settings(3, {{"data.augment", "{ crop = 12, short_side = 16 }"}});
  job.plan = job.settings.plan_to_run();
  open_data(job, shards("some", {"dog", "cat"}), Split::kTest, facts_of_run(job.settings, path(".")));
  EXPECT_EQ(job.test->label(0), 2);
  EXPECT_EQ(job.test->label(1), 1);
  EXPECT_EQ(job.test->classes(), 3);
  EXPECT_EQ(job.test->class_names(), kPets);
}

TEST_F(DataIdentity, ResumingOnOtherImagesIsRefusedAndForgetsTheBestWhereItIsWanted) {
  run("run", {{"schedule.epochs", "1"}});
  const RunState before = load_checkpoint_state(*newest_checkpoint(path("run")));
  EXPECT_NE(before.data, 0u);
  EXPECT_GE(before.best_step, 0);
  const Overrides other{{"schedule.epochs", "2"}, {"data.seed", "9"}};
  EXPECT_THAT(message_of([&] { run("run", other, "auto"); }),
              AllOf(HasSubstr("are others"), HasSubstr("--other-data"), HasSubstr("--weights")));
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("run"))), before);
  TrainOptions all = options("run", "");
  all.resume = "auto";
  all.other_data = true;
  ::testing::internal::CaptureStderr();
  train(small_settings(kSmallRecipe, other), all);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr(concat("(step ", before.best_step, ")")), HasSubstr("is reset")));
  const RunState after = load_checkpoint_state(*newest_checkpoint(path("run")));
  EXPECT_NE(after.data, before.data);
  EXPECT_GT(after.best_step, before.best_step);
}

TEST_F(DataIdentity, OtherImagesRestartTheCountOfEvaluations) {
  RunState state;
  state.images_in_epoch = 24;
  state.best_top1 = 0.5;
  state.best_step = 5;
  state.since_best = 2;
  state.plateau = {true, 0.5, 1, 3};
  begin_with_other_data(state);
  EXPECT_EQ(state.images_in_epoch, 0);
  EXPECT_EQ(state.best_top1, 0);
  EXPECT_EQ(state.best_step, -1);
  EXPECT_EQ(state.since_best, 0);
  EXPECT_LT(state.plateau.best, 0);
  EXPECT_EQ(state.plateau.waited, 0);
  EXPECT_EQ(state.plateau.falls, 3);
}

TEST_F(DataIdentity, ResumingOnOtherClassesNamesThem) {
  train(shards_settings(3), options("run", shards("pets", kPets)));
  TrainOptions all = options("run", shards("others", {"bird", "cat", "emu"}));
  all.resume = "auto";
  all.other_data = true;
  EXPECT_THAT(message_of([&] {
                train(shards_settings(3, {{"schedule.epochs", "2"}}), all);
              }),
              AllOf(HasSubstr("the class 'emu'"), HasSubstr("start a new run with --weights")));
  EXPECT_EQ(classes_of(path("run")), kPets);
}

TEST_F(DataIdentity, OlderCheckpointsAreHeldAgainstTheNumberOfImages) {
  const Settings settings = small_settings(kSmallRecipe);
  const auto images = open_split(settings, "", Split::kTrain);
  RunState state;
  state.images = 100;
  EXPECT_TRUE(same_training_images(state, *images));
  state.data = images->checksum();
  EXPECT_TRUE(same_training_images(state, *images));
  ++state.data;
  EXPECT_FALSE(same_training_images(state, *images));
  state.data = 0;
  state.images = 99;
  EXPECT_FALSE(same_training_images(state, *images));
}

TEST_F(DataIdentity, TheModelGetsTheClassesOfTheData) {
  const std::string data = shards("pets", kPets);
  EXPECT_THAT(message_of([&] { train(shards_settings(10), options("refused", data)); }),
              AllOf(HasSubstr("has 3 classes, but model 'small' has 10"), HasSubstr("--classes data")));
  train(shards_settings(10, {{"data.classes", "data"}}), options("run", data));
  const Settings made = read_settings(path("run") + "/config.toml");
  EXPECT_EQ(made.model.classes, 3);
  EXPECT_EQ(made.data.classes, "name");
  EXPECT_EQ(classes_of(path("run")), kPets);

  // With other classes the last layer is initialized again, with the same classes it is not.
  for (const auto& [classes, name, anew] : {std::tuple(Lines{"ant", "bee", "cow"}, "insects", true),
                                            {Lines{"cat", "dog"}, "some", true},
                                            {kPets, "pets2", false}}) {
    TrainOptions all = options(concat("from_", name), shards(name, classes));
    all.start.file = weights_of("run");
    train(shards_settings(10, {{"data.classes", "data"}}), all);
    EXPECT_THAT(log_of(concat("from_", name)),
                HasSubstr(anew ? "initialised randomly: fc3" : "none initialised randomly"))
        << name;
    EXPECT_EQ(classes_of(path(concat("from_", name))), classes);
  }
}

TEST_F(DataIdentity, TrainingFromWeightsOfARunGoesByItsClasses) {
  train(shards_settings(3), options("run", shards("pets", kPets)));
  const auto from = [&](const std::string& out, const Lines& classes, const Overrides& changes = {}) {
    TrainOptions all = options(out, shards(concat(out, "_data"), classes));
    all.start.file = weights_of("run");
    train(shards_settings(3, changes), all);
  };
  from("turned", {"dog", "cat", "bird"});
  EXPECT_EQ(classes_of(path("turned")), kPets);
  EXPECT_THAT(message_of([&] {
                from("others", {"ant", "bee", "cow"});
              }),
              AllOf(HasSubstr("'ant', 'bee', 'cow'"), HasSubstr("--classes data")));
  EXPECT_FALSE(std::filesystem::exists(path("others")));
  from("numbers", {"ant", "bee", "cow"}, {{"data.classes", "number"}});
  EXPECT_EQ(classes_of(path("numbers")), kPets);
  TrainOptions on = options("numbers", path("numbers_data"));
  on.resume = "auto";
  train(read_settings(path("numbers") + "/config.toml", {{"schedule.epochs", "2"}}), on);  // with its own data
}

TEST_F(DataIdentity, MeansAreThoseOfTheRunOfTheWeights) {
  const std::string pets = shards("pets", kPets), bright = shards("bright", kPets);
  write_mean(bright, 150);
  train(shards_settings(3), options("run", pets));
  TrainOptions all = options("tuned", bright);
  all.start.file = weights_of("run");
  ::testing::internal::CaptureStderr();
  train(shards_settings(3), all);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("using the means and deviations of"));
  EXPECT_EQ(read_file(path("tuned") + "/statistics.json"), read_file(path("run") + "/statistics.json"));

  const Settings settings = shards_settings(3);
  const std::string run = run_of_weights(weights_of("run"));
  EXPECT_TRUE(std::filesystem::equivalent(run, path("run")));
  EXPECT_EQ(find_data_facts(settings, run, bright).statistics.channel_mean.front(), 100);
  EXPECT_EQ(find_data_facts(settings, "", bright).statistics.channel_mean.front(), 150);
  EXPECT_THAT(run_of_weights(folder_.file("loose.safetensors")), IsEmpty());
}

}  // namespace
}  // namespace owt::data_identity_test
