// Runs that resume from a checkpoint, through train().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "layers/conv_cpu/conv_algorithm.h"
#include "src/comm/signals.h"
#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::trainer_resume_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ResumedRun : public ::testing::Test, protected WholeRuns {};

TEST_F(ResumedRun, ARunStoppedAfterAnyStepResumesBitForBit) {
  for (const Overrides& parallel :
       {Overrides{}, Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}},
        Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "dp-zero"}},
        Overrides{{"parallel.workers", "3"}, {"parallel.shares", "[1, 4, 2]"}, {"parallel.strategy", "owt-b"}},
        Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "dp-star"}},
        Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "ps"}},
        Overrides{
            {"parallel.workers", "4"}, {"parallel.strategy", "ps"}, {"ps.filters", "['fix8']"}, {"ps.servers", "1"}},
        Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "owt-c"}, {"data.accumulate", "3"}},
        Overrides{{"parallel.workers", "4"}, {"parallel.strategy", "owt-d"}, {"parallel.model_ranks", "2"}}}) {
    const Overrides changes = merged(merged(kEveryStepLogged, {{"schedule.epochs", "2"}}), parallel);
    const std::string tag = parallel.empty() ? "" : parallel.back().second;
    run("whole" + tag, changes);
    for (const std::string stop : {"4", "5", "1", "8"}) {  // an epoch has five steps
      if (tag != "" && tag != "owt-c" && stop != "4" && stop != "5") continue;
      const std::string out = "part" + tag + stop;
      run(out, merged(changes, {{"schedule.max_steps", stop}}));
      ConvChoices::process().clear();  // state of a new process
      run(out, changes, "auto");
      EXPECT_EQ(read_file(weights_of(out)), read_file(weights_of("whole" + tag))) << "stopped after step " << stop;
      EXPECT_EQ(read_file(optimizer_of(out)), read_file(optimizer_of("whole" + tag))) << "stopped after step " << stop;
      EXPECT_EQ(losses(path(out)), losses(path("whole" + tag)));
    }
  }
}

TEST_F(ResumedRun, AutoResumesTheCheckpointAlsoWhereTheCommandBeganWithOtherWeights) {
  run("first", {{"schedule.max_steps", "3"}});
  const std::string first = weights_of("first");
  run("whole", kEveryStepLogged, "auto", first);
  run("part", merged(kEveryStepLogged, {{"schedule.max_steps", "5"}}), "auto", first);
  run("part", kEveryStepLogged, "auto", first);
  EXPECT_EQ(read_file(weights_of("part")), read_file(weights_of("whole")));
  EXPECT_EQ(losses(path("part")), losses(path("whole")));
  EXPECT_THAT(message_of([&] { run("part", kEveryStepLogged, path("part"), first); }),
              HasSubstr("--weights and --resume do not go together"));
}

// What an optimizer does depends on how many updates there were, under "round" of each part of the network.
TEST_F(ResumedRun, EveryOptimizerResumesBitForBit) {
  const Overrides rounds{{"parallel.workers", "3"}, {"parallel.strategy", "owt-b"}, {"parallel.dense_update", "round"}};
  const Overrides shares{{"parallel.workers", "3"}, {"parallel.strategy", "dp-zero"}};
  const Overrides stages{
      {"parallel.workers", "2"}, {"parallel.strategy", "pipeline"}, {"pipeline.schedule", "vanilla"}};
  for (const auto& [optimizer, parallel] : {std::pair("adamw", rounds),
                                            {"adamw", shares},
                                            {"adamw", stages},
                                            {"rmsprop", rounds},
                                            {"adagrad", shares},
                                            {"proximal", shares},
                                            {"rmsprop_warmup", rounds}}) {
    const Overrides changes = merged(kEveryStepLogged, merged(with_optimizer(optimizer), parallel));
    const std::string tag = concat(optimizer, parallel[1].second);
    SCOPED_TRACE(tag);
    run("whole" + tag, changes);
    run("part" + tag, merged(changes, {{"schedule.max_steps", "7"}}));
    run("part" + tag, changes, "auto");
    EXPECT_EQ(read_file(weights_of("part" + tag)), read_file(weights_of("whole" + tag)));
    EXPECT_EQ(read_file(optimizer_of("part" + tag)), read_file(optimizer_of("whole" + tag)));
    EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("part" + tag))).updates,
              load_checkpoint_state(*newest_checkpoint(path("whole" + tag))).updates);
  }
}

