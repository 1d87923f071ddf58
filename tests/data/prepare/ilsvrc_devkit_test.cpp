#include "data/prepare/ilsvrc_devkit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/check.h"
#include "tests/support/made_devkit.h"
#include "tests/support/made_photos.h"
#include "tests/support/message_of.h"

namespace owt::ilsvrc_devkit_test {
namespace {

using testing::HasSubstr;

const std::vector<MadeSynset> kSynsets{
    {1, "n02119789", "kit fox, Vulpes macrotis"}, {2, "n01440764", "tench"}, {1001, "n00001740", "entity"}};

std::string meta_mat(bool packed) { return made_meta_mat(kSynsets, packed ? deflated : nullptr); }

TEST(IlsvrcDevkit, SynsetsAreReadFromAMatlabFile) {
  for (const bool packed : {false, true}) {
    const auto synsets = parse_synsets(meta_mat(packed), "kit");
    ASSERT_EQ(synsets.size(), 3u);
    EXPECT_EQ(synsets.at(1).wnid, "n02119789");
    EXPECT_EQ(synsets.at(1).words, "kit fox, Vulpes macrotis");
    EXPECT_EQ(synsets.at(2).wnid, "n01440764");
    EXPECT_EQ(synsets.at(1001).words, "entity");
  }
}

std::string error_of(const std::string& mat) {
  return message_of([&] { parse_synsets(mat, "kit.tar.gz"); });
}

TEST(IlsvrcDevkit, ATruncatedMatlabFileIsAnError) {
  for (const bool packed : {false, true}) {
    const std::string mat = meta_mat(packed);
    for (size_t bytes = 0; bytes < mat.size(); ++bytes)
      EXPECT_THAT(error_of(mat.substr(0, bytes)), HasSubstr("kit.tar.gz")) << bytes;
  }
}

TEST(IlsvrcDevkit, AnIdThatNoSynsetCanHaveIsAnError) {
  const std::string mat = made_meta_mat({{1, "n02119789", "kit fox"}}), one = mat_number(1);
  for (const float bad : {1e30f, -1.0f, 0.0f, std::nanf("")}) {
    std::string changed = mat;
    changed.replace(changed.find(one), one.size(), mat_single(bad));  // same number of bytes
    EXPECT_THAT(error_of(changed), HasSubstr("kit.tar.gz")) << bad;
  }
}

TEST(IlsvrcDevkit, FlippedBitsNeverCrash) {
  for (const bool packed : {false, true}) {
    const std::string mat = meta_mat(packed);
    for (size_t bit = 128 * 8; bit < mat.size() * 8; ++bit) {
      std::string bad = mat;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      const std::string error = error_of(bad);
      EXPECT_TRUE(error.empty() || error.find("kit.tar.gz") != std::string::npos) << error;
    }
  }
}

}  // namespace
}  // namespace owt::ilsvrc_devkit_test
