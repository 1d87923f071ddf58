#include "src/system/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "src/system/activity.h"
#include "src/system/check.h"
#include "src/system/kept_files.h"
#include "src/system/no_room.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace {
int fsync_error = 0;                 // the error of fsync() in this program
std::function<void()> before_flock;  // called between opening and locking a file
}  // namespace

// Stands before the C library's.
extern "C" int fsync(int file) {
  if (fsync_error == 0) return static_cast<int>(syscall(SYS_fsync, file));
  errno = fsync_error;
  return -1;
}

extern "C" int flock(int file, int operation) noexcept {
  if (before_flock) std::exchange(before_flock, {})();
  return static_cast<int>(syscall(SYS_flock, file, operation));
}

namespace owt::files_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

int files_in(const TempFolder& folder) {
  int files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++files;
  return files;
}

class Files : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string path_ = folder_.file("state.json");
};

TEST_F(Files, AtomicWriteMakesAndReplacesAFile) {
  write_file_atomically(path_, "old");
  EXPECT_EQ(read_file(path_), "old");
  const std::string bytes("new\0line\n", 9);
  write_file_atomically(path_, bytes);
  EXPECT_EQ(read_file(path_), bytes);
  EXPECT_EQ(files_in(folder_), 1);  // no other file
}

TEST_F(Files, AtomicWriteToAFullDiskKeepsTheOldFileAndLeavesNoOther) {
  write_file_atomically(path_, "old");
  {
    const SmallDisk disk(1000);
    EXPECT_THAT(message_of([&] { write_file_atomically(path_, std::string(5000, 'x')); }),
                AllOf(HasSubstr(path_), HasSubstr("free some space")));
  }
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_EQ(files_in(folder_), 1);
}

TEST_F(Files, AtomicWriteIntoAFolderThatIsNotThereNamesTheFileAndTheReason) {
  const std::string path = folder_.file("none/state.json");
  EXPECT_THAT(message_of([&] { write_file_atomically(path, "new"); }),
              AllOf(HasSubstr(path), HasSubstr("No such file or directory")));
}

TEST_F(Files, AtomicWriteOntoAFolderFailsAndLeavesNoOtherFile) {
  fs::create_directory(path_);
  EXPECT_THAT(message_of([&] { write_file_atomically(path_, "new"); }), HasSubstr(path_));
  EXPECT_TRUE(fs::is_directory(path_));
  EXPECT_EQ(files_in(folder_), 1);
}

TEST_F(Files, AtomicWriteToALinkWritesTheFileItLeadsTo) {
  write_bytes(folder_.file("target"), "old");
  fs::create_symlink("target", path_);
  write_file_atomically(path_, "new");
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(read_file(folder_.file("target")), "new");
  fs::remove(folder_.file("target"));
  EXPECT_THAT(message_of([&] { write_file_atomically(path_, "new"); }), HasSubstr("leads nowhere"));
  EXPECT_TRUE(fs::is_symlink(path_));
}

TEST_F(Files, NothingButAFileIsReplaced) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const std::string link = folder_.file("link");
  fs::create_symlink(path_, link);
  for (const std::string& path : {path_, link, std::string("/dev/null")}) {
    EXPECT_THAT(message_of([&] { write_file_atomically(path, "new"); }), HasSubstr("a device, a pipe")) << path;
    EXPECT_THAT(message_of([&] { check_output(path); }), HasSubstr("a device, a pipe")) << path;
  }
  EXPECT_TRUE(fs::is_fifo(path_));
}

TEST_F(Files, AnOutputIsCheckedBeforeItIsWritten) {
  EXPECT_NO_THROW(check_output(path_));
  EXPECT_NO_THROW(check_output("here.txt"));
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_THAT(message_of([&] { check_output(folder_.path()); }), HasSubstr("it is a folder; name a file"));
  EXPECT_THAT(message_of([&] { check_output(folder_.file("none/x.npy")); }),
              AllOf(HasSubstr("none/x.npy: "), HasSubstr("none is no folder")));
}

TEST_F(Files, OfManyWritersEachWritesWholeAndReadersSeeNoPart) {
  constexpr int kWriters = 4, kTimes = 50, kBytes = 100'000;
  write_file_atomically(path_, std::string(kBytes, 'a'));
  std::vector<std::future<void>> writers;
  for (int w = 0; w < kWriters; ++w)
    writers.push_back(std::async(std::launch::async, [&, content = std::string(kBytes, static_cast<char>('a' + w))] {
      for (int i = 0; i < kTimes; ++i) {
        write_file_atomically(path_, content);
        const std::string found = read_file(path_);
        ASSERT_EQ(found, std::string(kBytes, found[0]));
      }
    }));
  for (std::future<void>& writer : writers) EXPECT_NO_THROW(writer.get());
  EXPECT_EQ(files_in(folder_), 1);
}

