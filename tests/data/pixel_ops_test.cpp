#include "data/pixel_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <numbers>

#include "src/core/philox.h"

namespace owt::pixel_ops_test {
namespace {

using Kind = PixelOp::Kind;
using Bytes = std::vector<uint8_t>;

int64_t bytes_of(const PixelGrid& grid) { return int64_t{grid.height} * grid.width * grid.channels; }

// Some grain on a slope that leaves values out at both ends, other ones in each channel.
Bytes picture(const PixelGrid& grid) {
  Bytes bytes;
  const Philox random(7, RandomStream::kTest);
  for (int y = 0; y < grid.height; ++y)
    for (int x = 0; x < grid.width; ++x)
      for (int c = 0; c < grid.channels; ++c)
        bytes.push_back(static_cast<uint8_t>(20 + 10 * c + 120 * y / grid.height + 40 * x / grid.width +
                                             below(30, random.bits(bytes.size()))));
  return bytes;
}

Bytes after(const PixelOp& op, const PixelGrid& grid, const Bytes& from) {
  Bytes to(from.size(), 99);
  run_op(op, grid, from.data(), to.data());
  return to;
}

struct Picture {
  PixelGrid grid;
  Bytes bytes;
  double at(int64_t y, int64_t x, int64_t c) const {
    return bytes[static_cast<size_t>((y * grid.width + x) * grid.channels + c)];
  }
};

double mixed(double base, double value, double factor) {
  return std::clamp(base + factor * (value - base), 0.0, 255.0);
}

double grey(const Picture& p, int64_t y, int64_t x) {
  return p.grid.channels == 1 ? p.at(y, x, 0) : 0.299 * p.at(y, x, 0) + 0.587 * p.at(y, x, 1) + 0.114 * p.at(y, x, 2);
}

double grey_mean(const Picture& p) {
  double sum = 0;
  for (int y = 0; y < p.grid.height; ++y)
    for (int x = 0; x < p.grid.width; ++x) sum += grey(p, y, x);
  return sum / (p.grid.height * p.grid.width);
}

double smooth(const Picture& p, int64_t y, int64_t x, int64_t c) {
  double sum = 4 * p.at(y, x, c);
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) sum += p.at(y + dy, x + dx, c);
  return sum / 13;
}

double equalized(const Picture& p, double value, int64_t c) {
  int64_t below = 0, largest = 0, pixels = int64_t{p.grid.height} * p.grid.width;
  double highest = 0;
  for (int y = 0; y < p.grid.height; ++y)
    for (int x = 0; x < p.grid.width; ++x) highest = std::max(highest, p.at(y, x, c));
  for (int y = 0; y < p.grid.height; ++y)
    for (int x = 0; x < p.grid.width; ++x) below += p.at(y, x, c) < value, largest += p.at(y, x, c) == highest;
  const int64_t step = (pixels - largest) / 255;
  return step == 0 ? value : static_cast<double>(std::min<int64_t>(255, (below + step / 2) / step));
}

double stretched(const Picture& p, double value, int64_t c) {
  double low = 255, high = 0;
  for (int y = 0; y < p.grid.height; ++y)
    for (int x = 0; x < p.grid.width; ++x) low = std::min(low, p.at(y, x, c)), high = std::max(high, p.at(y, x, c));
  return high == low ? value : (value - low) * 255 / (high - low);
}

// The pixel nearest to these coordinates; NaN if two pixels are equally near.
double moved(const Picture& p, double x, double y, int64_t c) {
  const auto tie = [](double at) { return std::abs(at - std::round(at)) < 1e-6; };
  if (tie(x) || tie(y)) return NAN;
  if (x < 0 || y < 0 || x >= p.grid.width || y >= p.grid.height) return 0;
  return p.at(static_cast<int64_t>(y), static_cast<int64_t>(x), c);
}

// Value c at (y, x) after the operation of the paper's table, in double precision. sign: 1 or -1.
double wanted(const Picture& p, int op, int bin, double sign, int y, int x, int c) {
  const double v = p.at(y, x, c), part = bin / 30.0, m = sign * 0.99 * part, px = x + 0.5, py = y + 0.5;
  const bool border = y == 0 || x == 0 || y == p.grid.height - 1 || x == p.grid.width - 1;
  const double angle = sign * 135 * part * std::numbers::pi / 180, cx = p.grid.width / 2.0, cy = p.grid.height / 2.0;
  switch (op) {
    case 1:
      return moved(p, px + m * py, py, c);
    case 2:
      return moved(p, px, py + m * px, c);
    case 3:
      return moved(p, px - sign * std::floor(32 * part + 1e-9), py, c);
    case 4:
      return moved(p, px, py - sign * std::floor(32 * part + 1e-9), c);
    case 5:
      return moved(p, cx + std::cos(angle) * (px - cx) - std::sin(angle) * (py - cy),
                   cy + std::sin(angle) * (px - cx) + std::cos(angle) * (py - cy), c);
    case 6:
      return mixed(0, v, 1 + m);
    case 7:
      return mixed(grey(p, y, x), v, 1 + m);
    case 8:
      return mixed(grey_mean(p), v, 1 + m);
    case 9:
      return border ? v : mixed(smooth(p, y, x, c), v, 1 + m);
    case 10: {
      const double unit = std::pow(2.0, std::round(part * 6));
      return std::floor(v / unit) * unit;
    }
    case 11:
      return v >= 255 * (1 - part) - 1e-9 ? 255 - v : v;
    case 12:
      return stretched(p, v, c);
    case 13:
      return equalized(p, v, c);
    default:
      return v;
  }
}

// How much rounding may differ from the formula: twice as much if grey values or sums are rounded before.
double tolerance(int op, double factor) {
  if (op <= 5 || op == 10 || op == 11 || op == 13) return 0;
  return op >= 7 && op <= 9 ? 0.51 + 0.5 * std::abs(1 - factor) : 0.51;
}

TEST(TrivialAugmentWide, HasTheOperationsOfItsTable) {
  for (const PixelGrid& grid : {PixelGrid{17, 23, 3}, PixelGrid{40, 33, 1}}) {
    const Picture p{grid, picture(grid)};
    const std::vector<PixelOp> ops = trivial_augment_wide(grid.height, grid.width);
    ASSERT_EQ(ops.size(), 14u * 31 * 2);
    int64_t ties = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
      const int number = static_cast<int>(i / 62), bin = static_cast<int>(i / 2 % 31);
      const double sign = i % 2 == 0 ? 1 : -1;
      const Picture found{grid, after(ops[i], grid, p.bytes)};
      const double allowed = tolerance(number, 1 + sign * 0.99 * bin / 30);
      // Every seventh value only, because means and counts are computed again for each.
      for (int64_t e = bin % 7; e < bytes_of(grid); e += 7) {
        const int c = static_cast<int>(e % grid.channels), x = static_cast<int>(e / grid.channels % grid.width);
        const int y = static_cast<int>(e / grid.channels / grid.width);
        const double value = wanted(p, number, bin, sign, y, x, c);
        if (std::isnan(value))
          ++ties;
        else
          ASSERT_NEAR(found.at(y, x, c), value, allowed) << "operation " << number << ", bin " << bin << ", sign "
                                                         << sign << " at " << y << ", " << x << ", " << c;
      }
    }
    EXPECT_LT(ties, static_cast<int64_t>(ops.size()) * bytes_of(grid) / 7 / 50);
  }
}

