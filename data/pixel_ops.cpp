#include "data/pixel_ops.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

namespace owt {
namespace {

using Kind = PixelOp::Kind;

constexpr int kMostChannels = 3;

int64_t bytes_of(const PixelGrid& grid) { return int64_t{grid.height} * grid.width * grid.channels; }

int64_t in_fixed_point(double value) { return std::llround(std::ldexp(value, 32)); }

// The pixel centre (x, y) is taken from (a x + b y + c, d x + e y + f).
PixelOp move(double a, double b, double c, double d, double e, double f) {
  PixelOp op{.kind = Kind::kMove};
  const auto set = [](int64_t(&to)[3], double x, double y, double offset) {
    to[0] = in_fixed_point(x), to[1] = in_fixed_point(y), to[2] = in_fixed_point((x + y) / 2 + offset);
  };
  set(op.column, a, b, c);
  set(op.row, d, e, f);
  return op;
}

PixelOp rotation(double degrees, int height, int width) {
  const double angle = degrees * std::numbers::pi / 180, cos = std::cos(angle), sin = std::sin(angle);
  const double x = width / 2.0, y = height / 2.0;
  return move(cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y);
}

PixelOp with_factor(Kind kind, double factor) {
  return {.kind = kind, .amount = static_cast<int32_t>(std::lround(factor * PixelOp::kOne))};
}

// strength: 0 ... 1, in kPolicyBins bins; sign: 1 or -1.
PixelOp trivial_op(int number, double strength, double sign, int height, int width) {
  const double part = sign * 0.99 * strength, pixels = -sign * std::trunc(32 * strength);
  const int bits = 8 - static_cast<int>(std::nearbyint(6 * strength));  // ties to even
  switch (number) {
    case 1:
      return move(1, part, 0, 0, 1, 0);  // shear along x
    case 2:
      return move(1, 0, 0, part, 1, 0);
    case 3:
      return move(1, 0, pixels, 0, 1, 0);
    case 4:
      return move(1, 0, 0, 0, 1, pixels);
    case 5:
      return rotation(135 * sign * strength, height, width);
    case 6:
      return with_factor(Kind::kBrightness, 1 + part);
    case 7:
      return with_factor(Kind::kSaturation, 1 + part);
    case 8:
      return with_factor(Kind::kContrast, 1 + part);
    case 9:
      return with_factor(Kind::kSharpness, 1 + part);
    case 10:
      return {.kind = Kind::kPosterize, .amount = bits};
    case 11:
      return {.kind = Kind::kSolarize, .amount = static_cast<int32_t>(std::ceil(255 * (1 - strength) - 1e-9))};
    case 12:
      return {.kind = Kind::kAutocontrast};
    case 13:
      return {.kind = Kind::kEqualize};
    default:
      return {};
  }
}

// For shears along x and shifts: each output row is a shifted row of the image.
void move_rows(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to) {
  const int64_t line = int64_t{grid.width} * grid.channels;
  for (int64_t y = 0; y < grid.height; ++y, to += line) {
    const int64_t row = (op.row[1] * y + op.row[2]) >> 32, shift = (op.column[1] * y + op.column[2]) >> 32;
    const bool inside = row >= 0 && row < grid.height;
    const int64_t first = std::clamp<int64_t>(-shift, 0, grid.width) * grid.channels;
    const int64_t last = inside ? std::clamp<int64_t>(grid.width - shift, 0, grid.width) * grid.channels : 0;
    const int64_t begin = std::min(first, last);
    std::memset(to, 0, begin);
    if (last > begin) std::memcpy(to + begin, from + row * line + shift * grid.channels + begin, last - begin);
    const int64_t end = std::max(begin, last);
    std::memset(to + end, 0, line - end);
  }
}

template <int kChannels>
void move_pixels(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to) {
  const auto width = static_cast<uint64_t>(grid.width), height = static_cast<uint64_t>(grid.height);
  for (int64_t y = 0; y < grid.height; ++y) {
    int64_t column = op.column[1] * y + op.column[2], row = op.row[1] * y + op.row[2];
    for (int64_t x = 0; x < grid.width; ++x, to += kChannels, column += op.column[0], row += op.row[0]) {
      const auto source_x = static_cast<uint64_t>(column >> 32), source_y = static_cast<uint64_t>(row >> 32);
      if (source_x < width && source_y < height)
        std::memcpy(to, from + (source_y * width + source_x) * kChannels, kChannels);
      else
        std::memset(to, 0, kChannels);
    }
  }
}

void move_image(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to) {
  if (op.row[0] == 0 && op.column[0] == int64_t{1} << 32) return move_rows(op, grid, from, to);
  grid.channels == 1 ? move_pixels<1>(op, grid, from, to) : move_pixels<3>(op, grid, from, to);
}

void sharpen(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to) {
  thread_local std::vector<uint16_t> sums;  // sums of three vertically adjacent bytes
  const int line = grid.width * grid.channels, channels = grid.channels;
  sums.resize(line);
  std::memcpy(to, from, int64_t{grid.height} * line);
  if (grid.width < 3) return;
  for (int64_t y = 1; y + 1 < grid.height; ++y) {
    const uint8_t *here = from + y * line, *above = here - line, *below = here + line;
    uint8_t* out = to + y * line;
    uint16_t* sum = sums.data();
    for (int e = 0; e < line; ++e) sum[e] = static_cast<uint16_t>(above[e] + here[e] + below[e]);
    for (int e = channels; e < line - channels; ++e)
      out[e] = sharpened(sum[e - channels] + sum[e] + sum[e + channels], here[e], op.amount);
  }
}

template <class Change>
void change_pixels(const PixelGrid& grid, const uint8_t* from, uint8_t* to, const Change& change) {
  constexpr int64_t kTogether = 64;  // pixels, one colour at a time, so that the compiler vectorises the operation
  const int64_t pixels = int64_t{grid.height} * grid.width;
  int red[kTogether] = {}, green[kTogether] = {}, blue[kTogether] = {};
  for (int64_t begin = 0; begin < pixels; begin += kTogether) {
    const int64_t count = std::min(kTogether, pixels - begin);
    const uint8_t* pixel = from + 3 * begin;
    for (int64_t i = 0; i < count; ++i) red[i] = pixel[3 * i], green[i] = pixel[3 * i + 1], blue[i] = pixel[3 * i + 2];
    for (int64_t i = 0; i < kTogether; ++i) {
      const Rgb made = change(Rgb{red[i], green[i], blue[i]});
      red[i] = made.red, green[i] = made.green, blue[i] = made.blue;
    }
    uint8_t* out = to + 3 * begin;
    for (int64_t i = 0; i < count; ++i) {
      out[3 * i] = static_cast<uint8_t>(red[i]);
      out[3 * i + 1] = static_cast<uint8_t>(green[i]);
      out[3 * i + 2] = static_cast<uint8_t>(blue[i]);
    }
  }
}

// Bytes that are summed or compared together: a multiple of all channel counts, and of vectors.
constexpr int kBundle = 192;
constexpr int64_t kBundlesInSum = 256;  // so that 16 bits hold the sum

void note_extremes(const PixelGrid& grid, const uint8_t* from, ChannelFacts* facts) {
  const int64_t bytes = bytes_of(grid), whole = bytes / kBundle * kBundle;
  std::array<uint8_t, kBundle> low, high;
  low.fill(255), high.fill(0);
  for (int64_t i = 0; i < whole; i += kBundle)
    for (size_t j = 0; j < kBundle; ++j) {
      const uint8_t byte = from[i + j];
      low[j] = std::min(low[j], byte), high[j] = std::max(high[j], byte);
    }
  for (int64_t i = whole; i < bytes; ++i) {
    const size_t j = i - whole;
    low[j] = std::min(low[j], from[i]), high[j] = std::max(high[j], from[i]);
  }
  for (int c = 0; c < grid.channels; ++c) {
    facts[c].lowest = 255, facts[c].highest = 0;
    for (size_t j = c; j < kBundle; j += static_cast<size_t>(grid.channels)) {
      facts[c].lowest = std::min<int>(facts[c].lowest, low[j]);
      facts[c].highest = std::max<int>(facts[c].highest, high[j]);
    }
  }
}

void add_up(const PixelGrid& grid, const uint8_t* from, int64_t* sums) {
  const int64_t bytes = bytes_of(grid), whole = bytes / kBundle * kBundle;
  for (int64_t begin = 0; begin < whole; begin += kBundlesInSum * kBundle) {
    std::array<uint16_t, kBundle> part{};
    const int64_t end = std::min(whole, begin + kBundlesInSum * kBundle);
    for (int64_t i = begin; i < end; i += kBundle)
      for (size_t j = 0; j < kBundle; ++j) part[j] = static_cast<uint16_t>(part[j] + from[i + j]);
    for (size_t j = 0; j < kBundle; ++j) sums[j % grid.channels] += part[j];
  }
  for (int64_t i = whole; i < bytes; ++i) sums[i % grid.channels] += from[i];
}

// Counts bytes in four histograms: increments of adjacent equal bytes would wait for each other.
void count_bytes(const PixelGrid& grid, const uint8_t* from, int32_t (*histograms)[kByteValues]) {
  const int64_t pixels = int64_t{grid.height} * grid.width;
  for (int c = 0; c < grid.channels; ++c) {
    std::array<std::array<int32_t, kByteValues>, 4> counts{};
    const uint8_t* byte = from + c;
    int64_t i = 0;
    for (; i + 4 <= pixels; i += 4)
      for (size_t part = 0; part < 4; ++part, byte += grid.channels) ++counts[part][*byte];
    for (; i < pixels; ++i, byte += grid.channels) ++counts[0][*byte];
    for (size_t value = 0; value < kByteValues; ++value)
      histograms[c][value] = counts[0][value] + counts[1][value] + counts[2][value] + counts[3][value];
  }
}

int grey_of_image(const PixelGrid& grid, const uint8_t* from) {
  int64_t sums[kMostChannels] = {};
  add_up(grid, from, sums);
  return mean_grey(sums, grid.channels, int64_t{grid.height} * grid.width);
}

template <class Change>
void change_bytes(const PixelGrid& grid, const uint8_t* from, uint8_t* to, const Change& change) {
  const int64_t bytes = bytes_of(grid);
  for (int64_t i = 0; i < bytes; ++i) to[i] = change(from[i]);
}

// Each channel has its own table.
template <int kChannels>
void look_up(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to) {
  ChannelFacts facts[kChannels];
  int32_t histograms[kChannels][kByteValues];
  uint8_t tables[kChannels][kByteValues];
  note_extremes(grid, from, facts);
  if (op.kind == Kind::kEqualize) count_bytes(grid, from, histograms);
  for (int c = 0; c < kChannels; ++c) {
    facts[c].pixels = int64_t{grid.height} * grid.width;
    facts[c].histogram = histograms[c];
    fill_table(op, facts[c], tables[c]);
  }
  const int64_t bytes = bytes_of(grid);
  for (int64_t i = 0; i < bytes; i += kChannels)
    for (int c = 0; c < kChannels; ++c) to[i + c] = tables[c][from[i + c]];
}

// One loop per operation, so that the compiler vectorises it, which is faster than a table.
void run_by_bytes(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to) {
  const auto amount = op.amount;
  switch (op.kind) {
    case Kind::kBrightness:
      return change_bytes(grid, from, to, [=](int value) { return mixed_byte(0, value, amount); });
    case Kind::kContrast:
      return change_bytes(grid, from, to, [amount, grey = grey_of_image(grid, from)](int value) {
        return mixed_byte(grey, value, amount);
      });
    case Kind::kPosterize:
      return change_bytes(grid, from, to, [=](int value) { return posterized(value, amount); });
    case Kind::kSolarize:
      return change_bytes(grid, from, to, [=](int value) { return solarized(value, amount); });
    default:
      return grid.channels == 1 ? look_up<1>(op, grid, from, to) : look_up<3>(op, grid, from, to);
  }
}

}  // namespace

std::vector<PixelOp> trivial_augment_wide(int height, int width) {
  std::vector<PixelOp> ops;
  for (int number = 0; number < EditDraw::kPolicyOps; ++number)
    for (int bin = 0; bin < EditDraw::kPolicyBins; ++bin)
      for (const double sign : {1.0, -1.0})
        ops.push_back(trivial_op(number, static_cast<double>(bin) / (EditDraw::kPolicyBins - 1), sign, height, width));
  return ops;
}

void write_grey(const uint8_t* rgb, int64_t pixels, uint8_t* grey) {
  for (int64_t i = 0; i < pixels; ++i, rgb += 3) grey[i] = static_cast<uint8_t>(grey_of({rgb[0], rgb[1], rgb[2]}));
}

EditDraw jitter_draw(const JitterSettings& settings) {
  EditDraw draw;
  if (!settings.any()) return draw;
  const auto set = [&](int which, double low, double high) {
    draw.low[which] = static_cast<int32_t>(std::lround(low * PixelOp::kOne));
    draw.amounts[which] = static_cast<int32_t>(std::lround(high * PixelOp::kOne)) - draw.low[which] + 1;
  };
  const double factors[] = {settings.brightness, settings.contrast, settings.saturation};
  for (int i = 0; i < 3; ++i) set(i, std::max(0.0, 1 - factors[i]), 1 + factors[i]);
  set(3, -settings.hue, settings.hue);
  return draw;
}

void run_op(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to) {
  if (op.is_by_bytes()) return run_by_bytes(op, grid, from, to);
  if (op.kind == Kind::kMove) return move_image(op, grid, from, to);
  if (op.kind == Kind::kSharpness) return sharpen(op, grid, from, to);
  const int amount = op.amount;
  if (!op.is_of_colours() || grid.channels != 3)  // grey images have no saturation or hue
    std::memcpy(to, from, bytes_of(grid));
  else if (op.kind == Kind::kSaturation)
    change_pixels(grid, from, to, [=](const Rgb& pixel) { return saturated(pixel, amount); });
  else
    change_pixels(grid, from, to, [=](const Rgb& pixel) { return with_hue_turned(pixel, amount); });
}

}  // namespace owt