// The rate has fallen before the stop, and falls again after it.
TEST_F(ResumedRun, APlateauResumesWhereItWas) {
  const Overrides changes = merged(kEveryStepLogged, {{"schedule.type", "plateau"},
                                                      {"schedule.factor", "0.5"},
                                                      {"schedule.patience", "0"},
                                                      {"optimizer.learning_rate", "1e-7"},
                                                      {"parallel.workers", "2"},
                                                      {"schedule.epochs", "6"}});
  run("whole", changes);
  run("part", merged(changes, {{"schedule.max_steps", "18"}}));
  const int64_t before = load_checkpoint_state(*newest_checkpoint(path("part"))).plateau.falls;
  run("part", changes, "auto");
  const Plateau after = load_checkpoint_state(*newest_checkpoint(path("part"))).plateau;
  EXPECT_EQ(after, load_checkpoint_state(*newest_checkpoint(path("whole"))).plateau);
  EXPECT_GT(before, 0);
  EXPECT_GT(after.falls, before);
  EXPECT_EQ(read_file(weights_of("part")), read_file(weights_of("whole")));
  EXPECT_THAT(read_file(path("part") + "/log.txt"), HasSubstr("learning rate multiplied by 0.5"));
}

TEST_F(ResumedRun, WithTwoStatesResumesWithOtherWorkers) {
  const Overrides one = merged(kEveryStepLogged, with_optimizer("adamw"));
  const Overrides many = merged(one, {{"parallel.workers", "3"}, {"parallel.strategy", "dp-zero"}});
  run("whole", one);
  run("part", merged(one, {{"schedule.max_steps", "7"}}));
  run("part", merged(many, {{"schedule.max_steps", "13"}}), "auto");
  run("part", merged(one, {{"parallel.workers", "2"}, {"parallel.strategy", "owt-c"}}), "auto");
  for (const auto& [step, loss] : losses(path("whole"))) EXPECT_NEAR(losses(path("part")).at(step), loss, 1e-4 * loss);
}

TEST_F(ResumedRun, ACheckpointOfAnotherOptimizerIsRefused) {
  run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "3"}}));
  for (const char* optimizer : {"adamw", "rmsprop"})
    EXPECT_THAT(message_of([&] { run("a", merged(kEveryStepLogged, with_optimizer(optimizer)), "auto"); }),
                AllOf(HasSubstr("has the state of optimizer sgd, the recipe wants " + std::string(optimizer)),
                      HasSubstr("step-00000003/weights.safetensors")));
  const Overrides corrected{{"optimizer.momentum_correction", "true"}};
  EXPECT_THAT(message_of([&] { run("a", merged(kEveryStepLogged, corrected), "auto"); }),
              HasSubstr("wants sgd with momentum_correction"));
}

// The checkpoint format of an older version.
TEST_F(ResumedRun, ACheckpointThatNamesNoOptimizerIsOfSgd) {
  run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "3"}}));
  const std::string state = read_file(*newest_checkpoint(path("a")) + "/state.json");
  auto json = nlohmann::ordered_json::parse(state);
  for (const char* key : {"optimizer", "updates", "checksum"}) json.erase(key);
  json["checksum"] = hex(checksum_of(json.dump()));
  const RunState old = RunState::from_json(json.dump(), "state.json");
  EXPECT_EQ(old.optimizer, "sgd");
  EXPECT_EQ(old.updates, RunState::UpdateCounts());
}

TEST_F(ResumedRun, AResumedRunTakesTheConvolutionAlgorithmsOfItsCheckpoint) {
  run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "3"}}));
  const std::string checkpoint = *newest_checkpoint(path("a"));
  RunState state = load_checkpoint_state(checkpoint);
  ASSERT_FALSE(state.conv_choices.empty());
  // The opposite of the measured choices, so that a new measurement could not give all of them by chance.
  for (auto& [key, choice] : state.conv_choices) choice = choice == "direct" ? "few-channels" : "direct";
  write_bytes(checkpoint + "/state.json", state.to_json());
  ConvChoices::process().clear();
  run("a", kEveryStepLogged, "auto");
  const auto used = ConvChoices::process().exported();
  EXPECT_EQ(used, state.conv_choices);
}