TEST_F(Files, TheWriterThatIsClosedLastHasItsContentThere) {
  AtomicFileWriter one(path_), two(path_);
  one.write("1");
  two.write("two");
  two.close();
  EXPECT_EQ(read_file(path_), "two");
  one.close();
  EXPECT_EQ(read_file(path_), "1");
  EXPECT_EQ(files_in(folder_), 1);
}

TEST_F(Files, WhatACrashedWriterLeftIsUsedAgain) {
  write_bytes(path_ + ".tmp", "a part that is longer than the whole");
  write_file_atomically(path_, "new");
  EXPECT_EQ(read_file(path_), "new");
  EXPECT_EQ(files_in(folder_), 1);
}

TEST_F(Files, AFileThatAnotherWriterHasPutInPlaceMeanwhileIsNotWrittenInto) {
  write_bytes(path_ + ".tmp", "what the other one has written");
  before_flock = [&] { fs::rename(path_ + ".tmp", path_); };
  AtomicFileWriter file(path_);
  EXPECT_EQ(read_file(path_), "what the other one has written");
  file.write("new");
  file.close();
  EXPECT_EQ(read_file(path_), "new");
  EXPECT_EQ(files_in(folder_), 1);
}

TEST_F(Files, AFileIsWrittenByOneWriterAtATime) {
  FileWriter one(path_);
  one.write("one", 3);
  EXPECT_THAT(message_of([&] { FileWriter two(path_); }),
              AllOf(HasSubstr(path_), HasSubstr("another process is writing it")));
  one.close();
  EXPECT_EQ(read_file(path_), "one");
  FileWriter(path_).close();
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(Files, AFailedSyncIsReported) {
  FileWriter file(path_);
  fsync_error = EIO;
  EXPECT_THAT(message_of([&] { sync_folder(folder_.path()); }),
              AllOf(HasSubstr(folder_.path()), HasSubstr("Input/output error")));
  EXPECT_THAT(message_of([&] { file.close(); }), HasSubstr(path_));
  fsync_error = EINVAL;  // a file system that needs none
  EXPECT_NO_THROW(sync_folder(folder_.path()));
  fsync_error = 0;
}

TEST_F(Files, AWriterThatIsNotClosedLeavesNoFile) {
  { FileWriter(path_).write("part", 4); }
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Files, AWriterPutsItsPiecesOneAfterTheOtherAndChecksumsThem) {
  FileWriter file(path_);
  file.write("a", 1);
  EXPECT_EQ(file.checksum(), checksum_of("a"));
  file.write("bc", 2);
  file.close();
  EXPECT_EQ(read_file(path_), "abc");
  EXPECT_EQ(file.checksum(), checksum_of("abc"));
}

TEST_F(Files, AWriterWithoutAPlaceIsAnError) {
  EXPECT_THROW(FileWriter(folder_.file("none/x")), Error);
  EXPECT_THROW(FileWriter{folder_.path()}, Error);
}

TEST_F(Files, ReadingWhatIsNoFileNamesItAndTheReason) {
  EXPECT_THAT(message_of([&] { read_file(path_); }), AllOf(HasSubstr(path_), HasSubstr("No such file or directory")));
  EXPECT_THAT(message_of([&] { read_file(folder_.path()); }), HasSubstr("Is a directory"));
}

// Known answers of xxHash64 with seed 0.
TEST_F(Files, AReaderOfWhatGivesNothingWaitsForData) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0666), 0);
  for (const std::string content : {"late", "later"}) {
    std::string found;
    std::thread rank([&] {
      this_thread_is_the_rank();
      found = content == "late" ? read_file(path_) : hex(file_checksum(path_));
    });
    while (activity().waits_for != WaitsFor::kData) std::this_thread::yield();
    write_bytes(path_, content);
    rank.join();
    EXPECT_EQ(found, content == "late" ? content : hex(checksum_of(content)));
    EXPECT_EQ(activity().waits_for, WaitsFor::kNothing);
  }
}

