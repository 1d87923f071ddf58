#include "data/contact_sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data/memory_dataset.h"

namespace owt::contact_sheet_test {
namespace {

// Images of 2 x 2 x 3, image i all of the value 10 * i.
MemoryDataset grey_images(int64_t size) {
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < size; ++i) pixels.insert(pixels.end(), 12, static_cast<uint8_t>(10 * i));
  return {{2, 2, 3}, 1, pixels, std::vector<uint8_t>(static_cast<size_t>(size))};
}

uint8_t at(const Photo& photo, int64_t y, int64_t x, int64_t c = 0) {
  return photo.pixels[static_cast<size_t>((y * photo.width + x) * 3 + c)];
}

TEST(ContactSheet, ShowsEverySampleOnceInItsOwnColours) {
  AugmentSettings augment;
  augment.mirror = true;
  augment.mean = augment.std = AugmentSettings::From::kValues;
  augment.mean_values = {100, 110, 120};
  augment.std_values = {50, 60, 70};
  const Photo sheet = contact_sheet(grey_images(5), augment, {}, {.samples = 64, .columns = 3});
  EXPECT_EQ(sheet.height, 2 * (2 + 4) + 4);
  EXPECT_EQ(sheet.width, 3 * (2 + 4) + 4);
  std::set<int> seen;
  for (int i = 0; i < 5; ++i) {
    const int64_t y = 4 + i / 3 * 6, x = 4 + i % 3 * 6;
    seen.insert(at(sheet, y, x));
    EXPECT_EQ(at(sheet, y, x, 1), at(sheet, y, x));
    EXPECT_EQ(at(sheet, y + 1, x + 1, 2), at(sheet, y, x));
  }
  EXPECT_THAT(seen, testing::ElementsAre(0, 10, 20, 30, 40));
  EXPECT_EQ(at(sheet, 10, 16), 255) << "nothing at the place of a sixth";
  EXPECT_EQ(at(sheet, 3, 3), 255) << "a gap";
}

TEST(ContactSheet, HasTheNameOfEachClassBelowEnlargedTiles) {
  const auto sheet_of = [](std::vector<std::string> names) {
    MemoryDataset images({2, 2, 3}, 2, std::vector<uint8_t>(12, 10), {1}, std::move(names));
    return contact_sheet(images, {}, {}, {.names = true});
  };
  const Photo sheet = sheet_of({"cat", "dog"});
  EXPECT_EQ(sheet.height, 4 + 96 + 16 + 4);
  EXPECT_EQ(sheet.width, 4 + 96 + 4);
  EXPECT_EQ(at(sheet, 4 + 95, 4 + 95), 10);
  int dark = 0;
  for (int64_t y = 4 + 96; y < sheet.height; ++y)
    for (int64_t x = 0; x < sheet.width; ++x) dark += at(sheet, y, x) < 128;
  EXPECT_GT(dark, 10);
  EXPECT_EQ(sheet.pixels, sheet_of({"cow", "dog"}).pixels);
  EXPECT_NE(sheet.pixels, sheet_of({"dog", "cat"}).pixels);
  EXPECT_EQ(sheet_of({"cat", std::string(500, 'x')}).width, sheet.width);
}

TEST(ContactSheet, EndsWithItsLastRowOfSamples) {
  for (const int64_t size : {3, 4, 6})
    EXPECT_EQ(contact_sheet(grey_images(size), {}, {}, {.samples = 64, .columns = 3}).height, (size + 2) / 3 * 6 + 4);
}

TEST(ContactSheet, IsNoWiderThanItsSamples) {
  EXPECT_EQ(contact_sheet(grey_images(2), {}, {}, {.samples = 64, .columns = 3}).width, 2 * 6 + 4);
  EXPECT_EQ(contact_sheet(grey_images(5), {}, {}, {.samples = 1, .columns = 3}).width, 6 + 4);
}

TEST(ContactSheet, ShowsPaddingAsGreyAndChangesOfColour) {
  AugmentSettings augment;
  augment.pad = 2;
  augment.crop = 6;
  const Photo padded = contact_sheet(grey_images(1), augment, {}, {});
  EXPECT_EQ(at(padded, 4, 4), 128);
  EXPECT_EQ(at(padded, 6, 6), 0);
  AugmentSettings coloured;
  coloured.color = 40;
  const Photo changed = contact_sheet(grey_images(20), coloured, {}, {.samples = 20, .columns = 20});
  int different = 0;
  for (int i = 0; i < 20; ++i) different += at(changed, 4, 4 + 6 * i, 0) != at(changed, 4, 4 + 6 * i, 1);
  EXPECT_GT(different, 10);
}

}  // namespace
}  // namespace owt::contact_sheet_test