// Simulates a checkpoint of another version: no version has Winograd's algorithm for groups.
TEST_F(ResumedRun, ACheckpointWhoseConvolutionsUsedWinogradResumesWhereThereIsNone) {
  run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "3"}}));
  const std::string checkpoint = *newest_checkpoint(path("a"));
  RunState state = load_checkpoint_state(checkpoint);
  const std::string conv2 =
      ConvChoices::key("6x6x16 -> 6x6x16, kernel 3x3, stride 1x1, pad 1 1 1 1, groups 2, forward", 1);
  state.conv_choices[conv2] = "winograd";
  write_bytes(checkpoint + "/state.json", state.to_json());
  ConvChoices::process().clear();
  EXPECT_TRUE(run("a", kEveryStepLogged, "auto").finished);
  const auto used = ConvChoices::process().exported();
  EXPECT_EQ(used.at(conv2), "direct");
  EXPECT_THAT(read_file(path("a") + "/log.txt"), HasSubstr("1 pass(es) went by an algorithm before the checkpoint"));
}

TEST_F(ResumedRun, AnotherNumberOfRanksResumesWithTheSameResults) {
  run("whole", kEveryStepLogged);
  const auto expected = losses(path("whole"));
  for (const char* strategy : {"dp", "dp-zero", "dp-star", "ps", "owt-b", "mp"}) {
    const std::string out = std::string("part") + strategy;
    run(out, merged(kEveryStepLogged,
                    {{"schedule.max_steps", "8"}, {"parallel.workers", "4"}, {"parallel.strategy", "owt-a"}}));
    run(out, merged(kEveryStepLogged, {{"parallel.workers", "3"}, {"parallel.strategy", strategy}}), "auto");
    for (const auto& [step, loss] : losses(path(out)))
      EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << strategy << step;
  }
}

TEST_F(ResumedRun, OtherMicroBatchesResumeWithTheSameResults) {
  run("whole", kEveryStepLogged);
  const auto expected = losses(path("whole"));
  run("part", merged(kEveryStepLogged, {{"schedule.max_steps", "8"}, {"data.accumulate", "4"}}));
  run("part",
      merged(kEveryStepLogged, {{"schedule.max_steps", "13"}, {"parallel.workers", "3"}, {"data.accumulate", "2"}}),
      "auto");
  run("part", kEveryStepLogged, "auto");
  const auto found = losses(path("part"));
  ASSERT_EQ(found.size(), 20u);
  for (const auto& [step, loss] : found) EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << step;
}

TEST_F(ResumedRun, OtherSharesResumeWithTheSameResults) {
  run("whole", kEveryStepLogged);
  const auto expected = losses(path("whole"));
  const Overrides three = merged(kEveryStepLogged, {{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}});
  run("part", merged(three, {{"schedule.max_steps", "8"}, {"parallel.shares", "[3, 1, 2]"}}));
  run("part", merged(three, {{"schedule.max_steps", "13"}, {"parallel.shares", "[1, 1, 9]"}}), "auto");
  run("part", three, "auto");
  const auto found = losses(path("part"));
  ASSERT_EQ(found.size(), 20u);
  for (const auto& [step, loss] : found) EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << step;
}

// Shares like those measured on workers of different speeds, which a test does not have.
void note_measured_shares(const std::string& run, const std::vector<double>& shares) {
  const std::string checkpoint = *newest_checkpoint(run);
  RunState state = load_checkpoint_state(checkpoint);
  state.measured_shares = shares;
  write_bytes(checkpoint + "/state.json", state.to_json());
}

TEST_F(ResumedRun, MeasuredSharesAreThoseOfTheCheckpoint) {
  const Overrides three = merged(kEveryStepLogged, {{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}});
  const Overrides given = merged(three, {{"parallel.shares", "[1, 0.5, 0.25]"}});
  const Overrides measured = merged(three, {{"parallel.shares", "measured"}});
  run("whole", given);
  run("part", merged(given, {{"schedule.max_steps", "7"}}));
  note_measured_shares(path("part"), {1, 0.5, 0.25});
  run("part", measured, "auto");
  EXPECT_EQ(read_file(weights_of("part")), read_file(weights_of("whole")));
  EXPECT_EQ(read_file(optimizer_of("part")), read_file(optimizer_of("whole")));
  EXPECT_THAT(read_file(path("part") + "/log.txt"),
              AllOf(HasSubstr("shares: worker 0 1.000, worker 1 0.500, worker 2 0.250, as in the checkpoint"),
                    HasSubstr("24 images per step, 14 + 7 + 3 per worker")));
  EXPECT_THAT(load_checkpoint_state(*newest_checkpoint(path("part"))).measured_shares, ElementsAre(1, 0.5, 0.25));
}

