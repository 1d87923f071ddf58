#include "src/system/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/kept_log.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::log_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class Log : public ::testing::Test {
 protected:
  Log() { ::testing::internal::CaptureStderr(); }
  ~Log() override {
    log_to_file("");
    log_quiet(false);
    if (!captured_) ::testing::internal::GetCapturedStderr();
  }
  std::string console() {
    captured_ = true;
    return ::testing::internal::GetCapturedStderr();
  }

  TempFolder folder_;
  const std::string path_ = folder_.file("log.txt");

 private:
  bool captured_ = false;
};

TEST_F(Log, LinesGoToStderrAsTheyAre) {
  log_info("step {} of {}", 3, 10);
  log_warn("{} is slow", "disk");
  EXPECT_EQ(console(), "step 3 of 10\nwarning: disk is slow\n");
}

TEST_F(Log, LinesGoToTheFileWithTheirTime) {
  log_to_file(path_);
  log_info("step {}", 3);
  log_warn("slow");
  const std::string time = "....-..-.. ..:..:..";
  EXPECT_THAT(read_file(path_), MatchesRegex(time + " step 3\n" + time + " warning: slow\n"));
  EXPECT_EQ(console(), "step 3\nwarning: slow\n");
}

TEST_F(Log, ControlCharactersAreShownAndNotSent) {
  log_to_file(path_);
  log_warn("nothing takes '{}'", "\x1b[2J\nowt: error");
  log_to_file_only("\x07");
  EXPECT_EQ(console(), "warning: nothing takes '\\x1b[2J\\x0aowt: error'\n");
  EXPECT_THAT(read_file(path_), AllOf(HasSubstr("'\\x1b[2J\\x0aowt: error'\n"), HasSubstr(" \\x07\n")));
}

TEST_F(Log, AFileIsAppendedToAndClosedByAnEmptyPath) {
  log_to_file(path_);
  log_line("first");
  log_to_file("");
  log_line("between");
  log_to_file(path_);
  log_line("second");
  EXPECT_THAT(read_file(path_), AllOf(HasSubstr("first\n"), HasSubstr("second\n"), Not(HasSubstr("between"))));
}

TEST_F(Log, BracesInALineArePrintedAsTheyAre) {
  log_line("augment = { crop = 28 } {}");
  EXPECT_EQ(console(), "augment = { crop = 28 } {}\n");
}

TEST_F(Log, AQuietThreadDropsLinesButNoWarnings) {
  std::thread([] {
    log_quiet(true);
    log_line("rank 1");
    log_warning("rank 1 waits");
  }).join();
  log_line("rank 0");
  EXPECT_EQ(console(), "warning: rank 1 waits\nrank 0\n");
}

TEST_F(Log, LinesOfAnyThreadComeAboveTheStatusLine) {
  log_status("epoch 1");
  log_info("evaluated");
  std::thread([] { log_warn("slow"); }).join();
  log_status("epoch 2");
  log_status("");
  log_status("");
  log_info("done");
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(console(), "epoch 1" + clear + "evaluated\nepoch 1" + clear + "warning: slow\nepoch 1" + clear + "epoch 2" +
                           clear + "done\n");
}

TEST_F(Log, AStatusLineIsDroppedForWhateverElseIsWritten) {
  drop_status();
  log_status("epoch 1");
  drop_status();
  drop_status();
  std::fputs("error\n", stderr);
  log_status("");
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(console(), "epoch 1" + clear + clear + "error\n" + clear);
}

TEST_F(Log, ALineOfASignalHandlerTakesThePlaceOfTheStatusLine) {
  write_over_status("early\n");
  log_status("epoch 1");
  write_over_status("stopping\n");
  log_status("epoch 2");
  write_over_status(std::string(1000, 'x'));
  log_status("");
  const std::string clear = "\r\x1b[K";
  EXPECT_THAT(console(), StartsWith("early\nepoch 1" + clear + "stopping\n" + clear + "epoch 2" + clear + "xxx"));
}

TEST_F(Log, AFileThatCannotBeWrittenIsAnErrorThatNamesIt) {
  write_bytes(folder_.file("file"), "");
  const std::string path = folder_.file("file/log.txt");
  EXPECT_THAT(message_of([&] { log_to_file(path); }), AllOf(HasSubstr(path), HasSubstr("--out")));
}

TEST_F(Log, LinesFromBeforeThereIsAFileAreKeptForItOnce) {
  log_info("lost");
  keep_log_for_file();
  log_info("early");
  log_to_file_only("for the file");
  log_to_file(path_);
  log_info("late");
  const std::string time = "....-..-.. ..:..:..";
  EXPECT_THAT(read_file(path_), MatchesRegex(time + " early\n" + time + " for the file\n" + time + " late\n"));
  log_to_file("");
  keep_log_for_file();
  log_info("forgotten");
  log_to_file("");
  log_to_file(path_);
  EXPECT_THAT(read_file(path_), Not(HasSubstr("forgotten")));
  EXPECT_EQ(console(), "lost\nearly\nlate\nforgotten\n");
}

}  // namespace
}  // namespace owt::log_test