// Computed like in a kernel: tables from histograms, pixel by pixel.
Bytes by_pixels(const PixelOp& op, const PixelGrid& grid, const Bytes& from) {
  Bytes to(from.size());
  std::vector<std::array<int32_t, kByteValues>> histograms(static_cast<size_t>(grid.channels));
  std::vector<std::array<uint8_t, kByteValues>> tables(histograms.size());
  const auto channels = static_cast<size_t>(grid.channels);
  int64_t sums[3] = {};
  for (size_t i = 0; i < from.size(); ++i) ++histograms[i % channels][from[i]], sums[i % channels] += from[i];
  for (size_t c = 0; c < channels; ++c) {
    ChannelFacts facts{.lowest = 255, .histogram = histograms[c].data()};
    for (int value = 0; value < kByteValues; ++value)
      if (facts.histogram[value] > 0) facts.lowest = std::min(facts.lowest, value), facts.highest = value;
    facts.pixels = int64_t{grid.height} * grid.width;
    facts.grey = mean_grey(sums, grid.channels, facts.pixels);
    fill_table(op, facts, tables[c].data());
  }
  for (int y = 0; y < grid.height; ++y)
    for (int x = 0; x < grid.width; ++x) {
      uint8_t* pixel = to.data() + (int64_t{y} * grid.width + x) * grid.channels;
      write_pixel(op, grid, from.data(), y, x, pixel);
    }
  if (op.is_by_bytes())
    for (size_t i = 0; i < from.size(); ++i) to[i] = tables[i % channels][from[i]];
  return to;
}