TEST_F(ResumedRun, SharesAreMeasuredAtTheStartAndAgainForOtherWorkers) {
  run("whole", kEveryStepLogged);
  const auto expected = losses(path("whole"));
  const Overrides measured = merged(kEveryStepLogged, {{"parallel.shares", "measured"}});
  run("part", merged(measured, {{"parallel.workers", "2"}, {"schedule.max_steps", "3"}}));
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("part"))).measured_shares.size(), 2u);
  run("part", merged(measured, {{"parallel.workers", "3"}}), "auto");
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("part"))).measured_shares.size(), 3u);
  for (const auto& [step, loss] : losses(path("part"))) EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << step;
}

// The split of the layers and of the update changes from one part of the run to the next.
TEST_F(ResumedRun, SharesOfTheUpdateResumeUnderAnotherStrategyAndComeBack) {
  run("whole", kEveryStepLogged);
  const auto expected = losses(path("whole"));
  const auto until = [](const char* step, const char* workers, const char* strategy) {
    return merged(kEveryStepLogged, {{"schedule.max_steps", step},
                                     {"parallel.workers", workers},
                                     {"parallel.strategy", strategy},
                                     {"parallel.bucket_mb", "0.001"}});
  };
  run("part", until("3", "4", "dp-zero"));
  run("part", until("6", "3", "owt-a"), "auto");
  run("part", until("11", "2", "dp-zero"), "auto");
  run("part", until("13", "3", "dp-zero"), "auto");
  run("part", until("14", "4", "ps"), "auto");
  run("part", until("16", "3", "dp-star"), "auto");
  run("part", until("18", "4", "dp-star"), "auto");
  run("part", until("20", "1", "dp"), "auto");
  const auto found = losses(path("part"));
  ASSERT_EQ(found.size(), 20u);
  for (const auto& [step, loss] : found) EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << step;
}

TEST_F(ResumedRun, CheckpointsDoNotDependOnTheNumberOfRanks) {
  const Overrides one_step =
      merged(kEveryStepLogged, {{"schedule.max_steps", "1"}, {"optimizer.learning_rate", "1e-30"}});
  run("one", one_step);
  run("four", merged(one_step, {{"parallel.workers", "4"}, {"parallel.strategy", "owt-c"}}));
  SafetensorsReader one(weights_of("one")), four(weights_of("four"));
  ASSERT_EQ(one.entries().size(), four.entries().size());
  for (const auto& entry : one.entries()) {
    const Tensor a = one.read(entry.name), b = four.read(entry.name);
    ASSERT_EQ(a.shape(), b.shape()) << entry.name;
    for (int64_t i = 0; i < a.elements(); ++i) ASSERT_NEAR(a.data()[i], b.data()[i], 1e-25) << entry.name;
  }
}

// fc1 has 144 features and 22 outputs: under owt-d it is split by inputs, and fc2 and fc3 too.
const Overrides kInGroupsOfTwo{{"parallel.model_ranks", "2"}};

Overrides under(const char* workers, const char* strategy, const Overrides& more = {}) {
  return merged({{"parallel.workers", workers}, {"parallel.strategy", strategy}}, more);
}

TEST_F(ResumedRun, CheckpointsDependOnNeitherColumnsNorReplicas) {
  // Two steps with gradients, so that the velocities of the whole net differ from zero too.
  const Overrides two_steps = merged(kEveryStepLogged, {{"schedule.max_steps", "2"}});
  run("one", two_steps);
  const std::map<std::string, Overrides> others{{"d2", under("2", "owt-d")},
                                                {"d3", under("3", "owt-d")},
                                                {"d4", under("4", "owt-d")},
                                                {"a4in2", under("4", "owt-a", kInGroupsOfTwo)},
                                                {"d4in2", under("4", "owt-d", kInGroupsOfTwo)},
                                                {"mp4in2", under("4", "mp", kInGroupsOfTwo)}};
  for (const auto& [name, changes] : others) {
    run(name, merged(two_steps, changes));
    for (const bool optimizer : {false, true}) {
      SafetensorsReader one(optimizer ? optimizer_of("one") : weights_of("one"));
      SafetensorsReader many(optimizer ? optimizer_of(name) : weights_of(name));
      ASSERT_EQ(one.entries().size(), many.entries().size()) << name;
      for (const auto& entry : one.entries()) {
        SCOPED_TRACE(concat(name, optimizer ? ", optimizer, " : ", weights, ", entry.name));
        const Tensor a = one.read(entry.name), b = many.read(entry.name);
        ASSERT_EQ(a.shape(), b.shape());
        for (int64_t i = 0; i < a.elements(); ++i) ASSERT_NEAR(a.data()[i], b.data()[i], 1e-5);
      }
    }
  }
}

