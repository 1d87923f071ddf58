#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/core/philox.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int kRgb = 3;
constexpr float kMinContrast = 120;                      // distance of the two colours, of 255 per channel
constexpr float kGradient = 30;                          // the background changes by up to this from centre to edge
constexpr float kNoise = 10;                             // standard deviation
constexpr float kMinRadius = 0.28f, kMaxRadius = 0.42f;  // half the shape's extent, of the image side
constexpr float kBarsPerRadius = 2.2f;                   // gaps count as bars
constexpr int kSamples = 3;                              // per pixel and axis, so that edges are smooth
constexpr float kShortSide = 128, kMostShortSide = 300,
                kLongSide = 4.0f / 3;  // photographs: pixels; a multiple of the short side
constexpr float kMinPhotoRadius = 0.15f, kPhotoNoise = 4, kMostDots = 12, kMinDot = 0.01f, kMaxDot = 0.06f;
constexpr float kColourSpread = 30;  // range in each direction around a colour that determines the class

using Colour = std::array<float, kRgb>;

struct Dot {
  float x, y, radius;  // pixels
  Colour colour;
};

struct Scene {
  int64_t height = 0, width = 0;
  int shape = 0;
  float x = 0, y = 0, radius = 0;  // pixels
  float phase_x = 0, phase_y = 0;  // start of the bars, in periods
  Colour front{}, back{}, slope_x{}, slope_y{};
  std::vector<Dot> dots{};  // under the shape; the last one is on top
  float noise = kNoise;
};

// Uniform numbers of one image, in order.
class Draws {
 public:
  Draws(const Philox& random, uint64_t image) : random_(random), first_(image << 32) {}
  float uniform(float low, float high) { return low + (high - low) * random_.uniform(next()); }
  Colour colour(float low, float high) { return {uniform(low, high), uniform(low, high), uniform(low, high)}; }
  Colour near(const Colour& c) {
    return {c[0] + uniform(-kColourSpread, kColourSpread), c[1] + uniform(-kColourSpread, kColourSpread),
            c[2] + uniform(-kColourSpread, kColourSpread)};
  }

 private:
  uint64_t next() { return first_ + count_++; }

  const Philox& random_;
  uint64_t first_, count_ = 0;
};

bool odd_bar(float position) { return static_cast<int64_t>(std::floor(2 * position)) & 1; }

struct Shape2d {
  const char* name;
  // Whether the point is in the shape, whose extent is about [-1, 1] in u (to the right) and v (down).
  bool (*covers)(float u, float v, const Scene& scene);
};

bool in_window(float u, float v) { return std::max(std::abs(u), std::abs(v)) <= 0.9f; }

constexpr std::array<Shape2d, kSyntheticClasses> kShapes{{
    {"disc", [](float u, float v, const Scene&) { return u * u + v * v <= 1; }},
    {"ring",
     [](float u, float v, const Scene&) {
       const float square = u * u + v * v;
       return 0.35f <= square && square <= 1;
     }},
    {"square", [](float u, float v, const Scene&) { return in_window(u, v); }},
    {"triangle", [](float u, float v, const Scene&) { return v <= 0.9f && std::abs(u) <= (v + 1) * 0.55f; }},
    {"cross",
     [](float u, float v, const Scene&) {
       const float near = std::min(std::abs(u), std::abs(v));
       return near <= 0.3f && std::max(std::abs(u), std::abs(v)) <= 1;
     }},
    {"star", [](float u, float v, const Scene&) { return std::sqrt(std::abs(u)) + std::sqrt(std::abs(v)) <= 1.1f; }},
    {"horizontal_bars",
     [](float u, float v, const Scene& s) { return in_window(u, v) && odd_bar(v * kBarsPerRadius / 2 + s.phase_y); }},
    {"vertical_bars",
     [](float u, float v, const Scene& s) { return in_window(u, v) && odd_bar(u * kBarsPerRadius / 2 + s.phase_x); }},
    {"diagonal_bars",
     [](float u, float v, const Scene& s) {
       return in_window(u, v) && odd_bar((u + v) * kBarsPerRadius / 2 + s.phase_x);
     }},
    {"checkerboard",
     [](float u, float v, const Scene& s) {
       return in_window(u, v) &&
              odd_bar(u * kBarsPerRadius / 2 + s.phase_x) != odd_bar(v * kBarsPerRadius / 2 + s.phase_y);
     }},
}};