TEST(PixelOps, AreTheSamePixelByPixel) {
  for (const PixelGrid& grid : {PixelGrid{1, 1, 3}, PixelGrid{2, 2, 3}, PixelGrid{3, 70, 3}, PixelGrid{70, 3, 1},
                                PixelGrid{64, 65, 3}, PixelGrid{300, 200, 1}}) {
    std::vector<PixelOp> ops = trivial_augment_wide(grid.height, grid.width);
    for (const int turn : {-32768, -9000, -1, 1, 12345, 32768}) ops.push_back({.kind = Kind::kHue, .amount = turn});
    ops.push_back({.kind = Kind::kBrightness, .amount = 5 * PixelOp::kOne});
    for (size_t i = 0; i<ops.size(); i += grid.height> 100 ? 11 : 1)
      for (const bool dark : {false, true}) {
        const Bytes from = dark ? Bytes(static_cast<size_t>(bytes_of(grid)), 3) : picture(grid);
        ASSERT_EQ(after(ops[i], grid, from), by_pixels(ops[i], grid, from))
            << grid.height << " x " << grid.width << " x " << grid.channels << ", operation " << i;
      }
  }
}

// Rotates the hue in the hexcone model, in double precision.
std::array<double, 3> turned(const std::array<double, 3>& rgb, double turn) {
  const double high = std::max({rgb[0], rgb[1], rgb[2]}), low = std::min({rgb[0], rgb[1], rgb[2]}), range = high - low;
  if (range == 0) return rgb;
  double hue = high == rgb[0]   ? (rgb[1] - rgb[2]) / range
               : high == rgb[1] ? 2 + (rgb[2] - rgb[0]) / range
                                : 4 + (rgb[0] - rgb[1]) / range;
  std::array<double, 3> to{};
  for (const auto& [c, offset] : {std::pair<size_t, double>{0, 5}, {1, 3}, {2, 1}}) {
    const double k = std::fmod(offset + hue + 6 * turn + 12, 6);
    to[c] = high - range * std::clamp(std::min(k, 4 - k), 0.0, 1.0);
  }
  return to;
}

TEST(PixelOps, TurnTheHueAndKeepTheRest) {
  for (const double turn : {-0.5, -0.21, 0.05, 0.33, 0.5})
    for (int i = 0; i < 4000; ++i) {
      const auto byte = [&](int at) { return static_cast<uint8_t>(i * at % 256); };
      const Bytes rgb{byte(37), byte(101), byte(13)};
      const Bytes found = after({.kind = Kind::kHue, .amount = static_cast<int32_t>(std::lround(turn * PixelOp::kOne))},
                                {1, 1, 3}, rgb);
      const auto value = turned({double(rgb[0]), double(rgb[1]), double(rgb[2])}, turn);
      for (size_t c = 0; c < 3; ++c) ASSERT_NEAR(found[c], value[c], 0.52) << "turn " << turn << " of " << i;
    }
}