TEST_F(Files, ChecksumsAreXxHash64) {
  EXPECT_EQ(checksum_of(""), 0xef46db3751d8e999u);
  EXPECT_EQ(checksum_of("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(checksum_of("abc"), 0x44bc2cf5ad770999u);
}

TEST_F(Files, TheChecksumOfAFileIsThatOfItsBytes) {
  std::string bytes(200'001, 'x');
  bytes[150'000] = 'y';
  write_bytes(path_, bytes);
  EXPECT_EQ(file_checksum(path_), checksum_of(bytes));
  EXPECT_THROW(file_checksum(folder_.file("none")), Error);
  EXPECT_THROW(file_checksum(folder_.path()), Error);
}

TEST_F(Files, HexHasSixteenDigits) {
  EXPECT_EQ(hex(0), "0000000000000000");
  EXPECT_EQ(hex(0xef46db3751d8e999u), "ef46db3751d8e999");
}

TEST_F(Files, AFolderIsWritableWhereItIsThere) {
  EXPECT_TRUE(writable_folder(folder_.path()));
  EXPECT_FALSE(writable_folder(folder_.file("none")));
  write_bytes(path_, "x");
  EXPECT_FALSE(writable_folder(path_));
}

TEST_F(Files, SyncingAFolderThatIsNotThereIsAnError) {
  EXPECT_NO_THROW(sync_folder(folder_.path()));
  EXPECT_THROW(sync_folder(folder_.file("none")), Error);
}

TEST(FileLock, IsHeldOnceAtATimeAndReleasedAtItsEnd) {
  const TempFolder folder;
  {
    const FileLock mine(folder.file("log.txt"));
    EXPECT_FALSE(mine.held_by_another());
    EXPECT_TRUE(FileLock(folder.file("log.txt")).held_by_another());
    EXPECT_TRUE(is_locked(folder.file("log.txt")));
  }
  EXPECT_FALSE(is_locked(folder.file("log.txt")));
  EXPECT_FALSE(FileLock(folder.file("log.txt")).held_by_another());
}

TEST(FileLock, WhereNoFileCanBeMadeNothingIsHeld) {
  EXPECT_FALSE(FileLock("/no/such/folder/log.txt").held_by_another());
  EXPECT_FALSE(is_locked("/no/such/folder/log.txt"));
}

TEST_F(Files, AFileInPiecesTakesItsPlaceWhenItIsClosed) {
  write_file_atomically(path_, "old");
  { AtomicFileWriter(path_).write("part"); }
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_EQ(files_in(folder_), 1);
  AtomicFileWriter file(path_);
  file.write("one ");
  file.write("two");
  EXPECT_EQ(read_file(path_), "old");
  file.close();
  EXPECT_EQ(read_file(path_), "one two");
  EXPECT_EQ(files_in(folder_), 1);
}

TEST_F(Files, ByteOrderMarksAndLineEndsAreNoPartOfLines) {
  EXPECT_THAT(split_lines("\xEF\xBB\xBF"
                          "cat\r\ndog\n"),
              testing::ElementsAre("cat", "dog"));
}

TEST_F(Files, EmptyLinesCountUnlessNothingFollowsThem) {
  EXPECT_THAT(split_lines("\ncat\n\ndog\n\n\r\n"), testing::ElementsAre("", "cat", "", "dog"));
  EXPECT_THAT(split_lines("cat"), testing::ElementsAre("cat"));
  EXPECT_THAT(split_lines("\n\n"), testing::IsEmpty());
  EXPECT_THAT(split_lines(""), testing::IsEmpty());
}

TEST_F(Files, WhatAFileReplacesIsKeptUnderTheFirstFreeName) {
  EXPECT_EQ(write_keeping_old(path_, "one"), "");
  EXPECT_EQ(write_keeping_old(path_, "one"), "");
  EXPECT_EQ(write_keeping_old(path_, "two"), path_ + ".1");
  EXPECT_EQ(write_keeping_old(path_, "three"), path_ + ".2");
  EXPECT_EQ(read_file(path_), "three");
  EXPECT_EQ(read_file(path_ + ".1"), "one");
  EXPECT_EQ(read_file(path_ + ".2"), "two");
  EXPECT_EQ(files_in(folder_), 3);
}

TEST_F(Files, AWriteWithoutRoomIsDistinguishedFromOthers) {
  {
    const SmallDisk disk(100);
    EXPECT_THROW(write_file_atomically(path_, std::string(200, 'x')), NoRoom);
  }
  EXPECT_EQ(files_in(folder_), 0);
  try {
    write_file_atomically(folder_.file("none/file"), "x");
    FAIL();
  } catch (const NoRoom&) {
    FAIL() << "no folder is no lack of room";
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace owt::files_test
