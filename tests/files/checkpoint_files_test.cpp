#include "src/files/checkpoint_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::checkpoint_files_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointTest : public testing::Test {
 protected:
  // A checkpoint of one file with this content.
  std::string save(int64_t step, const std::string& content = "weights", int64_t best_step = -1, int keep = 2) {
    CheckpointWriter writer(run_, keep);
    const std::string folder = writer.begin(step);
    FileWriter file(folder + "/weights");
    file.write(content.data(), content.size());
    file.close();
    RunState state{.step = step, .best_step = best_step, .strategy = "owt-c", .conv_choices = {}, .checksums = {}};
    state.checksums["weights"] = file.checksum();
    return writer.commit(state);
  }
  std::string at(const std::string& name) const { return run_ + "/checkpoints/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(at(""))) found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  // The content that a run would resume with.
  std::string resumable() const {
    const auto folder = newest_checkpoint(run_);
    if (!folder) return "";
    load_checkpoint_state(*folder);
    return read_file(*folder + "/weights");
  }
  static std::string complaint(const std::string& folder) {
    return message_of([&] { load_checkpoint_state(folder); });
  }

  TempFolder folder_;
  std::string run_ = folder_.file("run");
};

TEST_F(CheckpointTest, HoldsTheFilesAndTheStateAndIsTheNewest) {
  const std::string folder = save(5000);

  EXPECT_EQ(folder, at("step-00005000"));
  EXPECT_EQ(read_file(at("latest")), "step-00005000\n");
  EXPECT_EQ(newest_checkpoint(run_), folder);
  EXPECT_EQ(load_checkpoint_state(folder).strategy, "owt-c");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00005000"));
}

TEST_F(CheckpointTest, ARunWithoutCheckpointsHasNoNewest) {
  EXPECT_EQ(newest_checkpoint(run_), std::nullopt);
  EXPECT_THAT(list_checkpoints(run_), IsEmpty());
}

TEST_F(CheckpointTest, KeepsTheNewestAndTheBest) {
  for (int64_t step = 1; step <= 5; ++step) save(step, "w", std::min<int64_t>(step, 2));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000002", "step-00000004", "step-00000005"));
}

TEST_F(CheckpointTest, TheBestIsThatOfTheBestEvaluationOrElseTheNewest) {
  EXPECT_EQ(best_checkpoint(run_), std::nullopt);
  save(1);
  save(2);
  EXPECT_EQ(best_checkpoint(run_), at("step-00000002"));
  save(2, "w", 2);
  save(3, "w", 2);
  EXPECT_EQ(best_checkpoint(run_), at("step-00000002"));
  save(2, "of another branch");
  CheckpointWriter(run_, 2).resume_from(at("step-00000003"));
  EXPECT_EQ(best_checkpoint(run_), at("step-00000003"));
  fs::remove_all(at("step-00000002"));
  EXPECT_EQ(best_checkpoint(run_), at("step-00000003"));
}

// At the same step, and even if it is the best of its branch.
TEST_F(CheckpointTest, ACheckpointOfAnotherAccuracyIsNotTheBest) {
  save(2, "w", 2);
  save(3, "w", 2);
  RunState other = load_checkpoint_state(at("step-00000002"));
  other.best_top1 = 0.5;
  EXPECT_EQ(CheckpointWriter(run_, 2).note_evaluation(other), "");
  EXPECT_EQ(best_checkpoint(run_), at("step-00000003"));
}

TEST_F(CheckpointTest, LeavesTheStepsAfterTheOneResumedFrom) {
  for (int64_t step = 10; step <= 30; step += 10) save(step, "w", -1, 3);
  save(15, "again", -1, 1);
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000015", "step-00000020", "step-00000030"));
  EXPECT_EQ(resumable(), "again");
}

TEST_F(CheckpointTest, AutoResumesTheBranchOfTheLastResumeAndNotTheOneThatWasLeft) {
  for (int64_t step = 10; step <= 40; step += 10) save(step, "left", -1, 9);
  CheckpointWriter(run_, 9).resume_from(at("step-00000020"));

  EXPECT_EQ(newest_checkpoint(run_), at("step-00000020"));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000010", "step-00000020", "step-00000030", "step-00000040"));
  save(30, "new", -1, 9);
  EXPECT_EQ(resumable(), "new");
  EXPECT_EQ(read_file(at("step-00000040/weights")), "left");
  save(45, "newer", -1, 9);
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000010", "step-00000020", "step-00000030", "step-00000045"));
}

TEST_F(CheckpointTest, ResumesNoOtherRunsCheckpoint) {
  save(1);
  EXPECT_THROW(CheckpointWriter(folder_.file("other"), 2).resume_from(at("step-00000001")), Error);
}

