#include "src/commands/photo_input.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include "data/pixel_ops.h"
#include "src/core/threads.h"
#include "src/system/files.h"
#include "src/system/own_words.h"

namespace owt {

PhotoInput::PhotoInput(const DataSettings& data, const DatasetStatistics& statistics)
    : image_(data.image),
      crop_(data.crop),
      places_(data.format == "shards"),
      augmenter_(data.augment, data.image, statistics) {
  OWT_CHECK_EQ(image_[0], image_[1], "photos are cut to squares");
  if (image_[2] != 1 && image_[2] != 3)
    fail("the network sees images of ", image_[2], " channels; photos have 3, or 1 in grey");
  if (!places_) crop_.crop = crop_.short_side = image_[0];
}

Photo PhotoInput::load(const std::string& file) const {
  if (access(file.c_str(), R_OK) != 0) fail(std::strerror(errno));
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail(std::filesystem::is_directory(status) ? "it is a folder" : "it is no regular file");
  if (const auto bytes = std::filesystem::file_size(file, error); !error && bytes > kMostPhotoBytes)
    fail("it has ", bytes, " bytes, more than a gigabyte");
  return resized(read_photo(read_file(file), {.short_side = crop_.short_side}), crop_.short_side);
}

ImageWindow PhotoInput::seen(const Photo& photo, const View& view) const {
  return window_of(crop_, places_ ? view : View{}, 0, photo.height, photo.width);
}

void PhotoInput::make(const Photo& photo, int view_number, float* out) const {
  const View view{.number = view_number};
  const ImageWindow window = seen(photo, view);
  OWT_CHECK(window.height == image_[0] && window.width == image_[1], "a photo of this short side is not scaled");
  const int64_t row = image_[1] * image_[2];
  std::vector<uint8_t> pixels(static_cast<size_t>(image_.elements()));
  for (int64_t y = 0; y < image_[0]; ++y) {
    const uint8_t* rgb = photo.pixels.data() + ((window.top + y) * photo.width + window.left) * 3;
    if (image_[2] == 1)
      write_grey(rgb, image_[1], pixels.data() + y * row);
    else
      std::copy_n(rgb, row, pixels.data() + y * row);
  }
  augmenter_.make(view, 0, pixels.data(), out);
}

LoadedPhotos load_photos(const PhotoInput& input, std::span<const std::string> files) {
  LoadedPhotos all{std::vector<Photo>(files.size()), std::vector<std::string>(files.size())};
  parallel_for(std::ssize(files), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) try {
        all.photos[i] = input.load(files[i]);
      } catch (const std::bad_alloc&) {
        all.errors[i] = "out of memory; use fewer --threads, or fewer photos at once";
      } catch (const std::exception& e) {
        all.errors[i] = own_words(e);
      }
  });
  return all;
}

}  // namespace owt
