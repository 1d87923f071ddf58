// Headers and codes built byte by byte; jpeg_window_test.cpp tests photos.
#include "data/jpeg/baseline_jpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/jpeg/bad_photo.h"
#include "tests/support/made_photos.h"
#include "tests/support/message_of.h"

namespace owt::baseline_jpeg_test {
namespace {

using testing::HasSubstr;

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

std::string segment(int marker, const std::string& body) {
  return bytes_of({0xff, marker}) + big_endian(static_cast<uint32_t>(body.size() + 2), 2) + body;
}

// A Huffman table with one code of 1 bit, '0', one of 2 bits, '10', and so on.
std::string codes(int kind_and_number, const std::string& symbols) {
  std::string counts(16, '\0');
  for (size_t i = 0; i < symbols.size(); ++i) counts[i] = 1;
  return bytes_of({kind_and_number}) + counts + symbols;
}

// A grey image of one block. Bits: '0' is a first coefficient of 0; then '0' and a bit skips 15 places and sets the
// next to 1 or -1, '10' ends the block.
struct OneBlock {
  std::string before = "";  // the frame
  std::string steps = bytes_of({0}) + std::string(64, '\1');
  std::string frame = bytes_of({8, 0, 8, 0, 8, 1, 1, 0x11, 0});
  std::string firsts = codes(0x00, bytes_of({0})), others = codes(0x10, bytes_of({0xf1, 0x00}));
  std::string scan = bytes_of({1, 1, 0x00, 0, 63, 0});
  std::string data = bytes_of({0b0'10'00000});