// All operations of many samples.
std::vector<std::vector<PixelOp>> draws(const EditDraw& draw, int samples) {
  std::vector<std::vector<PixelOp>> all;
  const Philox random(3, RandomStream::kTest);
  for (int i = 0; i < samples; ++i) {
    const auto at = static_cast<uint64_t>(3 * i);
    const auto amounts = random.block(at), order = random.block(at + 1), policy = random.block(at + 2);
    const uint32_t jitter[] = {amounts[0], amounts[1], amounts[2], amounts[3], order[0]};
    PixelOp ops[EditDraw::kMostOps];
    all.emplace_back(ops, ops + draw.draw(jitter, policy.data(), ops));
  }
  return all;
}

TEST(Jitter, DrawsFactorsEvenlyAndInEveryOrder) {
  constexpr int kSamples = 24000;
  std::map<std::vector<Kind>, int> orders;
  std::map<Kind, std::vector<double>> amounts;
  for (const auto& ops :
       draws(jitter_draw({.brightness = 0.4, .contrast = 2, .saturation = 0.25, .hue = 0.1}), kSamples)) {
    std::vector<Kind> kinds;
    for (const PixelOp& op : ops) kinds.push_back(op.kind), amounts[op.kind].push_back(op.amount / 65536.0);
    if (kinds.size() == 4) ++orders[kinds];
  }
  EXPECT_EQ(orders.size(), 24u);
  for (const auto& [kinds, count] : orders) EXPECT_NEAR(count, kSamples / 24, 160);
  const std::map<Kind, std::pair<double, double>> ranges = {{Kind::kBrightness, {0.6, 1.4}},
                                                            {Kind::kContrast, {0, 3}},
                                                            {Kind::kSaturation, {0.75, 1.25}},
                                                            {Kind::kHue, {-0.1, 0.1}}};
  for (const auto& [kind, range] : ranges) {
    const auto& values = amounts.at(kind);
    const double width = range.second - range.first;
    double sum = 0;
    for (const double value : values) sum += value / static_cast<double>(values.size());
    EXPECT_NEAR(sum, (range.first + range.second) / 2, width * 0.01);
    EXPECT_NEAR(*std::min_element(values.begin(), values.end()), range.first, width * 0.001);
    EXPECT_NEAR(*std::max_element(values.begin(), values.end()), range.second, width * 0.001);
  }
}

TEST(Jitter, LeavesOutWhatIsNotGiven) {
  for (const auto& ops : draws(jitter_draw({.contrast = 0.5}), 100)) {
    ASSERT_LE(ops.size(), 1u);
    for (const PixelOp& op : ops) EXPECT_EQ(op.kind, Kind::kContrast);
  }
  for (const auto& ops : draws(jitter_draw({}), 10)) EXPECT_TRUE(ops.empty());
}

TEST(TrivialAugmentWide, DrawsEveryOperationAndStrengthAsOften) {
  const std::vector<PixelOp> all = trivial_augment_wide(32, 32);
  EditDraw draw;
  draw.policy = all.data();
  constexpr int kSamples = 28000;
  std::map<Kind, int> kinds;
  std::map<int, int> posterized;
  int nothing = 0;
  for (const auto& ops : draws(draw, kSamples)) {
    ASSERT_LE(ops.size(), 1u);
    nothing += ops.empty();
    if (ops.empty()) continue;
    ++kinds[ops[0].kind];
    if (ops[0].kind == Kind::kPosterize) ++posterized[ops[0].amount];
  }
  constexpr double kEach = kSamples / 14.0;
  EXPECT_NEAR(nothing, kEach * (1 + 4.0 / 31), 200);  // four factors may be 1
  EXPECT_NEAR(kinds[Kind::kMove], 5 * kEach, 330);
  for (const Kind kind : {Kind::kSolarize, Kind::kPosterize, Kind::kAutocontrast, Kind::kEqualize})
    EXPECT_NEAR(kinds[kind], kEach, 180);
  for (const Kind kind : {Kind::kBrightness, Kind::kContrast, Kind::kSaturation, Kind::kSharpness})
    EXPECT_NEAR(kinds[kind], kEach * 30 / 31, 180);
  EXPECT_EQ(posterized.size(), 7u);
  EXPECT_EQ(posterized.begin()->first, 2);
}

}  // namespace
}  // namespace owt::pixel_ops_test
