#include "src/commands/average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "src/files/safetensors.h"
#include "src/system/log.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::average_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AverageTest : public ::testing::Test, protected WholeRuns {
 protected:
  // kSmallRecipe with a batch norm and five steps an epoch; every checkpoint is kept unless `changes` says otherwise.
  TrainOutcome run_normed(const std::string& out, const Overrides& changes, const std::string& resume = "") {
    std::string recipe = kSmallRecipe;
    const std::string norm = "type = \"lrn\"\nsize = 3\nalpha = 0.01";
    recipe.replace(recipe.find(norm), norm.size(), "type = \"batch_norm\"");
    TrainOptions options;
    options.out = path(out);
    options.resume = resume;
    options.threads = 1;
    return train(small_settings(recipe, merged({{"schedule.epochs", "4"}, {"run.keep_checkpoints", "100"}}, changes)),
                 options);
  }
  std::string file() const { return path("mean.safetensors"); }
  std::string weights_at(const std::string& run, int64_t step) const {
    return format("{}/checkpoints/step-{:08}/weights.safetensors", path(run), step);
  }
};

TEST_F(AverageTest, IsTheMeanOfEveryTensorOfTheLastCheckpoints) {
  run_normed("a", {});
  const AverageOutcome outcome = average_checkpoints({path("a"), 3, file()});
  EXPECT_THAT(outcome.steps, ElementsAre(10, 15, 20));
  SafetensorsReader mean(file()), first(weights_at("a", 10)), second(weights_at("a", 15)), third(weights_at("a", 20));
  EXPECT_EQ(mean.metadata(), first.metadata());
  ASSERT_EQ(mean.entries().size(), first.entries().size());
  ASSERT_NE(mean.find("norm1.running_var"), nullptr);
  int64_t values = 0, moved = 0;
  for (size_t t = 0; t < mean.entries().size(); ++t) {
    const std::string& name = mean.entries()[t].name;
    EXPECT_EQ(name, first.entries()[t].name);
    const Tensor m = mean.read(name), a = first.read(name), b = second.read(name), c = third.read(name);
    ASSERT_EQ(m.shape(), a.shape());
    values += m.elements();
    for (int64_t i = 0; i < m.elements(); ++i) {
      const double sum = static_cast<double>(a.data()[i]) + b.data()[i] + c.data()[i];
      ASSERT_EQ(m.data()[i], static_cast<float>(sum / 3)) << name << " " << i;
      moved += m.data()[i] != c.data()[i];
    }
  }
  EXPECT_EQ(outcome.values, values);
  EXPECT_GT(moved, values / 2);
  EXPECT_FALSE(fs::exists(file() + ".tmp"));
}

TEST_F(AverageTest, OfOneCheckpointIsThatCheckpoint) {
  run_normed("a", {});
  average_checkpoints({path("a"), 1, file()});
  EXPECT_EQ(read_file(file()), read_file(weights_at("a", 20)));
}

TEST_F(AverageTest, IsTakenByEvaluationAndAsAStartOnAnyRanks) {
  run_normed("a", {});
  average_checkpoints({path("a"), 4, file()});
  const std::string recipe = path("a") + "/config.toml";
  const Evaluation one = evaluate_file(read_settings(recipe), {file(), "", 1, {}, path("a")});
  EXPECT_EQ(one.images, 50);
  const Evaluation three =
      evaluate_file(read_settings(recipe, {{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}}),
                    {file(), "", 1, {}, path("a")});
  EXPECT_EQ(three.top1, one.top1);
  EXPECT_NEAR(three.loss, one.loss, 1e-5);
  TrainOptions options;
  options.out = path("b");
  options.threads = 1;
  options.start.file = file();
  const Overrides still{{"schedule.max_steps", "1"},
                        {"optimizer.learning_rate", "1e-30"},
                        {"optimizer.decay", "0"},
                        {"schedule.epochs", "1"}};
  EXPECT_NEAR(train(read_settings(recipe, still), options).evaluation.loss, one.loss, 0.2);  // norm1's averages move
}