TEST_F(ResumedRun, AWeightsFileComesBackAsItWasFromColumnsAndReplicas) {
  run("one", merged(kEveryStepLogged, {{"schedule.max_steps", "2"}}));
  const Overrides still = merged(
      kEveryStepLogged, {{"schedule.max_steps", "1"}, {"optimizer.learning_rate", "1e-30"}, {"optimizer.decay", "0"}});
  run("d", merged(still, under("3", "owt-d")), "", weights_of("one"));
  EXPECT_EQ(read_file(weights_of("d")), read_file(weights_of("one")));
  run("grid", merged(still, under("4", "owt-d", kInGroupsOfTwo)), "", weights_of("one"));
  EXPECT_EQ(read_file(weights_of("grid")), read_file(weights_of("one")));
}

TEST_F(ResumedRun, ResumesWithTheSameResultsWithOtherColumnsGroupsAndReplicas) {
  run("whole", kEveryStepLogged);
  const auto expected = losses(path("whole"));
  const auto stop_at = [](const char* step) { return Overrides{{"schedule.max_steps", step}}; };
  const std::vector<std::vector<Overrides>> runs{
      {under("4", "owt-d"), under("3", "owt-a"), under("1", "dp")},
      {under("1", "dp"), under("3", "owt-d"), under("4", "owt-d", kInGroupsOfTwo)},
      {under("4", "owt-c", kInGroupsOfTwo), under("6", "owt-b", {{"parallel.model_ranks", "3"}}), under("2", "mp")},
      {under("4", "mp", kInGroupsOfTwo), under("4", "owt-a", kInGroupsOfTwo), under("4", "owt-d")},
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string out = concat("run", i);
    run(out, merged(merged(kEveryStepLogged, stop_at("3")), runs[i][0]));
    run(out, merged(merged(kEveryStepLogged, stop_at("8")), runs[i][1]), "auto");
    run(out, merged(kEveryStepLogged, runs[i][2]), "auto");
    const auto found = losses(path(out));
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [step, loss] : found)
      EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << out << ", step " << step;
  }
}

TEST_F(ResumedRun, ResumeAutoStartsFromTheBeginningWhereThereIsNothing) {
  EXPECT_TRUE(run("fresh", kEveryStepLogged, "auto").finished);
}

TEST_F(ResumedRun, NeverResumesIntoAnotherRun) {
  run("a", kEveryStepLogged);
  run("b", kEveryStepLogged);
  EXPECT_THROW(run("b", kEveryStepLogged, path("a")), Error);
  EXPECT_EQ(losses(path("b")).size(), 20u);
  EXPECT_TRUE(run("c", merged(kEveryStepLogged, {{"schedule.epochs", "5"}}), path("a")).finished);
  EXPECT_EQ(losses(path("c")).size(), 5u);
}

TEST_F(ResumedRun, ResumesInItsFolderWhereItsCheckpointsLieOnAnotherDisk) {
  const auto until = [](const char* step) { return merged(kEveryStepLogged, {{"schedule.max_steps", step}}); };
  fs::create_directory(path("disk"));
  fs::create_directory(path("a"));
  fs::create_directory_symlink(path("disk"), path("a") + "/checkpoints");
  run("a", until("5"));
  run("a", until("10"), path("a"));
  run("a", until("15"), path("a") + "/checkpoints/step-00000010");
  EXPECT_EQ(losses(path("a")).size(), 15u);
}

