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
constexpr float kBarsPerRadius = 2.2f;                   // gaps are counted too
constexpr int kSamples = 3;                              // per pixel and axis, so that edges are smooth

using Colour = std::array<float, kRgb>;

struct Scene {
  int shape;
  float x, y, radius;      // pixels
  float phase_x, phase_y;  // where bars begin, in periods
  Colour front, back, slope_x, slope_y;
};

// Uniform numbers of one image, one after the other.
class Draws {
 public:
  Draws(const Philox& random, uint64_t image) : random_(random), first_(image << 32) {}
  float uniform(float low, float high) { return low + (high - low) * random_.uniform(next()); }
  Colour colour(float low, float high) { return {uniform(low, high), uniform(low, high), uniform(low, high)}; }

 private:
  uint64_t next() { return first_ + count_++; }

  const Philox& random_;
  uint64_t first_, count_ = 0;
};

bool odd_bar(float position) { return static_cast<int64_t>(std::floor(2 * position)) & 1; }

struct Shape2d {
  const char* name;
  // Whether the point lies in the shape, whose extent is about [-1, 1] in u (to the right) and v (down).
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

float distance(const Colour& a, const Colour& b) { return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]); }

Scene draw_scene(const Philox& random, uint64_t image, int shape, int64_t side) {
  Draws draws(random, image);
  Scene scene{};
  scene.shape = shape;
  const auto extent = static_cast<float>(side);
  scene.radius = extent * draws.uniform(kMinRadius, kMaxRadius);
  scene.x = draws.uniform(scene.radius, extent - scene.radius);
  scene.y = draws.uniform(scene.radius, extent - scene.radius);
  scene.phase_x = draws.uniform(0, 1);
  scene.phase_y = draws.uniform(0, 1);
  scene.slope_x = draws.colour(-kGradient, kGradient);
  scene.slope_y = draws.colour(-kGradient, kGradient);
  do {
    scene.back = draws.colour(0, 255);
    scene.front = draws.colour(0, 255);
  } while (distance(scene.back, scene.front) < kMinContrast);
  return scene;
}

// The share of the pixel at (column, row) that the shape covers.
float coverage(const Scene& scene, int64_t column, int64_t row) {
  const auto covers = kShapes[static_cast<size_t>(scene.shape)].covers;
  int inside = 0;
  for (int i = 0; i < kSamples; ++i)
    for (int j = 0; j < kSamples; ++j) {
      const float x = static_cast<float>(column) + (static_cast<float>(j) + 0.5f) / kSamples;
      const float y = static_cast<float>(row) + (static_cast<float>(i) + 0.5f) / kSamples;
      inside += covers((x - scene.x) / scene.radius, (y - scene.y) / scene.radius, scene);
    }
  return static_cast<float>(inside) / (kSamples * kSamples);
}

// Nearly normal with mean 0 and standard deviation kNoise: the sum of the four bytes, which costs no logarithm.
float noise(uint32_t bits) {
  constexpr float kMean = 4 * 127.5f, kDeviation = 147.8f;
  const uint32_t sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
  return (static_cast<float>(sum) - kMean) * (kNoise / kDeviation);
}

void paint(const Scene& scene, const Philox& grain, uint64_t image, int64_t side, uint8_t* pixels) {
  for (int64_t row = 0; row < side; ++row)
    for (int64_t column = 0; column < side; ++column) {
      const float share = coverage(scene, column, row);
      const float u = 2 * static_cast<float>(column) / static_cast<float>(side) - 1;
      const float v = 2 * static_cast<float>(row) / static_cast<float>(side) - 1;
      const int64_t pixel = row * side + column;
      const auto bits = grain.block(image << 32 | static_cast<uint64_t>(pixel));
      for (size_t c = 0; c < kRgb; ++c) {
        const float back = scene.back[c] + u * scene.slope_x[c] + v * scene.slope_y[c];
        const float value = back + share * (scene.front[c] - back) + noise(bits[c]);
        pixels[static_cast<size_t>(pixel) * kRgb + c] = static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
      }
    }
}

void check(const SyntheticSettings& settings) {
  if (settings.size < 1) fail("a synthetic data set of ", settings.size, " images; wanted at least 1");
  if (settings.side < 8) fail("synthetic images of ", settings.side, " pixels a side; wanted at least 8");
  if (settings.classes < 1 || settings.classes > kSyntheticClasses)
    fail("a synthetic data set of ", settings.classes, " classes; wanted 1 to ", kSyntheticClasses);
}

MemoryDataset draw(const SyntheticSettings& settings) {
  check(settings);
  const bool train = settings.split == Split::kTrain;
  const Philox scenes(settings.seed, RandomStream::kSynthetic, 0, train ? "train" : "test");
  const Philox grain(settings.seed, RandomStream::kSynthetic, 1, train ? "train" : "test");
  const Shape image{settings.side, settings.side, kRgb};
  std::vector<uint8_t> pixels(static_cast<size_t>(settings.size * image.elements()));
  std::vector<uint8_t> labels(static_cast<size_t>(settings.size));
  parallel_for(settings.size, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int shape = static_cast<int>(i % settings.classes);
      const auto id = static_cast<uint64_t>(i);
      labels[id] = static_cast<uint8_t>(shape);
      paint(draw_scene(scenes, id, shape, settings.side), grain, id, settings.side,
            pixels.data() + i * image.elements());
    }
  });
  std::vector<std::string> names;
  for (int k = 0; k < settings.classes; ++k) names.emplace_back(kShapes[static_cast<size_t>(k)].name);
  return MemoryDataset(image, settings.classes, std::move(pixels), std::move(labels), std::move(names));
}

}  // namespace

SyntheticDataset::SyntheticDataset(const SyntheticSettings& settings) : MemoryDataset(draw(settings)) {}

}  // namespace owt
