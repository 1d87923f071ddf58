#include "data/prepare/record_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "data/photos/photo.h"
#include "src/system/check.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::record_io_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string little(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
const std::string kMagic = little(uint32_t{0xced7230a});

std::string part(uint32_t kind, const std::string& content) {
  return kMagic + little(kind << 29 | static_cast<uint32_t>(content.size())) + content +
         std::string((4 - content.size() % 4) % 4, '\0');
}
std::string content(const std::vector<float>& labels, uint64_t id, const std::string& image) {
  const bool one = labels.size() == 1;
  std::string all = little(one ? 0u : static_cast<uint32_t>(labels.size())) + little(one ? labels[0] : 99.0f) +
                    little(id) + little(uint64_t{0});
  for (const float label : labels)
    if (!one) all += little(label);
  return all + image;
}
std::string record(const std::vector<float>& labels, uint64_t id, const std::string& image) {
  return part(0, content(labels, id, image));
}

class RecordIoTest : public ::testing::Test {
 protected:
  // Writes the records, and their index if there are keys.
  void write(const std::vector<std::string>& records, const std::vector<uint64_t>& keys = {}) {
    std::string all, index;
    for (size_t i = 0; i < records.size(); ++i) {
      if (!keys.empty()) index += concat(keys[i], "\t", all.size(), "\n");
      all += records[i];
    }
    write_bytes(path_, all);
    if (!keys.empty()) write_bytes(folder_.file("train.idx"), index);
  }
  std::vector<std::string> images(const PhotoSources& sources) const {
    const PhotoFiles files(sources);
    std::vector<std::string> all;
    for (const PhotoSource& photo : sources.photos)
      all.push_back(concat(photo.name, " ", photo.label, " ", files.read(photo)));
    return all;
  }
  std::string error() const {
    return message_of([&] { record_sources(path_, {}); });
  }

  TempFolder folder_;
  const std::string path_ = folder_.file("train.rec");
};

TEST_F(RecordIoTest, SetsOfFacesHaveRecordsOfIdentitiesToo) {
  write({record({1}, 1, "one"), record({0, 7}, 2, "two"), record({1}, 3, "three"), record({4, 6}, 0, ""),
         record({1, 3}, 4, ""), record({3, 4}, 5, "not an image")},
        {1, 2, 3, 0, 4, 5});
  const PhotoSources sources = record_sources(path_, {});
  EXPECT_THAT(images(sources), ElementsAre("train.rec:1 1 one", "train.rec:2 0 two", "train.rec:3 1 three"));
  EXPECT_THAT(sources.classes, ElementsAre("0", "1"));
}

TEST_F(RecordIoTest, WithoutAnIndexTheIdIsTheKey) {
  write({record({4, 6}, 0, ""), record({0}, 3, "three"), record({0}, 4, "four"), record({0}, 2, "two")});
  EXPECT_THAT(images(record_sources(path_, {})), ElementsAre("train.rec:3 0 three", "train.rec:2 0 two"));
}

TEST_F(RecordIoTest, AnImageMayHaveTheKeyZero) {
  write({record({1, 1}, 0, "zero"), record({0}, 1, "one")});
  EXPECT_THAT(images(record_sources(path_, {})), ElementsAre("train.rec:0 1 zero", "train.rec:1 0 one"));
}

TEST_F(RecordIoTest, AnIndexNamesTheKeysAndMayLeaveRecordsOut) {
  const std::string first = record({0}, 0, "a"), second = record({0, 1}, 0, "bb"), third = record({2}, 0, "ccc");
  write_bytes(path_, first + second + third);
  write_bytes(folder_.file("train.idx"), concat("9\t", first.size(), "\r\n", "8\t0\n"));
  EXPECT_THAT(images(record_sources(path_, {})), ElementsAre("train.rec:8 0 a", "train.rec:9 0 bb"));
}

TEST_F(RecordIoTest, ContentsAreCutWhereTheyHoldTheNumber) {
  const std::string head = content({5}, 1, "");
  write({part(1, head + "abcd") + part(2, "") + part(3, "efg"), part(0, content({6}, 2, "h")),
         part(1, head) + part(3, "")});
  EXPECT_THAT(images(record_sources(path_, {})), ElementsAre("train.rec:1 5 abcd" + kMagic + kMagic + "efg",
                                                             "train.rec:2 6 h", "train.rec:1 5 " + kMagic));
}

