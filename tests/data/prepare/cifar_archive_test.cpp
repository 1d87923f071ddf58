#include "data/prepare/cifar_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/cifar.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::cifar_archive_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string record(char label) { return label + std::string(3072, 'x'); }

int first_test_label(const std::string& dir) { return read_cifar(dir, CifarKind::k10, Split::kTest)->label(0); }

struct Entry {
  std::string name, content;
  mode_t type = AE_IFREG;
};

std::string tar_header(const std::string& name, int64_t bytes) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(124, format("{:011o}", bytes));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, "ustar  ");
  int sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, format("{:06o}", sum));
  header[154] = '\0';
  return header;
}

class CifarArchive : public testing::Test {
 protected:
  const std::string& dir() const { return folder_.path(); }
  std::string archive() const { return dir() + "/made.tar.gz"; }
  std::string target() const { return dir() + "/out/cifar-10-batches-bin"; }

  void make_archive(const std::vector<Entry>& entries) {
    struct archive* out = archive_write_new();
    archive_write_add_filter_gzip(out);
    archive_write_set_format_ustar(out);
    ASSERT_EQ(archive_write_open_filename(out, archive().c_str()), ARCHIVE_OK);
    for (const Entry& item : entries) {
      archive_entry* entry = archive_entry_new();
      archive_entry_set_pathname(entry, item.name.c_str());
      archive_entry_set_filetype(entry, item.type);
      archive_entry_set_perm(entry, 0755);
      if (item.type == AE_IFLNK) archive_entry_set_symlink(entry, item.content.c_str());
      archive_entry_set_size(entry, item.type == AE_IFREG ? static_cast<int64_t>(item.content.size()) : 0);
      archive_write_header(out, entry);
      if (item.type == AE_IFREG) archive_write_data(out, item.content.data(), item.content.size());
      archive_entry_free(entry);
    }
    archive_write_free(out);
  }
  std::vector<Entry> good() const {
    return {{"cifar-10-batches-bin/", "", AE_IFDIR},
            {"cifar-10-batches-bin/data_batch_1.bin", record(3)},
            {"cifar-10-batches-bin/test_batch.bin", record(6)}};
  }
  std::string unpack_error() {
    return message_of([&] { unpack_cifar_archive(archive(), dir() + "/out"); });
  }
  // No data set and no temporary files exist.
  void expect_nothing() {
    EXPECT_TRUE(!fs::exists(dir() + "/out") || fs::is_empty(dir() + "/out"));
    EXPECT_FALSE(fs::exists(dir() + "/evil"));
  }

  TempFolder folder_;
};

TEST_F(CifarArchive, UnpacksAndLeavesNoOtherFile) {
  make_archive(good());
  EXPECT_EQ(unpack_cifar_archive(archive(), dir() + "/out"), target());
  EXPECT_EQ(first_test_label(dir() + "/out"), 6);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir() + "/out"), {}), 1);
}

TEST_F(CifarArchive, RejectsPathsThatLeaveTheFolder) {
  for (const std::string& name :
       {std::string("../evil"), std::string("cifar-10-batches-bin/../../evil"), dir() + "/evil"}) {
    auto entries = good();
    entries.push_back({name, "x"});
    make_archive(entries);
    EXPECT_THAT(unpack_error(), HasSubstr("lies outside")) << name;
    expect_nothing();
  }
}

TEST_F(CifarArchive, RejectsLinks) {
  auto entries = good();
  entries.push_back({"cifar-10-batches-bin/link", "/etc", AE_IFLNK});
  make_archive(entries);
  EXPECT_THAT(unpack_error(), HasSubstr("neither a file nor a folder"));
  expect_nothing();
}

TEST_F(CifarArchive, PassesOverWhatNoOfficialArchiveHolds) {
  auto entries = good();
  entries[1].name = "./" + entries[1].name;
  entries.push_back({"cifar-10-batches-bin/junk", "x"});
  entries.push_back({"junk", "x"});
  make_archive(entries);
  EXPECT_EQ(unpack_cifar_archive(archive(), dir() + "/out"), target());
  EXPECT_EQ(std::distance(fs::directory_iterator(target()), {}), 2);
}

// The header states the size; no data needs to follow.
TEST_F(CifarArchive, RejectsMoreBytesThanCifarHas) {
  for (const std::string name : {"junk", "cifar-10-batches-bin/data_batch_2.bin"}) {
    write_bytes(archive(), tar_header(name, (int64_t{1} << 28) + 1));
    EXPECT_THAT(unpack_error(), HasSubstr("unpacks to more than 268435456 bytes"));
    expect_nothing();
  }
}

TEST_F(CifarArchive, RejectsADamagedArchive) {
  make_archive(good());
  const std::string whole = read_file(archive());
  write_file_atomically(archive(), whole.substr(0, whole.size() / 2));
  EXPECT_THAT(unpack_error(), HasSubstr("cannot unpack it"));
  expect_nothing();
}

TEST_F(CifarArchive, RejectsDataThatCannotBeRead) {
  auto entries = good();
  entries[2].content.pop_back();
  make_archive(entries);
  EXPECT_THAT(unpack_error(), HasSubstr("test_batch.bin has 3072 bytes"));
  expect_nothing();
}

TEST_F(CifarArchive, RejectsAnotherArchiveAndAMissingOne) {
  EXPECT_THAT(unpack_error(), HasSubstr("no archive"));
  make_archive({{"readme.txt", "hello"}});
  EXPECT_THAT(unpack_error(), HasSubstr("holds neither cifar-10-batches-bin nor cifar-100-binary"));
}

TEST_F(CifarArchive, KeepsAFolderThatIsThere) {
  fs::create_directories(target());
  write_file_atomically(target() + "/test_batch.bin", record(1));
  make_archive(good());
  EXPECT_THAT(unpack_error(), HasSubstr("exists already"));
  EXPECT_EQ(first_test_label(target()), 1);
}

}  // namespace
}  // namespace owt::cifar_archive_test
