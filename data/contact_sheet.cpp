#include "data/contact_sheet.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include "data/order.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kGap = 4;  // pixels
constexpr uint8_t kBackground = 255;
constexpr float kPadding = 128;

// The settings without changes of the values themselves.
AugmentSettings plain(AugmentSettings settings) {
  settings.color = settings.pca = settings.erase = 0;
  settings.cutout = 0;
  settings.jitter = {};
  settings.trivial = false;
  return settings;
}

// Normalisation is linear in each value, so the values of black and white determine its inverse.
class Tiles {
 public:
  Tiles(const Dataset& dataset, const AugmentSettings& augment, const DatasetStatistics& statistics, uint64_t seed)
      : dataset_(dataset),
        view_{.training = true, .seed = seed},
        augmenter_(augment, dataset.image(), statistics),
        plain_(plain(augment), dataset.image(), statistics),
        pixels_(dataset.image().elements()) {}

  Shape shape() const { return augmenter_.out_shape(); }

  // The values of a pair of samples, mixed if the settings say so.
  std::array<std::vector<float>, 2> make_pair(int64_t first, int64_t second) {
    std::array<std::vector<float>, 2> pair{make(first), make(second)};
    mix_images(draw_mix(augmenter_.mix(), shape(), view_, first), shape(), pair[0].data(), pair[1].data());
    return pair;
  }

  // Values 0 to 255, of the tile's shape.
  std::vector<float> make(int64_t sample) {
    dataset_.read(sample, view_, pixels_.data());
    std::vector<float> seen = through(augmenter_, sample);
    std::fill(pixels_.begin(), pixels_.end(), uint8_t{0});
    const std::vector<float> black = through(plain_, sample);
    std::fill(pixels_.begin(), pixels_.end(), uint8_t{255});
    const std::vector<float> white = through(plain_, sample);
    for (size_t e = 0; e < seen.size(); ++e)
      seen[e] = white[e] == black[e] ? kPadding : (seen[e] - black[e]) / (white[e] - black[e]) * 255;
    return seen;
  }

 private:
  std::vector<float> through(const Augmenter& augmenter, int64_t sample) const {
    std::vector<float> out(shape().elements());
    augmenter.make(view_, sample, pixels_.data(), out.data());
    return out;
  }

  const Dataset& dataset_;
  View view_;
  Augmenter augmenter_, plain_;
  std::vector<uint8_t> pixels_;
};

uint8_t colour(float value) { return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0f, 255.0f))); }

// Writes each pixel as scale x scale pixels.
void paste(const std::vector<float>& tile, const Shape& shape, int64_t scale, int64_t top, int64_t left, Photo& onto) {
  const int64_t channels = shape[2];
  for (int64_t y = 0; y < shape[0] * scale; ++y)
    for (int64_t x = 0; x < shape[1] * scale; ++x)
      for (int64_t c = 0; c < 3; ++c)
        onto.pixels[((top + y) * onto.width + left + x) * 3 + c] =
            colour(tile[(y / scale * shape[1] + x / scale) * channels + std::min(c, channels - 1)]);
}

constexpr int64_t kNameHeight = 16, kWidthForNames = 96;  // pixels

// Writes as many characters as fit. The font has ASCII only.
void write_name(std::string name, int64_t top, int64_t left, int64_t width, Photo& onto) {
  constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;
  constexpr double kSize = 0.38;
  for (char& c : name)
    if (c < ' ' || c > '~') c = '?';
  int below = 0;
  while (!name.empty() && cv::getTextSize(name, kFont, kSize, 1, &below).width > width) name.pop_back();
  cv::Mat picture(static_cast<int>(onto.height), static_cast<int>(onto.width), CV_8UC3, onto.pixels.data());
  cv::putText(picture, name, {static_cast<int>(left), static_cast<int>(top + kNameHeight - 5)}, kFont, kSize, {0, 0, 0},
              1, cv::LINE_AA);
}

}  // namespace

Photo contact_sheet(const Dataset& dataset, const AugmentSettings& augment, const DatasetStatistics& statistics,
                    const ContactSheet& sheet) {
  OWT_CHECK(sheet.samples >= 1 && sheet.columns >= 1);
  Tiles tiles(dataset, augment, statistics, sheet.seed);
  const Shape tile = tiles.shape();
  const int64_t count = std::min(sheet.samples, dataset.size()), columns = std::min(sheet.columns, count);
  const int64_t scale = sheet.names ? (kWidthForNames + tile[1] - 1) / tile[1] : 1;
  const int64_t rows = (count + columns - 1) / columns, across = tile[1] * scale + kGap;
  const int64_t down = tile[0] * scale + kGap + (sheet.names ? kNameHeight : 0);
  Photo picture{rows * down + kGap, columns * across + kGap};
  picture.pixels.assign(picture.height * picture.width * 3, kBackground);
  const std::vector<int64_t> order = epoch_order(sheet.seed, 0, dataset.size(), true);
  const std::vector<std::string> names = dataset.class_names();
  const auto put = [&](int64_t i, const std::vector<float>& values) {
    const int64_t top = kGap + i / columns * down, left = kGap + i % columns * across;
    paste(values, tile, scale, top, left, picture);
    const size_t label = dataset.label(order[i]);
    if (sheet.names)
      write_name(names.empty() ? std::to_string(label) : names[label], top + tile[0] * scale, left, tile[1] * scale,
                 picture);
  };
  for (int64_t i = 0; i + 1 < count; i += 2) {
    const auto pair = tiles.make_pair(order[i], order[i + 1]);
    put(i, pair[0]), put(i + 1, pair[1]);
  }
  if (count % 2 == 1) put(count - 1, tiles.make(order[count - 1]));
  return picture;
}

}  // namespace owt