TEST_F(RecordIoTest, ClassesThatAreKnownBoundTheLabels) {
  write({record({1}, 1, "a")});
  EXPECT_THAT(record_sources(path_, {"ann", "bob", "eve"}).classes, ElementsAre("ann", "bob", "eve"));
  EXPECT_THAT(message_of([&] { record_sources(path_, {"ann"}); }),
              HasSubstr("record 1 has label 1, but there are 1 classes"));
}

TEST_F(RecordIoTest, LabelsAreIntegersFromZero) {
  for (const float label :
       {0.5f, -1.0f, 16777216.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    write({record({0}, 1, "a"), record({label}, 2, "b")});
    EXPECT_THAT(message_of([&] { image_records(path_, ""); }), HasSubstr("train.rec: record 2 has label ")) << label;
  }
  write({record({16777215}, 2, "b")});
  EXPECT_EQ(image_records(path_, "").at(0).label, 16777215);
}

TEST_F(RecordIoTest, DamagedFilesAreNamedWithThePlace) {
  const std::string good = record({0}, 1, "abc");
  const auto wrong = [&](const std::string& bytes) {
    write({good, bytes});
    return error();
  };
  const std::string at = concat("train.rec, byte ", good.size(), ": ");
  EXPECT_THAT(wrong("text"), HasSubstr(at + "the record ends beyond the file"));
  EXPECT_THAT(wrong("some text"), HasSubstr(at + "damaged record: a part does not begin with its number"));
  EXPECT_THAT(wrong(kMagic + little(uint32_t{4u << 29})), HasSubstr(at + "damaged record: a part of an unknown kind"));
  EXPECT_THAT(wrong(part(2, "abcd") + part(3, "")), HasSubstr(at + "damaged record: its parts are in another order"));
  EXPECT_THAT(wrong(part(1, "abcd") + part(0, "")), HasSubstr(at + "damaged record: its parts are in another order"));
  EXPECT_THAT(wrong(part(0, "abcd")), HasSubstr(at + "truncated record"));
  EXPECT_THAT(wrong(part(0, content({1, 2, 3}, 1, "").substr(0, 32))),
              HasSubstr(at + "damaged record: it ends before its labels"));
  for (size_t bytes = 1; bytes < good.size(); ++bytes) EXPECT_THAT(wrong(good.substr(0, bytes)), HasSubstr(at));
  write({record({2, 3}, 0, ""), record({1}, 2, "")});
  EXPECT_THAT(error(), HasSubstr("train.rec holds no images"));
  EXPECT_THAT(message_of([&] { record_sources(folder_.file("none.rec"), {}); }), HasSubstr("No such file"));
  EXPECT_THAT(message_of([&] { record_sources(folder_.path(), {}); }), HasSubstr("no regular file"));
}

TEST_F(RecordIoTest, AnIndexOfAnotherFileIsRefused) {
  write({record({0}, 1, "a"), record({0}, 2, "b")});
  const auto wrong = [&](const std::string& index) {
    write_bytes(folder_.file("train.idx"), index);
    return error();
  };
  for (const char* line : {"", "1", "1 0", "1\t", "\t0", "1\t0x", "1\t-1", "1\t99999999999999999999"})
    EXPECT_THAT(wrong(concat("1\t0\n", line, "\n")), HasSubstr("train.idx:2: wanted `key<TAB>offset`")) << line;
  EXPECT_THAT(wrong("1\t0\n2\t0\n"), HasSubstr("train.idx: offset 0 is there twice"));
  EXPECT_THAT(wrong("1\t0\n2\t4\n"), HasSubstr("train.idx has offset 4, but no record of "));
  EXPECT_THAT(wrong("1\t4000\n"), HasSubstr("train.idx has offset 4000, but no record of "));
}

TEST_F(RecordIoTest, ARecordThatWasDamagedLaterIsABadPhoto) {
  write({record({0}, 1, "abc")});
  const PhotoSources sources = record_sources(path_, {});
  write({"damaged, " + record({0}, 1, "abc")});
  EXPECT_THROW(PhotoFiles(sources).read(sources.photos[0]), BadPhoto);
}

}  // namespace
}  // namespace owt::record_io_test
