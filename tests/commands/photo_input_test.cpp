#include "src/commands/photo_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::photo_input_test {
namespace {

using ::testing::HasSubstr;

DataSettings shards(int64_t crop, int64_t short_side) {
  DataSettings data;
  data.format = "shards";
  data.crop.crop = crop;
  data.crop.short_side = short_side;
  data.image = {crop, crop, 3};
  return data;
}

DataSettings cifar(int64_t crop) {
  DataSettings data;
  data.format = "cifar10";
  data.augment.crop = crop;
  return data;
}

// Red is the row, green the column.
Photo numbered(int64_t height, int64_t width) {
  Photo photo{height, width, std::vector<uint8_t>(static_cast<size_t>(height * width * 3))};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      photo.pixels[static_cast<size_t>((y * width + x) * 3)] = static_cast<uint8_t>(y);
      photo.pixels[static_cast<size_t>((y * width + x) * 3 + 1)] = static_cast<uint8_t>(x);
    }
  return photo;
}

// Row and column of the photo that the upper left corner of a view shows, and the column of the upper right one.
struct Corner {
  float row, left, right;
  bool operator==(const Corner&) const = default;
};
Corner corner(const PhotoInput& input, const Photo& photo, int view) {
  const int64_t side = input.shape()[0];
  std::vector<float> out(static_cast<size_t>(input.shape().elements()), -1);
  input.make(photo, view, out.data());
  return {out[0], out[1], out[static_cast<size_t>((side - 1) * 3 + 1)]};
}

TEST(PhotoInput, WhatIsNoFileIsRefusedAndNotReadWithoutEnd) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo(folder.file("pipe.jpg").c_str(), 0600), 0);
  write_bytes(folder.file("huge.jpg"), "");
  std::filesystem::resize_file(folder.file("huge.jpg"), kMostPhotoBytes + 1);  // a hole
  const std::vector<std::string> files{"/dev/zero", folder.file("pipe.jpg"), folder.path(), folder.file("none.jpg"),
                                       folder.file("huge.jpg")};
  const LoadedPhotos loaded = load_photos(PhotoInput(shards(20, 30), {}), files);
  EXPECT_EQ(loaded.errors[0], "it is no regular file");
  EXPECT_EQ(loaded.errors[1], "it is no regular file");
  EXPECT_EQ(loaded.errors[2], "it is a folder");
  EXPECT_EQ(loaded.errors[3], "No such file or directory");
  EXPECT_EQ(loaded.errors[4], "it has 1073741825 bytes, more than a gigabyte");
}

TEST(PhotoInput, ViewsOfShardsArePlacesOfThePhoto) {
  const PhotoInput input(shards(20, 30), {});
  const Photo photo = numbered(30, 51);
  EXPECT_EQ(corner(input, photo, 0), (Corner{5, 15, 34}));
  EXPECT_EQ(corner(input, photo, 1), (Corner{0, 0, 19}));
  EXPECT_EQ(corner(input, photo, 2), (Corner{0, 31, 50}));
  EXPECT_EQ(corner(input, photo, 3), (Corner{10, 0, 19}));
  EXPECT_EQ(corner(input, photo, 4), (Corner{10, 31, 50}));
  EXPECT_EQ(corner(input, photo, 5), (Corner{5, 34, 15}));
  EXPECT_EQ(corner(input, photo, 9), (Corner{10, 50, 31}));
}

TEST(PhotoInput, ViewsOfImagesOfOneSizeArePlacesOfTheCentre) {
  const PhotoInput input(cifar(28), {});
  const Photo photo = numbered(52, 32);  // rows 10 to 41 are its centre
  EXPECT_EQ(corner(input, photo, 0), (Corner{12, 2, 29}));
  EXPECT_EQ(corner(input, photo, 1), (Corner{10, 0, 27}));
  EXPECT_EQ(corner(input, photo, 4), (Corner{14, 4, 31}));
  EXPECT_EQ(corner(input, photo, 7), (Corner{10, 31, 4}));
}

TEST(PhotoInput, ANetworkOfOneChannelSeesTheLuma) {
  DataSettings grey = shards(20, 20);
  grey.image = {20, 20, 1};
  grey.crop.channels = 1;
  const PhotoInput input(grey, {});
  EXPECT_EQ(input.shape(), (Shape{20, 20, 1}));
  const Photo photo = numbered(20, 20);
  std::vector<float> out(400);
  input.make(photo, 0, out.data());
  for (size_t i = 0; i < 400; ++i)  // red is the row, green the column
    ASSERT_NEAR(out[i], 0.299 * static_cast<double>(i / 20) + 0.587 * static_cast<double>(i % 20), 0.501);
}

TEST(PhotoInput, ANetworkOfOtherChannelsCannotSeePhotos) {
  DataSettings five = cifar(0);
  five.image = {32, 32, 5};
  EXPECT_THAT(message_of([&] { PhotoInput(five, {}); }), HasSubstr("images of 5 channels; photos have 3, or 1"));
}

TEST(PhotoInput, FilesAreResizedToTheShortSide) {
  const TempFolder folder;
  write_png(folder.file("x.png"), numbered(90, 60));
  const Photo shrunk = PhotoInput(shards(20, 30), {}).load(folder.file("x.png"));
  EXPECT_EQ(shrunk.height, 45);
  EXPECT_EQ(shrunk.width, 30);
  const Photo enlarged = PhotoInput(shards(224, 256), {}).load(folder.file("x.png"));
  EXPECT_EQ(enlarged.height, 384);
  EXPECT_EQ(enlarged.width, 256);
  EXPECT_EQ(PhotoInput(cifar(0), {}).load(folder.file("x.png")).width, 32);
}

TEST(PhotoInput, WhatIsNoPhotoIsAnError) {
  const TempFolder folder;
  const PhotoInput input(cifar(0), {});
  EXPECT_THAT(message_of([&] { input.load(folder.path()); }), HasSubstr("folder"));
  EXPECT_THAT(message_of([&] { input.load(folder.file("none")); }), HasSubstr("No such file"));
  write_bytes(folder.file("empty.jpg"), "");
  EXPECT_THROW(input.load(folder.file("empty.jpg")), BadPhoto);
}

}  // namespace
}  // namespace owt::photo_input_test