TEST_F(AverageTest, TooFewCheckpointsNameTheKeyThatKeepsThem) {
  // With a rate that changes nothing, the first evaluation is the best, and its checkpoint is kept.
  run("a", {{"schedule.epochs", "4"}, {"run.keep_checkpoints", "2"}, {"optimizer.learning_rate", "1e-30"}});
  EXPECT_THAT(message_of([&] {
                average_checkpoints({path("a"), 5, file()});
              }),
              AllOf(HasSubstr("a has 3 checkpoints, --last wants 5; ask for --last 3 at most, or train with "
                              "run.keep_checkpoints = 5 or more (it was 2)")));
  EXPECT_THAT(average_checkpoints({path("a"), 3, file()}).steps, ElementsAre(5, 15, 20));
  EXPECT_THAT(average_checkpoints({path("a"), 0, path("all")}).steps, ElementsAre(15, 20));
  fs::remove_all(path("a") + "/checkpoints");
  EXPECT_THAT(message_of([&] {
                average_checkpoints({path("a"), 2, path("other")});
              }),
              HasSubstr("a has 0 checkpoints, --last wants 2; train for longer, or with more checkpoints"));
  EXPECT_THAT(message_of([&] {
                average_checkpoints({path("a"), 0, path("other")});
              }),
              HasSubstr("a has 0 checkpoints, a mean wants 2; train for longer, or with more checkpoints"));
  EXPECT_THAT(message_of([&] {
                average_checkpoints({folder_.path(), 2, path("other")});
              }),
              HasSubstr("is no run folder"));
  EXPECT_THAT(message_of([&] {
                average_checkpoints({path("nowhere"), 2, path("nowhere/x")});
              }),
              HasSubstr("nowhere is no run folder"));
  EXPECT_FALSE(fs::exists(path("other")));
}

// Checkpoints of later steps than the one from which the run resumes.
TEST_F(AverageTest, CheckpointsOfABranchThatWasLeftDoNotCount) {
  run_normed("a", {});
  write_bytes(path("a") + "/checkpoints/latest", "step-00000010\n");
  EXPECT_THAT(average_checkpoints({path("a"), 2, file()}).steps, ElementsAre(5, 10));
}

// The state after a crash while a checkpoint replaces one of the same step.
TEST_F(AverageTest, OfACheckpointAndTheOneThatItReplacedTheNewerCounts) {
  run_normed("a", {});
  const std::string folder = path("a") + "/checkpoints/step-00000020";
  fs::copy(path("a") + "/checkpoints/step-00000015", folder + ".old", fs::copy_options::recursive);
  EXPECT_THAT(average_checkpoints({path("a"), 2, file()}).steps, ElementsAre(15, 20));
  fs::remove_all(folder + ".old");
  fs::rename(folder, folder + ".old");
  EXPECT_THAT(average_checkpoints({path("a"), 1, file(), true}).steps, ElementsAre(20));
}

TEST_F(AverageTest, WritesOverNothingUnasked) {
  run_normed("a", {});
  write_bytes(file(), "kept");
  EXPECT_THAT(message_of([&] {
                average_checkpoints({path("a"), 2, file()});
              }),
              HasSubstr("mean.safetensors exists already; add --force"));
  EXPECT_EQ(read_file(file()), "kept");
  average_checkpoints({path("a"), 2, file(), true});
  EXPECT_NO_THROW(SafetensorsReader{file()});
  const std::string weights = read_file(weights_at("a", 20));
  EXPECT_THAT(message_of([&] {
                average_checkpoints({path("a"), 2, weights_at("a", 20), true});
              }),
              HasSubstr("is in a checkpoint"));
  EXPECT_EQ(read_file(weights_at("a", 20)), weights);
  EXPECT_THAT(message_of([&] { average_checkpoints({path("a"), 2, path("none/x")}); }), HasSubstr("none/x"));
}

TEST_F(AverageTest, ADamagedCheckpointAndAnotherModelAreErrorsThatLeaveNothing) {
  run_normed("a", {});
  run("b", kEveryStepLogged);
  const std::string last = path("a") + "/checkpoints/step-00000020";
  fs::remove_all(last);
  fs::copy(path("b") + "/checkpoints/step-00000020", last, fs::copy_options::recursive);
  EXPECT_THAT(message_of([&] {
                average_checkpoints({path("a"), 2, file()});
              }),
              AllOf(HasSubstr("has no tensor 'norm1."), HasSubstr("the model has changed during the run")));
  std::string bytes = read_file(weights_at("a", 20));
  bytes[bytes.size() - 5] ^= 1;
  write_bytes(weights_at("a", 20), bytes);
  EXPECT_THAT(message_of([&] { average_checkpoints({path("a"), 2, file()}); }), HasSubstr("is damaged"));
  EXPECT_FALSE(fs::exists(file()) || fs::exists(file() + ".tmp"));
}

}  // namespace
}  // namespace owt::average_test
