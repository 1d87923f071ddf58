#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "data/parallel.h"
#include "src/core/check.h"
#include "src/core/philox.h"

namespace owt {
namespace {

using From = AugmentSettings::From;

// Key `key`: a word or a list of one value per channel.
From read_source(Config& table, const std::string& key, const std::vector<std::string>& words, int64_t channels,
                 std::vector<double>& values) {
  if (!table.is_array(key)) {
    const std::string word = table.word(key, "none", words);
    return word == "pixel" ? From::kPixel : word == "channel" ? From::kChannel : From::kNone;
  }
  values = table.numbers(key);
  const auto count = static_cast<int64_t>(values.size());
  if (count != channels)
    table.error(key, concat("'", key, "' has ", count, " values, wanted one for each of the ", channels, " channels"));
  return From::kValues;
}

int64_t out_extent(int64_t crop, int64_t extent) { return crop == 0 ? extent : crop; }

}  // namespace

AugmentSettings AugmentSettings::from(Config table, const Shape& image) {
  OWT_CHECK_EQ(image.rank(), 3);
  AugmentSettings settings;
  settings.crop = table.integer("crop", 0, {.low = 0});
  settings.pad = table.integer("pad", 0, {.low = 0, .high = 1 << 14});
  settings.mirror = table.boolean("mirror", false);
  settings.color = table.number("color", 0, {.low = 0});
  settings.scale = table.number("scale", 1);
  settings.mean = read_source(table, "mean", {"pixel", "channel", "none"}, image[2], settings.mean_values);
  settings.std = read_source(table, "std", {"channel", "none"}, image[2], settings.std_values);
  table.finish("augment");

  const int64_t largest = std::min(image[0], image[1]) + 2 * settings.pad;
  if (settings.crop > largest)
    table.error("crop", concat("'crop' is ", settings.crop, ", wanted at most ", largest, ": images are ", image[0],
                               " x ", image[1], " and 'pad' is ", settings.pad));
  if (settings.scale == 0) table.error("scale", "'scale' is 0, which leaves nothing of the images");
  for (const double value : settings.std_values)
    if (!(value > 0)) table.error("std", concat("'std' holds ", value, ", wanted values above 0"));
  return settings;
}

namespace {

// Exact sums over a range of images.
struct Sums {
  explicit Sums(const Shape& image) : values(static_cast<size_t>(image.elements())), squares(values.size()) {}

  void add(const Dataset& dataset, int64_t begin, int64_t end) {
    // 32-bit sums are twice as fast and hold this many squares of a byte.
    constexpr int64_t kImagesPerBlock = 1 << 16;
    const size_t elements = values.size();
    std::vector<uint8_t> pixels(elements);
    std::vector<uint32_t> value(elements), square(elements);
    for (int64_t block = begin; block < end; block += kImagesPerBlock) {
      std::fill(value.begin(), value.end(), 0);
      std::fill(square.begin(), square.end(), 0);
      for (int64_t i = block; i < std::min(end, block + kImagesPerBlock); ++i) {
        dataset.read(i, View{}, pixels.data());
        for (size_t e = 0; e < elements; ++e) {
          const uint32_t pixel = pixels[e];
          value[e] += pixel;
          square[e] += pixel * pixel;
        }
      }
      for (size_t e = 0; e < elements; ++e) values[e] += value[e], squares[e] += square[e];
    }
  }
  void add(const Sums& other) {
    for (size_t e = 0; e < values.size(); ++e) values[e] += other.values[e], squares[e] += other.squares[e];
  }