struct NamedColour {
  const char* name;
  Colour colour;
};

constexpr NamedColour kNamedColours[] = {
    {"red", {220, 30, 30}},   {"orange", {240, 140, 20}}, {"yellow", {235, 225, 40}}, {"green", {30, 150, 40}},
    {"cyan", {40, 205, 210}}, {"blue", {30, 60, 210}},    {"purple", {125, 35, 165}}, {"pink", {245, 140, 190}},
    {"black", {20, 20, 20}},  {"white", {240, 240, 240}}};

// Between what the first `channels` channels show of the colours.
float distance(const Colour& a, const Colour& b, int64_t channels) {
  return std::hypot(a[0] - b[0], channels > 1 ? a[1] - b[1] : 0, channels > 2 ? a[2] - b[2] : 0);
}

// `colour`: the approximate colour of the shape; null: any.
Scene draw_scene(Draws& draws, int shape, int64_t height, int64_t width, int64_t channels, float min_radius,
                 const Colour* colour) {
  Scene scene{.height = height, .width = width, .shape = shape};
  const float down = height, across = width;
  scene.radius = std::min(down, across) * draws.uniform(min_radius, kMaxRadius);
  scene.x = draws.uniform(scene.radius, across - scene.radius);
  scene.y = draws.uniform(scene.radius, down - scene.radius);
  scene.phase_x = draws.uniform(0, 1);
  scene.phase_y = draws.uniform(0, 1);
  scene.slope_x = draws.colour(-kGradient, kGradient);
  scene.slope_y = draws.colour(-kGradient, kGradient);
  do {
    scene.back = draws.colour(0, 255);
    scene.front = colour ? draws.near(*colour) : draws.colour(0, 255);
  } while (distance(scene.back, scene.front, channels) < kMinContrast);
  return scene;
}

Scene draw_photo(Draws& draws, int shape, const Colour* colour) {
  const float low = draws.uniform(kShortSide, kMostShortSide), high = low * draws.uniform(1, kLongSide);
  const bool upright = draws.uniform(0, 1) < 0.5f;
  const auto height = static_cast<int64_t>(upright ? high : low), width = static_cast<int64_t>(upright ? low : high);
  Scene scene = draw_scene(draws, shape, height, width, kRgb, kMinPhotoRadius, colour);
  scene.noise = kPhotoNoise;
  scene.dots.resize(static_cast<size_t>(draws.uniform(0, kMostDots + 1)));
  for (Dot& dot : scene.dots)
    dot = {draws.uniform(0, width), draws.uniform(0, height), low * draws.uniform(kMinDot, kMaxDot),
           draws.colour(0, 255)};
  return scene;
}

// The fraction of the pixel at (column, row) that the shape covers.
float coverage(const Scene& scene, int64_t column, int64_t row) {
  const auto covers = kShapes[scene.shape].covers;
  int inside = 0;
  for (int i = 0; i < kSamples; ++i)
    for (int j = 0; j < kSamples; ++j) {
      const float x = column + (j + 0.5f) / kSamples;
      const float y = row + (i + 0.5f) / kSamples;
      inside += covers((x - scene.x) / scene.radius, (y - scene.y) / scene.radius, scene);
    }
  return static_cast<float>(inside) / (kSamples * kSamples);
}

// Nearly normal with mean 0: the sum of the four bytes, which needs no logarithm.
float noise(uint32_t bits, float deviation) {
  constexpr float kMean = 4 * 127.5f, kDeviation = 147.8f;
  const uint32_t sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
  return (sum - kMean) * (deviation / kDeviation);
}

// The dot at the pixel; null if there is none.
const Dot* dot_at(const Scene& scene, int64_t column, int64_t row) {
  const auto covers = [&](const Dot& dot) { return std::hypot(column - dot.x, row - dot.y) <= dot.radius; };
  const auto found = std::find_if(scene.dots.rbegin(), scene.dots.rend(), covers);
  return found == scene.dots.rend() ? nullptr : &*found;
}

