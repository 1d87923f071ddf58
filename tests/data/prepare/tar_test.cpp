#include "data/prepare/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/system/check.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::tar_test {
namespace {

using testing::HasSubstr;

class TarTest : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  void shell(const std::string& command) const {
    ASSERT_EQ(std::system(("cd '" + folder_.path() + "' && " + command).c_str()), 0) << command;
  }
  static std::string error_of(const std::string& path) {
    return message_of([&] { tar_members(path); });
  }
  // The contents of the members, with their paths.
  static std::vector<std::pair<std::string, std::string>> contents(const std::string& path,
                                                                   const std::vector<TarMember>& members) {
    const std::string bytes = read_file(path);
    std::vector<std::pair<std::string, std::string>> found;
    for (const TarMember& member : members) found.emplace_back(member.name, bytes.substr(member.offset, member.bytes));
    return found;
  }

  TempFolder folder_;
};

TEST_F(TarTest, WhatIsWrittenIsFoundAtItsOffset) {
  std::vector<std::pair<std::string, std::string>> files{
      {"000000.jpg", std::string(700, 'a')}, {"000000.cls", "7"}, {"000001.jpg", std::string(512, 'b')}, {"empty", ""}};
  TarWriter tar(file("x.tar"));
  std::vector<uint64_t> offsets;
  for (const auto& [name, content] : files) offsets.push_back(tar.add(name, content));
  const uint64_t bytes = tar.close();
  EXPECT_EQ(bytes, read_file(file("x.tar")).size());
  const std::vector<TarMember> members = tar_members(file("x.tar"));
  EXPECT_EQ(contents(file("x.tar"), members), files);
  for (size_t i = 0; i < members.size(); ++i) EXPECT_EQ(members[i].offset, offsets[i]);
}

TEST_F(TarTest, AnUnfinishedFileIsGone) {
  { TarWriter(file("x.tar")).add("a", "b"); }
  EXPECT_FALSE(std::filesystem::exists(file("x.tar")));
}

TEST_F(TarTest, AFullDiskIsAnError) {
  const SmallDisk disk(100000);
  TarWriter tar(file("x.tar"));
  const std::string megabyte(1 << 20, 'x');
  EXPECT_THROW(
      {
        tar.add("a", megabyte);
        tar.close();
      },
      Error);
}

TEST_F(TarTest, LongNamesAndOtherDialectsAreRead) {
  const std::string name(150, 'n'), deep = std::string(90, 'd') + "/" + std::string(120, 'e');
  shell("mkdir " + std::string(90, 'd') + " && printf one > " + name + " && printf two > " + deep);
  for (const std::string dialect : {"gnu", "posix", "ustar"}) {
    const std::string members = dialect == "ustar" ? "short" : name + " " + deep;
    shell("printf three > short; tar --format=" + dialect + " -cf " + dialect + ".tar " + members);
    const auto found = contents(file(dialect + ".tar"), tar_members(file(dialect + ".tar")));
    if (dialect == "ustar")
      EXPECT_THAT(found, testing::ElementsAre(std::pair("short", "three")));
    else
      EXPECT_THAT(found, testing::ElementsAre(std::pair(name, "one"), std::pair(deep, "two")));
  }
}

TEST_F(TarTest, OnlyFilesAreMembers) {
  shell(
      "mkdir d && printf one > d/file && ln d/file d/hard && ln -s file d/soft && mkfifo d/pipe && tar --sort=name -cf "
      "x.tar d");
  EXPECT_THAT(contents(file("x.tar"), tar_members(file("x.tar"))), testing::ElementsAre(std::pair("d/file", "one")));
}

