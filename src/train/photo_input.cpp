#include "src/train/photo_input.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "data/crop.h"
#include "src/core/files.h"

namespace owt {

PhotoInput::PhotoInput(const DataSettings& data, const DatasetStatistics& statistics)
    : image_(data.image), augmenter_(data.augment, data.image, statistics) {
  OWT_CHECK_EQ(image_[2], 3, "photos are RGB");
}

Photo PhotoInput::load(const std::string& file) const {
  if (std::filesystem::is_directory(file)) fail("it is a folder");
  const int64_t short_side = std::max(image_[0], image_[1]);
  return resized(read_photo(read_file(file), {.short_side = short_side}), short_side);
}

void PhotoInput::make(const Photo& photo, int view, float* out) const {
  const CropGeometry geometry{static_cast<int>(photo.height), static_cast<int>(photo.width), 0,
                              static_cast<int>(image_[0]), static_cast<int>(image_[1])};
  const Crop centre = crop_of_place(geometry, 0, false);
  const auto row = static_cast<size_t>(image_[1] * image_[2]);
  std::vector<uint8_t> pixels(static_cast<size_t>(image_.elements()));
  for (int64_t y = 0; y < image_[0]; ++y) {
    const int64_t first = (y + centre.row_shift) * photo.width + centre.column_shift;
    std::memcpy(pixels.data() + static_cast<size_t>(y) * row, photo.pixels.data() + first * image_[2], row);
  }
  augmenter_.make({.number = view}, 0, pixels.data(), out);
}

}  // namespace owt