void paint(const Scene& scene, const Philox& grain, uint64_t image, size_t channels, uint8_t* pixels) {
  for (int64_t row = 0; row < scene.height; ++row)
    for (int64_t column = 0; column < scene.width; ++column) {
      const float share = coverage(scene, column, row);
      const float u = 2.0f * column / scene.width - 1;
      const float v = 2.0f * row / scene.height - 1;
      const int64_t pixel = row * scene.width + column;
      const Dot* dot = dot_at(scene, column, row);
      const auto bits = grain.block(image << 32 | pixel);
      for (size_t channel = 0; channel < channels; ++channel) {
        const size_t c = channel % kRgb;
        const float back = (dot ? dot->colour[c] : scene.back[c]) + u * scene.slope_x[c] + v * scene.slope_y[c];
        const float value = back + share * (scene.front[c] - back) + noise(bits[channel % 4], scene.noise);
        pixels[pixel * channels + channel] = static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
      }
    }
}

void check(const SyntheticSettings& settings) {
  if (settings.size < 1) fail("a synthetic data set of ", settings.size, " images; wanted at least 1");
  if (settings.side < 8) fail("synthetic images of ", settings.side, " pixels a side; wanted at least 8");
  if (settings.channels < 1) fail("synthetic images of ", settings.channels, " channels; wanted at least 1");
  if (settings.classes < 1 || settings.classes > kSyntheticClasses)
    fail("a synthetic data set of ", settings.classes, " classes; wanted 1 to ", kSyntheticClasses);
}

MemoryDataset draw(const SyntheticSettings& settings) {
  check(settings);
  const bool train = settings.split == Split::kTrain;
  const Philox scenes(settings.seed, RandomStream::kSynthetic, 0, train ? "train" : "test");
  const Philox grain(settings.seed, RandomStream::kSynthetic, 1, train ? "train" : "test");
  const Shape image{settings.side, settings.side, settings.channels};
  std::vector<uint8_t> pixels(settings.size * image.elements());
  std::vector<uint8_t> labels(settings.size);
  parallel_for(settings.size, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int shape = static_cast<int>(i % settings.classes);
      const uint64_t id = i;
      labels[id] = static_cast<uint8_t>(shape);
      Draws draws(scenes, id);
      paint(draw_scene(draws, shape, settings.side, settings.side, settings.channels, kMinRadius, nullptr), grain, id,
            settings.channels, pixels.data() + i * image.elements());
    }
  });
  std::vector<std::string> names;
  for (int k = 0; k < settings.classes; ++k) names.emplace_back(kShapes[k].name);
  return MemoryDataset(image, settings.classes, std::move(pixels), std::move(labels), std::move(names));
}

}  // namespace

Photo SyntheticPhotos::draw(int64_t index) const {
  const bool train = split == Split::kTrain;
  const uint64_t id = index;
  const Philox scenes(seed, RandomStream::kSynthetic, 2, train ? "train" : "test");
  const Philox grain(seed, RandomStream::kSynthetic, 3, train ? "train" : "test");
  const size_t of_class = label(index);
  Draws draws(scenes, id);
  const Scene scene =
      draw_photo(draws, label(index) % kSyntheticClasses,
                 classes > kSyntheticClasses ? &kNamedColours[of_class / kSyntheticClasses].colour : nullptr);
  Photo photo{scene.height, scene.width, std::vector<uint8_t>(scene.height * scene.width * kRgb)};
  paint(scene, grain, id, kRgb, photo.pixels.data());
  return photo;
}

std::vector<std::string> SyntheticPhotos::class_names() const {
  std::vector<std::string> names;
  for (size_t k = 0; k < static_cast<size_t>(classes); ++k) {
    const std::string colour =
        classes > kSyntheticClasses ? concat(kNamedColours[k / kSyntheticClasses].name, "_") : "";
    names.push_back(colour + kShapes[k % kSyntheticClasses].name);
  }
  return names;
}

SyntheticDataset::SyntheticDataset(const SyntheticSettings& settings) : MemoryDataset(draw(settings)) {}

}  // namespace owt