TEST_F(TarTest, ATarFileInsideAnotherIsReadInPlace) {
  shell(
      "mkdir d; for i in 1 2 3; do printf pic$i > d/$i.jpg; done; tar -cf a.tar d/1.jpg d/2.jpg; tar -cf b.tar "
      "d/3.jpg");
  shell("tar -cf none.tar -T /dev/null; tar -cf all.tar a.tar none.tar b.tar");
  std::vector<std::pair<std::string, std::string>> found;
  for (const TarMember& inner : tar_members(file("all.tar")))
    for (const auto& one : contents(file("all.tar"), tar_members(file("all.tar"), inner.offset, inner.bytes)))
      found.push_back(one);
  EXPECT_THAT(found, testing::ElementsAre(std::pair("d/1.jpg", "pic1"), std::pair("d/2.jpg", "pic2"),
                                          std::pair("d/3.jpg", "pic3")));
}

TEST_F(TarTest, WhatIsNoPlainWholeTarFileIsAnError) {
  shell("head -c 5000 /dev/zero | tr '\\0' x > a; head -c 9000 /dev/zero | tr '\\0' y > b");
  shell("tar -cf x.tar a b; gzip -k x.tar; head -c 9000 x.tar > cut.tar; head -c 6300 x.tar > header.tar");
  EXPECT_THAT(error_of(file("x.tar.gz")), testing::AllOf(HasSubstr("x.tar.gz"), HasSubstr("uncompressed")));
  EXPECT_THAT(error_of(file("cut.tar")), HasSubstr("cut.tar"));
  EXPECT_THAT(error_of(file("header.tar")), HasSubstr("header.tar"));
  EXPECT_THAT(error_of(file("none.tar")), HasSubstr("No such file"));
  write_bytes(file("text"), std::string(2000, 't'));
  EXPECT_THAT(error_of(file("text")), HasSubstr("text"));
}

TEST_F(TarTest, MembersOfACompressedArchiveAreUnpackedByTheirNames) {
  shell("mkdir -p kit/data; printf 12 > kit/data/truth.txt; printf no > kit/readme; tar -czf kit.tar.gz kit");
  EXPECT_THAT(unpacked_members(file("kit.tar.gz"), {"data/truth.txt"}),
              testing::ElementsAre(std::pair("kit/data/truth.txt", "12")));
  EXPECT_THROW(unpacked_members(file("none.tar.gz"), {"x"}), Error);
}

// Libarchive would start a program for some of them.
TEST_F(TarTest, NoOtherFilterThanGzipIsUsed) {
  for (const bool encoded : {false, true}) {
    struct archive* out = archive_write_new();
    archive_write_set_format_ustar(out);
    if (encoded) archive_write_add_filter_uuencode(out);
    ASSERT_EQ(archive_write_open_filename(out, file("kit").c_str()), ARCHIVE_OK);
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, "truth.txt");
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_size(entry, 2);
    archive_write_header(out, entry);
    archive_write_data(out, "12", 2);
    archive_entry_free(entry);
    archive_write_free(out);
    if (encoded)
      EXPECT_THROW(unpacked_members(file("kit"), {"truth.txt"}), Error);
    else
      EXPECT_EQ(unpacked_members(file("kit"), {"truth.txt"}).size(), 1u);
  }
}

TEST_F(TarTest, AMemberThatUnpacksToMoreThanItMayIsAnError) {
  shell("head -c 200000 /dev/zero > zeros; tar -czf bomb.tar.gz zeros");
  EXPECT_EQ(unpacked_members(file("bomb.tar.gz"), {"zeros"}, 200'000)[0].second.size(), 200'000u);
  EXPECT_THAT(message_of([&] { unpacked_members(file("bomb.tar.gz"), {"zeros"}, 199'999); }),
              testing::HasSubstr("zeros unpacks to more than 199999 bytes"));
  shell("cp zeros more_zeros; tar -czf bombs.tar.gz zeros more_zeros");
  EXPECT_THROW(unpacked_members(file("bombs.tar.gz"), {"zeros"}, 399'999), Error) << "all of them together";
}

}  // namespace
}  // namespace owt::tar_test