// The rate spoils the resumed run before its first checkpoint, as a crash would end it.
TEST_F(ResumedRun, AfterResumingAnOlderCheckpointAutoContinuesFromThere) {
  run("whole", kEveryStepLogged);
  run("a", kEveryStepLogged);
  const std::string older = path("a") + "/checkpoints/step-00000010";
  EXPECT_THROW(run("a", merged(kEveryStepLogged, {{"optimizer.learning_rate", "1e20"}}), older), Error);
  EXPECT_EQ(*newest_checkpoint(path("a")), older);
  EXPECT_TRUE(fs::exists(path("a") + "/checkpoints/step-00000020"));

  run("a", kEveryStepLogged, "auto");
  EXPECT_EQ(losses(path("a")), losses(path("whole")));
  EXPECT_EQ(read_file(weights_of("a")), read_file(weights_of("whole")));
}

// Claims that the evaluation of this checkpoint cannot be beaten.
void claim_best(const std::string& checkpoint) {
  RunState state = load_checkpoint_state(checkpoint);
  state.best_top1 = 1;
  state.best_step = state.step;
  write_bytes(checkpoint + "/state.json", state.to_json());
}

TEST_F(ResumedRun, TheBestEvaluationIsRememberedInItsOwnFolderOnly) {
  run("a", kEveryStepLogged);
  claim_best(*newest_checkpoint(path("a")));
  const Overrides longer = merged(kEveryStepLogged, {{"schedule.epochs", "5"}});
  run("b", longer, path("a"));
  run("a", longer, "auto");

  const RunState own = load_checkpoint_state(*newest_checkpoint(path("a")));
  EXPECT_EQ(own.step, 25);
  EXPECT_EQ(own.best_step, 20);
  EXPECT_EQ(own.best_top1, 1);
  const RunState other = load_checkpoint_state(*newest_checkpoint(path("b")));
  EXPECT_EQ(other.best_step, 25);
  EXPECT_LT(other.best_top1, 1);
  EXPECT_EQ(best_checkpoint(path("b")), path("b") + "/checkpoints/step-00000025");
}

TEST_F(ResumedRun, RefusesToResumeWithOtherData) {
  run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "3"}}));
  for (const char* images : {"80", "120"}) {
    try {
      run("a", merged(kEveryStepLogged, {{"data.train_images", images}}), "auto");
      FAIL() << images;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("was made with 100 training images"), HasSubstr(images)));
    }
  }
}

class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~WorkingFolder() { fs::current_path(before_); }

 private:
  fs::path before_;
};

TEST_F(ResumedRun, ResumesACheckpointNamedFromAnywhere) {
  run("whole", kEveryStepLogged);
  run("begun", merged(kEveryStepLogged, {{"schedule.max_steps", "3"}}));
  const fs::path folder = path("a"), checkpoint = fs::path("checkpoints") / "step-00000003";
  fs::create_directory_symlink(folder / checkpoint, path("link"));
  const std::map<std::string, std::string> named_from{{".", checkpoint},
                                                      {"checkpoints", "step-00000003"},
                                                      {checkpoint, "."},
                                                      {checkpoint / "..", "../checkpoints/./step-00000003/"},
                                                      {"..", "link"}};
  for (const auto& [from, name] : named_from) {
    SCOPED_TRACE(name + " from " + from);
    fs::remove_all(folder);
    fs::copy(path("begun"), folder, fs::copy_options::recursive);
    const WorkingFolder here(folder / from);
    TrainOptions options;
    options.resume = name;
    options.threads = 1;
    const TrainOutcome outcome = train(small_settings(kSmallRecipe, kEveryStepLogged), options);
    EXPECT_TRUE(fs::equivalent(outcome.run_folder, folder));
    EXPECT_EQ(losses(path("a")), losses(path("whole")));
  }
}

const Overrides kEvaluatedBySteps{{"schedule.epochs", "2"},
                                  {"run.log_every", "1"},
                                  {"run.eval_every_epochs", "0"},
                                  {"run.eval_every_steps", "3"},
                                  {"run.keep_checkpoints", "100"}};

TEST_F(ResumedRun, ARunStoppedAfterEveryStepEvaluatesAsOneThatWasNot) {
  run("whole", kEvaluatedBySteps);
  request_stop(true);
  int stops = 0;
  while (!run("a", kEvaluatedBySteps, "auto").finished) ++stops;
  request_stop(false);
  EXPECT_EQ(stops, 9);
  EXPECT_EQ(evaluations(path("a")), evaluations(path("whole")));
  EXPECT_EQ(read_file(weights_of("a")), read_file(weights_of("whole")));
  EXPECT_EQ(best_checkpoint(path("a"))->substr(path("a").size()),
            best_checkpoint(path("whole"))->substr(path("whole").size()));
}