TEST_F(CheckpointTest, KnowsTheRunFolderHoweverACheckpointIsNamed) {
  const std::string folder = save(1), link = folder_.file("link");
  fs::create_directory_symlink(folder, link);
  for (const std::string& name : {folder, folder + "/", folder + "/.", link})
    EXPECT_EQ(run_folder_of_checkpoint(name), fs::canonical(run_)) << name;
  fs::rename(folder, folder_.file("step-00000001"));
  EXPECT_EQ(run_folder_of_checkpoint(folder_.file("step-00000001")), std::nullopt);
  EXPECT_EQ(run_folder_of_checkpoint(link), std::nullopt);
}

TEST_F(CheckpointTest, KnowsTheRunFolderWhereItsCheckpointsLieOnAnotherDisk) {
  fs::create_directory(folder_.file("disk"));
  fs::create_directory(run_);
  fs::create_directory_symlink(folder_.file("disk"), run_ + "/checkpoints");
  const std::string folder = save(1);
  for (const std::string& name : {folder, folder + "/", folder + "/."})
    EXPECT_EQ(run_folder_of_checkpoint(name), run_) << name;
}

TEST_F(CheckpointTest, ReplacesOneOfTheSameStep) {
  save(7, "old");
  save(7, "new");
  EXPECT_EQ(resumable(), "new");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000007"));
}

TEST_F(CheckpointTest, SortsBySteps) {
  save(99'999'999, "w", -1, 9);
  save(100'000'000, "w", -1, 9);
  save(9, "w", -1, 9);
  EXPECT_THAT(list_checkpoints(run_), ElementsAre(at("step-00000009"), at("step-99999999"), at("step-100000000")));
}

// What a crash leaves after each file operation of a save; the one before it must stay loadable and the next
// save work.
TEST_F(CheckpointTest, SurvivesACrashWhileTheNextIsWritten) {
  save(1, "old");
  CheckpointWriter writer(run_, 2);
  const std::string beside = writer.begin(2);  // crash: empty folder
  EXPECT_EQ(resumable(), "old");
  write_bytes(beside + "/weights", "ne");  // crash: part of a file
  EXPECT_EQ(resumable(), "old");
  write_bytes(beside + "/state.json.tmp", "{");  // crash: part of the state
  EXPECT_EQ(resumable(), "old");

  save(2, "new");
  EXPECT_EQ(resumable(), "new");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000001", "step-00000002"));
}

TEST_F(CheckpointTest, SurvivesACrashBeforeLatestIsReplaced) {
  save(1, "old");
  save(2, "new");
  write_bytes(at("latest"), "step-00000001\n");
  write_bytes(at("latest.tmp"), "step-000");

  EXPECT_EQ(resumable(), "old");
  save(2, "again");
  EXPECT_EQ(resumable(), "again");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000001", "step-00000002"));
}

TEST_F(CheckpointTest, SurvivesACrashBeforeTheFirstLatest) {
  save(1, "w");
  fs::remove(at("latest"));
  EXPECT_EQ(resumable(), "w");
}

TEST_F(CheckpointTest, SurvivesACrashWhileOneOfTheSameStepIsReplaced) {
  save(7, "old");
  fs::rename(at("step-00000007"), at("step-00000007.old"));  // crash: moved aside
  fs::create_directory(at("step-00000007.tmp"));
  EXPECT_EQ(resumable(), "old");

  save(7, "new");
  EXPECT_EQ(resumable(), "new");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000007"));

  fs::copy(at("step-00000007"), at("step-00000007.old"));  // crash: the old one not yet removed
  fs::remove(at("latest"));
  EXPECT_EQ(newest_checkpoint(run_), at("step-00000007"));
  save(7, "newest");
  EXPECT_EQ(resumable(), "newest");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000007"));
}

TEST_F(CheckpointTest, ACrashWhileOneIsReplacedDoesNotBringBackTheBranchThatWasLeft) {
  save(7, "old");
  save(9, "left");
  CheckpointWriter(run_, 2).resume_from(at("step-00000007"));
  fs::rename(at("step-00000007"), at("step-00000007.old"));
  EXPECT_EQ(resumable(), "old");
}

TEST_F(CheckpointTest, SurvivesACrashWhileAnOldOneIsRemoved) {
  save(1, "old");
  save(2, "new");
  fs::rename(at("step-00000001"), at("step-00000001.gone.tmp"));
  fs::remove(at("step-00000001.gone.tmp/state.json"));
  fs::remove(at("latest"));

  EXPECT_THAT(list_checkpoints(run_), ElementsAre(at("step-00000002")));
  save(3, "newer");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000002", "step-00000003"));
}