  std::vector<uint64_t> values, squares;
};

Sums sum_images(const Dataset& dataset) {
  Sums total(dataset.image());
  std::mutex mutex;
  parallel_for_or_throw(dataset.size(), 256, [&](int64_t begin, int64_t end) {
    Sums part(dataset.image());
    part.add(dataset, begin, end);
    const std::lock_guard lock(mutex);
    total.add(part);
  });
  return total;
}

}  // namespace

DatasetStatistics compute_statistics(const Dataset& dataset) {
  if (dataset.size() == 0) fail("the training set is empty: there are no means to compute");
  const Sums total = sum_images(dataset);
  const auto images = static_cast<double>(dataset.size());
  const auto channels = static_cast<size_t>(dataset.image()[2]);
  std::vector<uint64_t> values(channels), squares(channels);
  DatasetStatistics statistics;
  for (size_t e = 0; e < total.values.size(); ++e) {
    statistics.pixel_mean.push_back(static_cast<double>(total.values[e]) / images);
    values[e % channels] += total.values[e];
    squares[e % channels] += total.squares[e];
  }
  const double count = images * static_cast<double>(dataset.image().elements()) / static_cast<double>(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(values[c]) / count;
    statistics.channel_mean.push_back(mean);
    statistics.channel_std.push_back(std::sqrt(std::max(0.0, static_cast<double>(squares[c]) / count - mean * mean)));
  }
  return statistics;
}

Augmenter::Augmenter(const AugmentSettings& settings, const Shape& image, const DatasetStatistics& statistics)
    : settings_(settings), image_(image) {
  OWT_CHECK_EQ(image.rank(), 3, "images are H x W x C");
  out_ = {out_extent(settings.crop, image[0]), out_extent(settings.crop, image[1]), image[2]};
  for (const int dim : {0, 1})
    OWT_CHECK(out_[dim] <= image[dim] + 2 * settings.pad, "a crop of ", out_, " from ", image, " with pad ",
              settings.pad);
  geometry_ = {static_cast<int>(image[0]), static_cast<int>(image[1]), static_cast<int>(settings.pad),
               static_cast<int>(out_[0]), static_cast<int>(out_[1])};
  const auto channels = static_cast<size_t>(image[2]);
  const std::vector<double>& means = settings.mean == From::kPixel     ? statistics.pixel_mean
                                     : settings.mean == From::kChannel ? statistics.channel_mean
                                                                       : settings.mean_values;
  const std::vector<double>& stds = settings.std == From::kChannel ? statistics.channel_std : settings.std_values;
  const size_t means_wanted = settings.mean == From::kPixel ? static_cast<size_t>(image.elements()) : channels;
  if (settings.mean != From::kNone) OWT_CHECK_EQ(means.size(), means_wanted, "means");
  if (settings.std != From::kNone) OWT_CHECK_EQ(stds.size(), channels, "standard deviations");

  mean_.resize(static_cast<size_t>(image.elements()), 0.0f);
  if (settings.mean != From::kNone)
    for (size_t e = 0; e < mean_.size(); ++e) mean_[e] = static_cast<float>(means[e % means.size()]);
  factor_.resize(static_cast<size_t>(image[1]) * channels, static_cast<float>(settings.scale));
  if (settings.std == From::kNone) return;
  for (const double std : stds)
    if (!(std > 0))
      fail("a channel of the training images never changes: its standard deviation is 0; give std as numbers");
  for (size_t e = 0; e < factor_.size(); ++e) factor_[e] = static_cast<float>(settings.scale / stds[e % channels]);
}

Augmenter::Normalisation Augmenter::at_centre() const {
  const Crop crop = crop_of_place(geometry_, 0, false);
  const int64_t channels = out_[2];
  const auto elements = static_cast<size_t>(out_.elements());
  Normalisation n{std::vector<float>(elements, 0.0f), std::vector<float>(elements, 0.0f)};
  for (int64_t row = crop.row_begin; row < crop.row_end; ++row)
    for (int64_t e = crop.column_begin * channels; e < crop.column_end * channels; ++e) {
      const int64_t in_row = e + crop.column_shift * channels;  // of the source, as e is of the output
      const auto to = static_cast<size_t>(row * out_[1] * channels + e);
      n.mean[to] = mean_[static_cast<size_t>((row + crop.row_shift) * image_[1] * channels + in_row)];
      n.factor[to] = factor_[static_cast<size_t>(in_row)];
    }
  return n;
}

void Augmenter::make(const View& view, int64_t sample, const uint8_t* pixels, float* out) const {
  const Crop crop = crop_for(view, sample);
  cut(pixels, crop, out);
  if (view.training && settings_.color > 0) add_colour(colour_numbers(view.seed, view.epoch), sample, crop, out);
  if (crop.mirrored) mirror_rows(out);
}

Crop Augmenter::crop_for(const View& view, int64_t sample) const {
  if (!view.training) return crop_of_place(geometry_, view.place(), view.mirrored());
  const auto bits = place_numbers(view.seed, view.epoch).block(static_cast<uint64_t>(sample));
  return random_crop(geometry_, bits[0], bits[1], bits[2], settings_.mirror);
}

Philox Augmenter::place_numbers(uint64_t seed, int64_t epoch) {
  return Philox(seed, RandomStream::kAugment, static_cast<uint64_t>(epoch));
}

Philox Augmenter::colour_numbers(uint64_t seed, int64_t epoch) {
  return Philox(seed, RandomStream::kAugment, static_cast<uint64_t>(epoch), "color");
}

void Augmenter::cut(const uint8_t* pixels, const Crop& crop, float* out) const {
  const int64_t channels = image_[2], in_row = image_[1] * channels, out_row = out_[1] * channels;
  const Slice rows{crop.row_begin, crop.row_end}, columns{crop.column_begin, crop.column_end};
  const int64_t first = (columns.begin + crop.column_shift) * channels, count = columns.size() * channels;
  const float* factor = factor_.data() + first;
  std::fill(out, out + rows.begin * out_row, 0.0f);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t source = (row + crop.row_shift) * in_row + first;
    const uint8_t* from = pixels + source;
    const float* mean = mean_.data() + source;
    float* line = out + row * out_row;
    float* to = line + columns.begin * channels;
    std::fill(line, to, 0.0f);
    for (int64_t e = 0; e < count; ++e) to[e] = (static_cast<float>(from[e]) - mean[e]) * factor[e];
    std::fill(to + count, line + out_row, 0.0f);
  }
  std::fill(out + rows.end * out_row, out + out_[0] * out_row, 0.0f);
}

void Augmenter::add_colour(const Philox& random, int64_t sample, const Crop& crop, float* out) const {
  const int64_t channels = image_[2];
  for (int64_t c = 0; c < channels; ++c) {
    const float offset =
        static_cast<float>(settings_.color) * random.normal(static_cast<uint64_t>(sample * channels + c));
    for (int64_t row = crop.row_begin; row < crop.row_end; ++row)
      for (int64_t column = crop.column_begin; column < crop.column_end; ++column)
        out[(row * out_[1] + column) * channels + c] += offset;
  }
}

void Augmenter::mirror_rows(float* out) const {
  const int64_t channels = out_[2], row = out_[1] * channels;
  for (int64_t y = 0; y < out_[0]; ++y) {
    float *left = out + y * row, *right = left + row - channels;
    for (; left < right; left += channels, right -= channels) std::swap_ranges(left, left + channels, right);
  }
}

}  // namespace owt