// Resumes from every checkpoint; if an evaluation follows one, from the state after it and from the state of a crash
// before.
TEST_F(ResumedRun, EvaluationsByStepsAreNeitherLostNorDoneTwice) {
  const Overrides changes = merged(kEvaluatedBySteps, {{"run.checkpoint_every_steps", "1"}});
  for (const Overrides& parallel :
       {Overrides{{"parallel.workers", "1"}}, Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}},
        Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "dp"}, {"parallel.average_every", "5"}}}) {
    fs::remove_all(path("a"));
    run("a", merged(changes, parallel));
    const auto expected = evaluations(path("a"));
    ASSERT_EQ(expected.size(), 4u);  // after steps 3, 6, 9 and 10
    for (int64_t step = 1; step <= 10; ++step)
      for (const bool before_evaluation : {false, true}) {
        SCOPED_TRACE(concat(parallel[0].second, " workers, step ", step, before_evaluation ? ", crashed" : ""));
        const std::string checkpoint = format("{}/checkpoints/step-{:08}", path("a"), step);
        RunState state = load_checkpoint_state(checkpoint);
        if (before_evaluation && state.evaluated_step != step) continue;
        if (before_evaluation) state.evaluated_step = step == 10 ? 9 : step - 3;
        write_bytes(checkpoint + "/state.json", state.to_json());
        run("a", merged(changes, parallel), checkpoint);
        EXPECT_EQ(evaluations(path("a")), expected);
      }
  }
}

TEST_F(ResumedRun, ACheckpointThatWasMovedStartsARunOfItsOwn) {
  run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "3"}}));
  fs::rename(path("a") + "/checkpoints/step-00000003", path("moved"));
  const WorkingFolder here(folder_.path());
  TrainOptions options;
  options.resume = "moved";
  options.threads = 1;
  EXPECT_EQ(train(small_settings(kSmallRecipe, kEveryStepLogged), options).run_folder.substr(0, 5), "runs/");
}

TEST_F(ResumedRun, ResumingAFinishedRunChangesNothing) {
  run("a", kEveryStepLogged);
  const std::string metrics = read_file(path("a") + "/metrics.jsonl"),
                    state = read_file(*newest_checkpoint(path("a")) + "/state.json");
  const TrainOutcome again = run("a", kEveryStepLogged, "auto");
  EXPECT_TRUE(again.finished);
  EXPECT_EQ(again.evaluation.images, 50);
  EXPECT_EQ(read_file(path("a") + "/metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(*newest_checkpoint(path("a")) + "/state.json"), state);
}

// The images of the epochs: 7 steps of 20 rows use 40 of the second epoch, 20 are less than a step of 24, and the rest
// is two steps and 12 images. Steps, and --steps, continue to count in all lines.
TEST_F(ResumedRun, ContinuesAfterTheLastImageWithStepsOfAnySize) {
  const auto until = [](const char* rows, const char* steps) {
    return merged({{"run.log_every", "1"}, {"schedule.epochs", "3"}, {"run.keep_checkpoints", "9"}},
                  {{"data.batch", rows}, {"schedule.max_steps", steps}});
  };
  for (const char* workers : {"1", "3"}) {
    const std::string out = concat("a", workers);
    const Overrides parallel{{"parallel.workers", workers},
                             {"parallel.strategy", "owt-c"},
                             {"parallel.shares", workers == std::string("1") ? "[1]" : "[1, 2, 1]"}};
    run(out, merged(until("20", "7"), parallel), "auto");
    run(out, merged(until("24", "9"), parallel), "auto");
    EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path(out))).images_in_epoch, 40 + 2 * 24);
    EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path(out))).epoch, 1);
    run(out, merged(until("100", "1000"), {{"parallel.workers", "1"}}), "auto");
    const RunState end = load_checkpoint_state(*newest_checkpoint(path(out)));
    EXPECT_EQ(end.epoch, 3);
    EXPECT_EQ(end.step, 9 + 1 + 1);  // 12 images of epoch 2, then epoch 3
    EXPECT_EQ(losses(path(out)).rbegin()->first, 11);
    EXPECT_THAT(read_file(path(out) + "/log.txt"), HasSubstr("epoch 2 continues after image 40 of 100"));
    EXPECT_THAT(read_file(path(out) + "/log.txt"), HasSubstr("at step 9 of 11"));
  }
}

