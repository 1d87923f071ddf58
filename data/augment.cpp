#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/core/bf16.h"
#include "src/core/lanes.h"
#include "src/core/philox.h"
#include "src/system/check.h"

namespace owt {
namespace {

using From = AugmentSettings::From;

int64_t out_extent(int64_t crop, int64_t extent) { return crop == 0 ? extent : crop; }

// Copies the pixels of a row from right to left.
void mirror_pixels(const uint8_t* from, int64_t count, int64_t channels, uint8_t* to) {
  int64_t done = 0;
  if (channels == 3) {
    // Copies five pixels at once; the next copy overwrites the excess byte.
    using Bytes = uint8_t __attribute__((vector_size(16)));
    for (; done + 16 <= count; done += 15) {
      Bytes pixels;
      std::memcpy(&pixels, from + count - done - 16, sizeof pixels);
      pixels = pick<13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0>(pixels);
      std::memcpy(to + done, &pixels, sizeof pixels);
    }
  }
  for (; done < count; done += channels) std::copy_n(from + count - done - channels, channels, to + done);
}

void normalise(const uint8_t* from, const float* mean, const float* factor, int64_t count, float* to) {
  for (int64_t e = 0; e < count; ++e) to[e] = (from[e] - mean[e]) * factor[e];
}

Philox epoch_numbers(uint64_t seed, int64_t epoch, const char* purpose) {
  return Philox(seed, RandomStream::kAugment, epoch, purpose);
}

}  // namespace

Augmenter::Augmenter(const AugmentSettings& settings, const Shape& image, const DatasetStatistics& statistics)
    : settings_(settings), image_(image) {
  OWT_CHECK_EQ(image.rank(), 3, "images are H x W x C");
  out_ = {out_extent(settings.crop, image[0]), out_extent(settings.crop, image[1]), image[2]};
  for (const int dim : {0, 1})
    OWT_CHECK(out_[dim] <= image[dim] + (settings.reflect ? 0 : 2 * settings.pad), "a crop of ", out_, " from ", image,
              " with pad ", settings.pad);
  geometry_ = {static_cast<int>(image[0]), static_cast<int>(image[1]), static_cast<int>(settings.pad),
               static_cast<int>(out_[0]),  static_cast<int>(out_[1]),  settings.reflect};
  if (edits())
    OWT_CHECK(image[2] == 1 || image[2] == 3, "jitter and policy are for images of 1 or 3 channels, not of ", image[2]);
  if (settings.trivial) policy_ = trivial_augment_wide(geometry_.in_height, geometry_.in_width);
  const size_t channels = image[2];
  const std::vector<double>& means = settings.mean == From::kPixel     ? statistics.pixel_mean
                                     : settings.mean == From::kChannel ? statistics.channel_mean
                                                                       : settings.mean_values;
  const std::vector<double>& stds = settings.std == From::kChannel ? statistics.channel_std : settings.std_values;
  const size_t means_wanted = settings.mean == From::kPixel ? static_cast<size_t>(image.elements()) : channels;
  if (settings.mean != From::kNone) OWT_CHECK_EQ(means.size(), means_wanted, "means");
  if (settings.std != From::kNone) OWT_CHECK_EQ(stds.size(), channels, "standard deviations");

  const bool of_pixel = settings.mean == From::kPixel;
  mean_.resize(of_pixel ? image.elements() : image[1] * image[2], 0.0f);
  if (settings.mean != From::kNone)
    for (size_t e = 0; e < mean_.size(); ++e) mean_[e] = static_cast<float>(means[e % means.size()]);
  factor_.resize(image[1] * channels, static_cast<float>(settings.scale));
  if (settings.std != From::kNone) {
    for (const double std : stds)
      if (!(std > 0))
        fail("a channel of the training images never changes: its standard deviation is 0; give std as numbers");
    for (size_t e = 0; e < factor_.size(); ++e) factor_[e] = static_cast<float>(settings.scale / stds[e % channels]);
  }
  set_colour(statistics);
}

void Augmenter::set_colour(const DatasetStatistics& statistics) {
  const size_t channels = image_[2];
  if (settings_.color > 0) {
    colour_.resize(channels * channels, 0.0f);
    for (size_t c = 0; c < channels; ++c) colour_[c * channels + c] = static_cast<float>(settings_.color);
  }
  if (settings_.pca > 0) {
    OWT_CHECK(statistics.eigenvalues.size() == channels && statistics.eigenvectors.size() == channels * channels);
    colour_.resize(channels * channels);
    for (size_t c = 0; c < channels; ++c)
      for (size_t i = 0; i < channels; ++i)
        colour_[c * channels + i] = static_cast<float>(factor_[c] * settings_.pca * statistics.eigenvalues[i] / 255 *
                                                       statistics.eigenvectors[i * channels + c]);
  }
}

Augmenter::Normalisation Augmenter::at_centre() const {
  const Crop crop = crop_of_place(geometry_, 0, false);
  const int64_t channels = out_[2];
  const size_t elements = out_.elements();
  Normalisation n{std::vector<float>(elements, 0.0f), std::vector<float>(elements, 0.0f)};
  for (int64_t row = crop.row_begin; row < crop.row_end; ++row)
    for (int64_t e = crop.column_begin * channels; e < crop.column_end * channels; ++e) {
      const int64_t in_row = e + crop.column_shift * channels;  // index in the source, as e is in the output
      const int64_t means = settings_.mean == From::kPixel ? (row + crop.row_shift) * image_[1] * channels : 0;
      const size_t to = row * out_[1] * channels + e;
      n.mean[to] = mean_[means + in_row];
      n.factor[to] = factor_[in_row];
    }
  return n;
}

// Writes the pixels from this column of a row on, with its reflected border.
void Augmenter::reflect_row(const uint8_t* row, int first, std::vector<uint8_t>& to) const {
  const auto channels = static_cast<size_t>(image_[2]);
  for (size_t e = 0; e < to.size(); e += channels) {
    const int column = reflected(first + static_cast<int>(e / channels), geometry_.in_width);
    std::copy_n(row + static_cast<size_t>(column) * channels, channels, to.data() + e);
  }
}

template <class T>
void Augmenter::make(const View& view, int64_t sample, const uint8_t* pixels, T* out) const {
  if (view.training && edits()) pixels = edited(view, sample, pixels);
  const Crop crop = crop_for(view, sample);
  const int64_t channels = image_[2], in_row = image_[1] * channels, out_row = out_[1] * channels;
  // Bytes are mirrored faster than floats. But means of pixels must stay at the places where they were measured.
  const bool of_pixel = settings_.mean == From::kPixel, mirror_bytes = crop.mirrored && !of_pixel;
  const int64_t first = (crop.column_begin + crop.column_shift) * channels;
  const int64_t count = (crop.column_end - crop.column_begin) * channels;
  const int64_t left = (mirror_bytes ? out_[1] - crop.column_end : crop.column_begin) * channels;
  const std::vector<float> offset = colour_offset(view, sample);
  std::vector<uint8_t> mirrored(mirror_bytes ? count : 0);
  const bool reflects = geometry_.reflects && (first < 0 || first + count > in_row);
  std::vector<uint8_t> with_border(reflects ? count : 0);
  constexpr bool kRounds = !std::is_same_v<T, float>;
  std::vector<float> wide(kRounds ? count : 0);  // a row before rounding

  std::fill(out, out + crop.row_begin * out_row, 0.0f);
  for (int64_t row = crop.row_begin; row < crop.row_end; ++row) {
    const int64_t source = reflected(static_cast<int>(row) + crop.row_shift, geometry_.in_height) * in_row + first;
    const uint8_t* from = pixels + source;
    if (reflects) {
      reflect_row(pixels + (source - first), crop.column_shift, with_border);
      from = with_border.data();
    }
    if (mirror_bytes) {
      mirror_pixels(from, count, channels, mirrored.data());
      from = mirrored.data();
    }
    T *line = out + row * out_row, *to = line + left;
    float* values;
    if constexpr (kRounds)
      values = wide.data();
    else
      values = to;
    std::fill(line, to, 0.0f);
    normalise(from, mean_.data() + (of_pixel ? source : 0), factor_.data(), count, values);
    // A separate step, so that it is rounded as on the GPU.
    if (!offset.empty())
      for (int64_t e = 0; e < count; ++e) values[e] += offset[e];
    if constexpr (kRounds) std::copy_n(values, count, to);
    std::fill(to + count, line + out_row, 0.0f);
  }
  std::fill(out + crop.row_end * out_row, out + out_[0] * out_row, 0.0f);
  if (crop.mirrored && of_pixel) mirror_rows(out);
  const Patch patch = patch_for(view, sample);
  for (int64_t row = patch.top; row < patch.top + patch.height; ++row)
    std::fill_n(out + row * out_row + patch.left * channels, patch.width * channels, 0.0f);
}

Crop Augmenter::crop_for(const View& view, int64_t sample) const {
  if (!view.training) return crop_of_place(geometry_, view.place(), view.mirrored());
  const uint64_t place = sample;
  const auto bits = place_numbers(view.seed, view.epoch).block(place);
  uint32_t mirror_bits = bits[2];
  if (settings_.alternate)
    mirror_bits = place_numbers(view.seed, 0).block(place)[2] + static_cast<uint32_t>(view.epoch);
  return random_crop(geometry_, bits[0], bits[1], mirror_bits, settings_.mirror);
}

Patch Augmenter::patch_for(const View& view, int64_t sample) const {
  if (!view.training || (settings_.erase == 0 && settings_.cutout == 0)) return {};
  const Philox random = patch_numbers(view.seed, view.epoch);
  const uint64_t first = sample * kPatchBlocks;
  if (settings_.cutout > 0) {
    const auto bits = random.block(first);
    return random_square(geometry_.out_height, geometry_.out_width, static_cast<int>(settings_.cutout), bits[2],
                         bits[3]);
  }
  Patch patch;
  if (random.block(first + kPatchBlocks - 1)[0] * 0x1p-32 >= settings_.erase) return patch;
  for (uint64_t t = 0; t < kPatchTries && patch.height == 0; ++t) {
    const auto bits = random.block(first + t);
    patch = random_patch(geometry_.out_height, geometry_.out_width, bits[0], bits[1], bits[2], bits[3]);
  }
  return patch;
}

EditDraw Augmenter::edit_draw() const {
  EditDraw draw = jitter_draw(settings_.jitter);
  draw.policy = policy_.empty() ? nullptr : policy_.data();
  return draw;
}

// The image's bytes after its operations, in memory of the calling thread.
const uint8_t* Augmenter::edited(const View& view, int64_t sample, const uint8_t* pixels) const {
  const uint64_t place = sample;
  const Philox jitter = jitter_numbers(view.seed, view.epoch);
  const auto amounts = jitter.block(place * kJitterBlocks), order = jitter.block(place * kJitterBlocks + 1);
  const uint32_t jitter_bits[] = {amounts[0], amounts[1], amounts[2], amounts[3], order[0]};
  PixelOp ops[EditDraw::kMostOps];
  const int count = edit_draw().draw(jitter_bits, policy_numbers(view.seed, view.epoch).block(place).data(), ops);
  thread_local std::vector<uint8_t> bytes[2];
  const PixelGrid grid{geometry_.in_height, geometry_.in_width, static_cast<int>(image_[2])};
  for (int i = 0; i < count; ++i) {
    std::vector<uint8_t>& to = bytes[i % 2];
    to.resize(image_.elements());
    run_op(ops[i], grid, pixels, to.data());
    pixels = to.data();
  }
  return pixels;
}

Philox Augmenter::place_numbers(uint64_t seed, int64_t epoch) { return epoch_numbers(seed, epoch, ""); }
Philox Augmenter::colour_numbers(uint64_t seed, int64_t epoch) { return epoch_numbers(seed, epoch, "color"); }
Philox Augmenter::jitter_numbers(uint64_t seed, int64_t epoch) { return epoch_numbers(seed, epoch, "jitter"); }
Philox Augmenter::policy_numbers(uint64_t seed, int64_t epoch) { return epoch_numbers(seed, epoch, "policy"); }
Philox Augmenter::patch_numbers(uint64_t seed, int64_t epoch) { return epoch_numbers(seed, epoch, "erase"); }

std::vector<float> Augmenter::colour_offset(const View& view, int64_t sample) const {
  if (!view.training || colour_.empty()) return {};
  const Philox random = colour_numbers(view.seed, view.epoch);
  const size_t channels = image_[2];
  std::vector<float> of_channel(channels, 0.0f), offset(image_[1] * channels);
  for (size_t i = 0; i < channels; ++i) {
    const float normal = random.normal(sample * channels + i);
    for (size_t c = 0; c < channels; ++c) of_channel[c] += colour_[c * channels + i] * normal;
  }
  for (size_t e = 0; e < offset.size(); ++e) offset[e] = of_channel[e % channels];
  return offset;
}

template <class T>
void Augmenter::mirror_rows(T* out) const {
  const int64_t channels = out_[2], row = out_[1] * channels;
  for (int64_t y = 0; y < out_[0]; ++y) {
    T *left = out + y * row, *right = left + row - channels;
    for (; left < right; left += channels, right -= channels) std::swap_ranges(left, left + channels, right);
  }
}

template void Augmenter::make(const View&, int64_t, const uint8_t*, float*) const;
template void Augmenter::make(const View&, int64_t, const uint8_t*, Bf16*) const;

}  // namespace owt