  std::string file() const {
    return bytes_of({0xff, 0xd8}) + before + segment(0xdb, steps) + segment(0xc0, frame) + segment(0xc4, firsts) +
           segment(0xc4, others) + segment(0xda, scan) + data + bytes_of({0xff, 0xd9});
  }
};

bool opens(const OneBlock& made) {
  const std::string file = made.file();
  return BaselineJpeg().open(file);
}

std::vector<uint8_t> decoded(const OneBlock& made) {
  const std::string file = made.file();
  BaselineJpeg jpeg;
  EXPECT_TRUE(jpeg.open(file));
  std::vector<uint8_t> rgb(8 * 8 * 3);
  jpeg.decode({0, 0, 8, 8}, 3, rgb.data());
  return rgb;
}

TEST(BaselineJpeg, ABlockOfZerosIsGrey) { EXPECT_EQ(decoded({}), std::vector<uint8_t>(8 * 8 * 3, 128)); }

TEST(BaselineJpeg, OfABlockNoMoreThanItsPlacesAreFilled) {
  // 16, 32 and 48 are places of the block, 64 is none.
  EXPECT_NO_THROW(decoded({.data = bytes_of({0b0'01'01'01'1, 0b0'0000000})}));
  EXPECT_THAT(message_of<BadPhoto>([] {
                decoded({.data = bytes_of({0b0'01'01'01'0, 0b1'0000000})});
              }),
              HasSubstr("too many coefficients"));
}

TEST(BaselineJpeg, ACodeThatNoTableHasIsDamage) {
  EXPECT_THAT(message_of<BadPhoto>([] { decoded({.data = bytes_of({0b10000000})}); }), HasSubstr("no such code"));
  EXPECT_THROW(decoded({.data = bytes_of({0b0'11'00000})}), BadPhoto);
}

TEST(BaselineJpeg, DataThatEndTooSoonAreDamage) {
  // After the end of the data zeros are read, which are whole blocks here.
  const std::string end_of_block = codes(0x10, bytes_of({0}));
  EXPECT_NO_THROW(decoded({.others = end_of_block, .data = bytes_of({0})}));
  EXPECT_THAT(message_of<BadPhoto>([&] { decoded({.others = end_of_block, .data = ""}); }), HasSubstr("ends too soon"));
}

TEST(BaselineJpeg, FilesOfOtherKindsAreLeftToLibjpeg) {
  EXPECT_TRUE(opens({}));
  EXPECT_TRUE(opens({.before = segment(0xe0, "JFIF") + segment(0xef, "") + segment(0xfe, "a comment")}));
  const auto frame = [](std::initializer_list<int> values) { return OneBlock{.frame = bytes_of(values)}; };
  const std::pair<const char*, OneBlock> others[] = {
      {"12 bits", frame({12, 0, 8, 0, 8, 1, 1, 0x11, 0})},
      {"no rows", frame({8, 0, 0, 0, 8, 1, 1, 0x11, 0})},
      {"no columns", frame({8, 0, 8, 0, 0, 1, 1, 0x11, 0})},
      {"two components", frame({8, 0, 8, 0, 8, 2, 1, 0x11, 0, 2, 0x11, 0})},
      {"a component too few", frame({8, 0, 8, 0, 8, 3, 1, 0x11, 0})},
      {"steps of table 4", frame({8, 0, 8, 0, 8, 1, 1, 0x11, 4})},
      {"steps that are not there", frame({8, 0, 8, 0, 8, 1, 1, 0x11, 1})},
      {"three samples across", frame({8, 0, 8, 0, 8, 1, 1, 0x31, 0})},
      {"three samples down", frame({8, 0, 8, 0, 8, 1, 1, 0x13, 0})},
      {"no samples", frame({8, 0, 8, 0, 8, 1, 1, 0x01, 0})},
      {"two frames", {.before = segment(0xc0, OneBlock().frame)}},
      {"a progressive frame", {.before = segment(0xc2, OneBlock().frame)}},
      {"Adobe's marker", {.before = segment(0xee, "Adobe")}},
      {"an interval of three bytes", {.before = segment(0xdd, "abc")}},
      {"16-bit steps", {.steps = bytes_of({0x10}) + std::string(128, '\1')}},
      {"steps cut short", {.steps = bytes_of({0}) + std::string(63, '\1')}},
      {"a third kind of codes", {.others = codes(0x20, bytes_of({0}))}},
      {"codes of table 4", {.others = codes(0x14, bytes_of({0}))}},
      {"codes cut short", {.others = codes(0x10, bytes_of({0, 1})).substr(0, 18)}},
      {"first coefficients of 12 bits", {.firsts = codes(0x00, bytes_of({12}))}},
      {"coefficients of 11 bits", {.others = codes(0x10, bytes_of({0x0b}))}},
      {"a run without a value", {.others = codes(0x10, bytes_of({0x50}))}},
      {"no codes of first coefficients", {.firsts = codes(0x01, bytes_of({0}))}},
      {"no codes of the others", {.others = codes(0x11, bytes_of({0}))}},
      {"a scan of two components", {.scan = bytes_of({2, 1, 0x00, 2, 0x00, 0, 63, 0})}},
      {"a scan of another component", {.scan = bytes_of({1, 2, 0x00, 0, 63, 0})}},
      {"a scan with codes of table 4", {.scan = bytes_of({1, 1, 0x40, 0, 63, 0})}},
      {"a scan before its frame", {.before = segment(0xda, OneBlock().scan)}},
      {"rubbish between its parts", {.before = "x"}},
  };
  for (const auto& [what, made] : others) EXPECT_FALSE(opens(made)) << what;
}

TEST(BaselineJpeg, CodesOfElevenAndTenBitsAreTheLongest) {
  EXPECT_TRUE(opens({.firsts = codes(0x00, bytes_of({11}))}));
  EXPECT_TRUE(opens({.others = codes(0x10, bytes_of({0x0a, 0xf0}))}));
}

// Only the first three tables exist; chroma has half the size.
TEST(BaselineJpeg, OfThreeComponentsOnlyTheFirstMayBeFiner) {
  const auto frame = [](int first, int second, int third_id) {
    OneBlock made{.frame = bytes_of({8, 0, 8, 0, 8, 3, 1, first, 0, 2, second, 0, third_id, 0x11, 0})};
    made.scan = bytes_of({3, 1, 0, 2, 0, third_id, 0, 0, 63, 0});
    return made;
  };
  for (const int first : {0x11, 0x12, 0x21, 0x22}) EXPECT_TRUE(opens(frame(first, 0x11, 3))) << first;
  EXPECT_FALSE(opens(frame(0x11, 0x21, 3)));
  EXPECT_FALSE(opens(frame(0x11, 0x12, 3)));
  EXPECT_FALSE(opens(frame(0x41, 0x11, 3)));
  EXPECT_FALSE(opens(frame(0x11, 0x11, 4)));  // libjpeg guesses the colours of these
}

}  // namespace
}  // namespace owt::baseline_jpeg_test
