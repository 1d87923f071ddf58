#include <algorithm>

#include "data/augment.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Reads key `key`: a word, or a list of one value per channel.
AugmentSettings::From read_source(Config& table, const std::string& key, const std::vector<std::string>& words,
                                  int64_t channels, std::vector<double>& values) {
  using From = AugmentSettings::From;
  if (!table.is_array(key)) {
    const std::string word = table.word(key, "none", words);
    return word == "pixel" ? From::kPixel : word == "channel" ? From::kChannel : From::kNone;
  }
  values = table.numbers(key);
  const auto count = std::ssize(values);
  if (count != channels)
    table.error(key, concat("'", key, "' has ", count, " values, wanted one for each of the ", channels, " channels"));
  return From::kValues;
}

constexpr double kMostAlpha = 100;  // above it all shares are close to one half

// Reads key "mirror": true, false, or a word.
void read_mirror(Config& table, AugmentSettings& settings) {
  settings.alternate = table.is_string("mirror") && table.word("mirror", {"alternating"}) == "alternating";
  settings.mirror = settings.alternate || table.boolean("mirror", false);
}

JitterSettings read_jitter(Config table) {
  constexpr double kMost = 4;
  JitterSettings settings;
  settings.brightness = table.number("brightness", 0, {.low = 0, .high = kMost});
  settings.contrast = table.number("contrast", 0, {.low = 0, .high = kMost});
  settings.saturation = table.number("saturation", 0, {.low = 0, .high = kMost});
  settings.hue = table.number("hue", 0, {.low = 0, .high = 0.5});
  table.finish("jitter");
  return settings;
}

}  // namespace

AugmentSettings AugmentSettings::from(Config table, const Shape& image) {
  OWT_CHECK_EQ(image.rank(), 3);
  AugmentSettings settings;
  settings.crop = table.integer("crop", 0, {.low = 0});
  settings.pad = table.integer("pad", 0, {.low = 0, .high = 1 << 14});
  settings.reflect = table.word("pad_mode", "zeros", {"zeros", "reflect"}) == "reflect";
  read_mirror(table, settings);
  settings.color = table.number("color", 0, {.low = 0});
  settings.pca = table.number("pca", 0, {.low = 0});
  settings.scale = table.number("scale", 1);
  settings.mean = read_source(table, "mean", {"pixel", "channel", "none"}, image[2], settings.mean_values);
  settings.std = read_source(table, "std", {"channel", "none"}, image[2], settings.std_values);
  settings.jitter = read_jitter(table.table("jitter"));
  settings.trivial = table.word("policy", "none", {"none", "trivial_wide"}) == "trivial_wide";
  settings.erase = table.number("erase", 0, {.low = 0, .high = 1});
  settings.cutout = table.integer("cutout", 0, {.low = 0});
  settings.mix.mixup = table.number("mixup", 0, {.low = 0, .high = kMostAlpha});
  settings.mix.cutmix = table.number("cutmix", 0, {.low = 0, .high = kMostAlpha});
  table.finish("augment");

  const int64_t largest = std::min(image[0], image[1]) + 2 * settings.pad;
  if (settings.crop > largest)
    table.error("crop", concat("'crop' is ", settings.crop, ", wanted at most ", largest, ": images are ", image[0],
                               " x ", image[1], " and 'pad' is ", settings.pad));
  if (settings.reflect && !table.given("pad"))
    table.error("pad_mode", "pad_mode is \"reflect\", and nothing is padded; set 'pad', e.g. to 4");
  if (settings.reflect && settings.pad >= std::min(image[0], image[1]))
    table.error("pad", concat("'pad' is ", settings.pad, ", wanted less than the ", std::min(image[0], image[1]),
                              " pixels of a side, which pad_mode \"reflect\" repeats"));
  if (settings.reflect && settings.crop > std::min(image[0], image[1]))
    table.error("crop", concat("'crop' is ", settings.crop, ", larger than the images of ", image[0], " x ", image[1],
                               ", and pad_mode is \"reflect\"; use a smaller crop, or \"zeros\""));
  if (settings.reflect && settings.mean == AugmentSettings::From::kPixel)
    table.error(
        "pad_mode",
        "pad_mode \"reflect\" repeats pixels at other places than the means of mean \"pixel\"; use mean = \"channel\"");
  if (settings.edits() && image[2] != 1 && image[2] != 3)
    table.error(settings.trivial ? "policy" : "jitter",
                concat("'", settings.trivial ? "policy" : "jitter", "' is for images of 1 or 3 channels, not of ",
                       image[2], "; leave it out"));
  if (settings.color > 0 && settings.pca > 0)
    table.error("pca", "'pca' and 'color' are two kinds of colour noise; give one of them");
  if (settings.erase > 0 && settings.cutout > 0)
    table.error("cutout", "'cutout' and 'erase' are two kinds of erasing; give one of them");
  const int64_t seen = settings.crop > 0 ? settings.crop : std::min(image[0], image[1]);
  if (settings.cutout > seen)
    table.error("cutout", concat("'cutout' is ", settings.cutout, ", wanted at most ", seen,
                                 ", the side of what the network sees"));
  if (settings.scale == 0) table.error("scale", "'scale' is 0, which leaves nothing of the images");
  for (const double value : settings.std_values)
    if (!(value > 0)) table.error("std", concat("'std' holds ", value, ", wanted values above 0"));
  return settings;
}

}  // namespace owt