TEST_F(ResumedRun, ContinuesWithinTheEpochWithStepsOfAnotherSize) {
  // 100 images: 5 steps of 20 rows an epoch, then 10 of 10.
  const Overrides base{{"run.log_every", "1"}, {"schedule.epochs", "3"}};
  const auto rows = [&](const char* count) { return merged(base, {{"data.batch", count}}); };
  run("a", merged(rows("20"), {{"schedule.max_steps", "7"}}));
  run("a", rows("10"), "auto");
  const RunState state = load_checkpoint_state(*newest_checkpoint(path("a")));
  EXPECT_EQ(state.epoch, 3);
  EXPECT_EQ(state.step, 7 + 6 + 10);  // 60 images of epoch 2 were left, then epoch 3
}

TEST_F(ResumedRun, ARepeatedSeedComesFromTheCheckpoint) {
  run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "3"}, {"run.seed", "11"}}));
  run("a", kEveryStepLogged, "auto");
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("a"))).seed, 11u);
  EXPECT_THAT(read_file(path("a") + "/config.toml"), HasSubstr("seed = 11"));
}

void damage(const std::string& file) {
  std::string bytes = read_file(file);
  bytes[bytes.size() - 5] ^= 1;
  write_bytes(file, bytes);
}

TEST_F(ResumedRun, PassesOverADamagedCheckpointUnlessItIsNamed) {
  run("whole", kEveryStepLogged);
  run("a", kEveryStepLogged);
  damage(weights_of("a"));
  const std::string newest = *newest_checkpoint(path("a"));
  EXPECT_THAT(message_of([&] { run("a", kEveryStepLogged, newest); }),
              AllOf(HasSubstr("is damaged"), HasSubstr("take another checkpoint")));
  run("a", kEveryStepLogged, "auto");
  EXPECT_THAT(read_file(path("a") + "/log.txt"),
              AllOf(HasSubstr(concat("the checkpoint ", newest, " is passed over")), HasSubstr("at step 15 of 20")));
  EXPECT_EQ(read_file(weights_of("a")), read_file(weights_of("whole")));
  EXPECT_EQ(losses(path("a")), losses(path("whole")));

  for (const std::string& checkpoint : list_checkpoints(path("a"))) write_bytes(checkpoint + "/state.json", "{}");
  EXPECT_THAT(message_of([&] { run("a", kEveryStepLogged, "auto"); }), HasSubstr("none of the checkpoints"));
}

// The limit is above the size of the run's other files. Without the limit the run continues like one that always had
// space.
TEST_F(ResumedRun, AFullDiskAtCheckpointsDoesNotEndTheRun) {
  const Overrides changes{{"schedule.epochs", "4"}, {"run.log_every", "5"}};
  run("whole", changes);
  for (const char* workers : {"1", "3"}) {
    const std::string out = concat("a", workers);
    const Overrides parallel = merged(changes, {{"parallel.workers", workers}, {"parallel.strategy", "owt-c"}});
    run(out, merged(parallel, {{"schedule.max_steps", "5"}}));
    const std::vector<std::string> before = list_checkpoints(path(out));
    {
      const SmallDisk disk(20'000);
      ASSERT_GT(fs::file_size(weights_of(out)), 20'000u);
      EXPECT_THAT(message_of([&] { run(out, parallel, "auto"); }),
                  AllOf(HasSubstr("the last checkpoint, of step 20, could not be written"), HasSubstr("File too large"),
                        HasSubstr("(step 5); resume with --resume auto")));
    }
    EXPECT_EQ(list_checkpoints(path(out)), before);
    for (const auto& entry : fs::directory_iterator(path(out) + "/checkpoints"))
      EXPECT_NE(entry.path().extension(), ".tmp");
    EXPECT_EQ(losses(path(out)).rbegin()->first, 20) << "it went on to its end";
    EXPECT_EQ(evaluations(path(out)).size(), 4u);
    EXPECT_TRUE(run(out, parallel, "auto").finished);
    if (workers == std::string("1")) {
      EXPECT_EQ(read_file(weights_of(out)), read_file(weights_of("whole")));
    }
    EXPECT_EQ(losses(path(out)).size(), losses(path("whole")).size());
  }
}

}  // namespace
}  // namespace owt::trainer_resume_test