TEST_F(CheckpointTest, OneFlippedByteIsFoundAndTheOthersAreNamed) {
  save(1, "weights");
  const std::string newer = save(2, "weights");
  write_bytes(newer + "/weights", "weighta");

  EXPECT_THAT(complaint(newer), AllOf(HasSubstr(newer + "/weights is damaged"),
                                      HasSubstr("take another checkpoint: " + at("step-00000001"))));
}

TEST_F(CheckpointTest, AMissingFileIsNamed) {
  const std::string folder = save(1);
  fs::remove(folder + "/weights");
  EXPECT_THAT(complaint(folder), AllOf(HasSubstr(folder + "/weights is missing"), HasSubstr("no other checkpoint")));
}

TEST_F(CheckpointTest, ADamagedStateIsNamedAndSkipped) {
  save(1);
  const std::string newer = save(2);
  const std::string text = read_file(newer + "/state.json");
  write_bytes(newer + "/state.json", text.substr(0, text.size() / 2));

  EXPECT_EQ(newest_checkpoint(run_), newer);
  EXPECT_THAT(complaint(newer), AllOf(HasSubstr(newer + "/state.json is damaged"), HasSubstr(at("step-00000001"))));
  EXPECT_THAT(complaint(newer + "/"), HasSubstr(at("step-00000001")));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(best_checkpoint(run_), at("step-00000001"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the checkpoint " + newer + " is passed over: " + newer + "/state.json is damaged"));
  fs::remove(newer + "/state.json");
  EXPECT_THAT(complaint(newer), HasSubstr("cannot read " + newer + "/state.json"));
}

TEST_F(CheckpointTest, ADamagedOneIsNotReplacedByOneOfTheBranchThatWasLeft) {
  for (int64_t step = 10; step <= 30; step += 10) save(step, "w", -1, 9);
  CheckpointWriter(run_, 9).resume_from(at("step-00000020"));
  write_bytes(at("step-00000020") + "/weights", "damaged");
  EXPECT_EQ(newest_whole_checkpoint(run_)->folder, at("step-00000010"));
}

TEST_F(CheckpointTest, ADamagedCheckpointIsNotTheBest) {
  save(1);
  save(2, "w", 2);
  save(3, "w", 2);
  ASSERT_EQ(best_checkpoint(run_), at("step-00000002"));
  write_bytes(at("step-00000002") + "/weights", "damaged");
  EXPECT_EQ(best_checkpoint(run_), at("step-00000003"));
  write_bytes(at("step-00000003") + "/weights", "damaged");
  EXPECT_THAT(message_of([&] { best_checkpoint(run_); }), HasSubstr("none of the checkpoints of " + run_));
}

TEST_F(CheckpointTest, RefusesToCommitWithoutItsFiles) {
  CheckpointWriter writer(run_, 2);
  writer.begin(3);
  RunState state{.step = 3, .strategy = {}, .conv_choices = {}, .checksums = {{"weights", 1}}};
  EXPECT_THROW(writer.commit(state), Error);
  state.step = 4;
  EXPECT_THROW(writer.commit(state), Error);
}

TEST_F(CheckpointTest, AFullDiskLeavesTheOldOne) {
  save(1, "old");
  {
    const SmallDisk disk(10);
    EXPECT_THROW(save(2, "new"), Error);
  }
  EXPECT_EQ(resumable(), "old");
}

TEST_F(CheckpointTest, SaysWhereItCannotWrite) {
  write_bytes(run_, "a file where the folder should be");
  CheckpointWriter writer(run_, 2);
  try {
    writer.begin(1);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("cannot make folder"), HasSubstr("--out")));
  }
}

// A file system that loses the latest writes leaves such a file.
TEST_F(CheckpointTest, WarnsWhereLatestDoesNotNameACheckpoint) {
  save(1);
  save(2);
  const auto warning = [&](const std::string& latest) {
    write_bytes(at("latest"), latest);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(newest_checkpoint(run_), at("step-00000002"));
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning("step-00000002\n"), "");
  EXPECT_THAT(warning(""),
              HasSubstr("latest is damaged (it is empty): step-00000002, the checkpoint of the highest step, is used"));
  EXPECT_THAT(warning("../../../etc\n"), HasSubstr("it names no checkpoint"));
  EXPECT_THAT(warning("step-00000007\n"), HasSubstr("it names step-00000007, which is not there"));
  ::testing::internal::CaptureStderr();
  fs::remove(at("latest"));
  EXPECT_EQ(newest_checkpoint(run_), at("step-00000002"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("latest is missing"));
}

TEST_F(CheckpointTest, GivingUpRemovesTheHalfOne) {
  save(1);
  CheckpointWriter writer(run_, 2);
  write_bytes(writer.begin(2) + "/weights", "half");
  writer.give_up(2, "the disk is full", true);
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000001"));
  EXPECT_EQ(save(2), at("step-00000002"));
}

}  // namespace
}  // namespace owt::checkpoint_files_test
