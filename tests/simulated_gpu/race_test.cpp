// Runs the kernels that use shared memory under ThreadSanitizer, which finds races between the threads of a block.
//
// The files of these kernels are instrumented, and nothing else. To ThreadSanitizer the threads of a block have no
// order but the one that a GPU guarantees (races.h). So it finds a race in shared or global memory in every run,
// whatever the order of the threads. It does not find races between blocks, which run one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "data/device_augment.h"
#include "data/jpeg/device_jpeg.h"
#include "data/photos/photo.h"
#include "layers/branch_sums.h"
#include "layers/gpu/bias_gradient.h"
#include "layers/gpu/small_conv.h"
#include "layers/gpu/small_conv_weights.h"
#include "tests/simulated_gpu/planted_races.h"
#include "tests/simulated_gpu/symbols.h"
#include "tests/support/shards.h"

namespace {
std::atomic<int> reports{0};
}

// Called by ThreadSanitizer.
extern "C" {
const char* __tsan_default_options() {
  // How the host synchronises is not seen in code that is not instrumented.
  return "ignore_interceptors_accesses=1 report_thread_leaks=0 report_destroy_locked=0 detect_deadlocks=0 exitcode=0 "
         "report_mutex_bugs=0";
}
void __tsan_on_report(const void*) { ++reports; }
}

namespace simulated_gpu {
namespace {

namespace fs = std::filesystem;
using testing::IsSupersetOf;

struct WatchedKernels {
  std::mutex mutex;
  std::set<const void*> kernels;
};
WatchedKernels& watched() {
  static WatchedKernels watched;
  return watched;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool calls(const std::string& text, const std::string& function) {
  for (size_t at = text.find(function); at != std::string::npos; at = text.find(function, at + 1)) {
    const char after = text.c_str()[at + function.size()];
    if (at > 0 && !is_of_name(text[at - 1]) && (after == '(' || after == '<')) return true;
  }
  return false;
}

// A function of device code, from its keyword to the next one or to the end of the outermost braces.
struct DeviceFunction {
  bool is_kernel;
  std::string text;

  std::string name() const {
    const std::string bounds = "__launch_bounds__(";
    size_t open = text.find('(');
    if (open >= bounds.size() && text.compare(open + 1 - bounds.size(), bounds.size(), bounds) == 0)
      open = text.find('(', open + 1);
    size_t begin = std::min(open, text.size());
    while (begin > 0 && is_of_name(text[begin - 1])) --begin;
    return text.substr(begin, open - begin);
  }
};

std::vector<DeviceFunction> device_functions(const std::string& text) {
  std::vector<DeviceFunction> functions;
  const auto next = [&](size_t from) { return std::min(text.find("__device__", from), text.find("__global__", from)); };
  for (size_t at = next(0); at < text.size();) {
    const size_t after = next(at + 1), end = std::min(after, text.find("\n}", at));
    functions.push_back({text.compare(at, 10, "__global__") == 0, text.substr(at, end - at)});
    at = after;
  }
  return functions;
}

// The kernels of the product that use shared memory, themselves or in a function that they call.
std::set<std::string> kernels_with_shared_memory() {
  std::vector<DeviceFunction> functions;
  for (const char* folder : {"data", "layers", "src"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(OWT_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".cu" || entry.path().extension() == ".cuh")
        for (DeviceFunction& function : device_functions(text_of(entry.path())))
          functions.push_back(std::move(function));
  std::set<std::string> kernels, others;
  for (size_t known = 1; known != others.size();) {
    known = others.size();
    for (const DeviceFunction& function : functions)
      if (function.text.find("__shared__") != std::string::npos ||
          std::any_of(others.begin(), others.end(), [&](const auto& name) { return calls(function.text, name); }))
        (function.is_kernel ? kernels : others).insert(function.name());
  }
  return kernels;
}

class Races : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override {
    EXPECT_EQ(reports.exchange(0), 0) << "ThreadSanitizer has reported races; see above";
  }
};

class Cases : public testing::Environment {
  void TearDown() override {
    if (testing::UnitTest::GetInstance()->test_to_run_count() == 1) return;  // OWT_SINGLE_TESTS
    std::set<std::string> names;
    for (const void* kernel : watched().kernels) {
      const std::string name = name_of_function(kernel);
      names.insert(name.substr(0, name.find('<')));
    }
    const std::set<std::string> wanted = kernels_with_shared_memory();
    EXPECT_FALSE(wanted.empty());
    EXPECT_THAT(names, IsSupersetOf(wanted)) << "add the kernel's file and a test of it to race_test in CMakeLists.txt";
  }
};

TEST(PlantedRaces, AreFound) {
  for (const Planted planted :
       {Planted::kSharedMemory, Planted::kGlobalMemory, Planted::kWithinAWarp, Planted::kReuse}) {
    SCOPED_TRACE(static_cast<int>(planted));
    run_planted(planted, true);
    EXPECT_EQ(reports.exchange(0), 0);
    run_planted(planted, false);
    EXPECT_GT(reports.exchange(0), 0);
  }
}

// Sums of several blocks, with 3 lanes of packs and with one.
TEST(BiasGradientRaces, AreNone) {
  const owt::Stream stream(owt::Device::kCuda);
  for (const int64_t channels : {24, 3}) {
    owt::Param bias;
    bias.grad = owt::Tensor({channels}, owt::DType::kF32, owt::Device::kCuda);
    const owt::Tensor y({700, channels}, owt::DType::kBF16, owt::Device::kCuda);
    const owt::Tensor dy({700, channels}, owt::DType::kBF16, owt::Device::kCuda);
    owt::make_bias_gradient(700, channels, &bias, owt::FollowingRelu{2})->queue(stream, y, dy);
    stream.synchronize();
  }
}

// Packs of channels, and single ones.
TEST(ChannelProductRaces, AreNone) {
  const owt::Stream stream(owt::Device::kCuda);
  for (const int64_t channels : {24, 3}) {
    const owt::Tensor x({2, 9, 7, channels}, owt::DType::kF32, owt::Device::kCuda);
    owt::Tensor sums({2, channels}, owt::DType::kF32, owt::Device::kCuda);
    owt::sum_channel_products(owt::Cuda{}, x, x, sums, stream);
    stream.synchronize();
  }
}

// Each division of an image among warps, and blocks that take several images one after the other.
TEST(SmallConvRaces, AreNone) {
  const owt::Stream stream(owt::Device::kCuda);
  for (const auto& [side, channels, rows] : {std::array<int64_t, 3>{16, 24, 1}, {8, 40, 1}, {4, 8, 100}}) {
    const owt::ConvGeometry g{side, side, channels, side, side, channels, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    const owt::Tensor x({rows, side, side, channels}, owt::DType::kBF16, owt::Device::kCuda);
    const owt::Tensor w({channels, 3, 3, channels}, owt::DType::kBF16, owt::Device::kCuda);
    owt::Tensor y(x.shape(), owt::DType::kBF16, owt::Device::kCuda);
    for (const auto& conv : {owt::SmallConv::forward(g, channels, rows, owt::DType::kBF16),
                             owt::SmallConv::data_gradient(g, rows, owt::DType::kBF16)})
      conv.value().queue(x.raw(), w.raw(), nullptr, true, y.raw(), stream);
    const auto weights = owt::SmallConvWeights::gradient(g, channels, rows, owt::DType::kBF16).value();
    owt::Tensor dw(w.shape(), owt::DType::kF32, owt::Device::kCuda);
    owt::Tensor workspace({weights.workspace_bytes()}, owt::DType::kU8, owt::Device::kCuda);
    weights.queue(x.raw(), y.raw(), 0, dw, workspace.raw(), stream);
    stream.synchronize();
  }
}

// Each image gets up to five operations, some with tables from a histogram in shared memory.
TEST(EditRaces, AreNone) {
  constexpr int64_t kRows = 8;
  const owt::Shape image{6, 5, 3};
  owt::AugmentSettings settings{.crop = 4};
  settings.jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
  settings.trivial = true;
  owt::Tensor pixels(image.batch_of(kRows), owt::DType::kU8), samples({kRows}, owt::DType::kI64);
  for (int64_t i = 0; i < pixels.shape().elements(); ++i)
    pixels.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37 % 251);
  std::iota(samples.data<int64_t>(), samples.data<int64_t>() + kRows, 0);
  const owt::Augmenter augmenter(settings, image);
  owt::DeviceAugmenter on_gpu(augmenter, kRows);
  owt::Tensor images(augmenter.out_shape().batch_of(kRows), owt::DType::kF32, owt::Device::kCuda);
  const owt::Stream stream(owt::Device::kCuda);
  on_gpu.run(pixels.to(owt::Device::kCuda), owt::DeviceAugmenter::Pixels::kOfBatch, samples.to(owt::Device::kCuda),
             {.training = true}, {}, images, stream);
  stream.synchronize();
}

// Tiles at the right and lower edge are incomplete.
TEST(DeviceJpegRaces, AreNone) {
  constexpr int64_t kSide = 36, kHeight = 40, kWidth = 52;
  const owt::Device gpu = owt::Device::kCuda;
  const std::string file = owt::jpeg_of(owt::made_photo(1, kHeight, kWidth), {.quality = 40});
  const owt::FileRow row{std::ssize(file), kHeight, kWidth, {0, 1, kHeight, 50}};
  ASSERT_TRUE(owt::DeviceJpeg::supports(row, kSide, 3));
  const owt::Shape shape{1, kSide, kSide, 3}, row_shape{1, static_cast<int64_t>(sizeof row)};
  auto bytes = owt::Tensor::shared_with(gpu, shape, owt::DType::kU8);
  auto files = owt::Tensor::shared_with(gpu, row_shape, owt::DType::kU8);
  const auto unread = owt::Tensor::shared_with(gpu, {1}, owt::DType::kI32);
  std::copy(file.begin(), file.end(), bytes.data<uint8_t>());
  std::memcpy(files.raw(), &row, sizeof row);
  const owt::Tensor pixels(shape, owt::DType::kU8, gpu);
  owt::DeviceJpeg jpegs(1, kSide, 3, kHeight * kWidth);
  const owt::Stream stream(gpu);
  jpegs.run(
      bytes, files, pixels, [](int64_t) { FAIL(); }, unread, stream);
  stream.synchronize();
  EXPECT_EQ(unread.data<int32_t>()[0], 0);
}

}  // namespace

void note_watched_kernel(const void* kernel) {
  const std::lock_guard lock(watched().mutex);
  watched().kernels.insert(kernel);
}

}  // namespace simulated_gpu

int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  testing::UnitTest::GetInstance()->listeners().Append(new simulated_gpu::Races);
  testing::AddGlobalTestEnvironment(new simulated_gpu::Cases);
  return RUN_ALL_TESTS();
}
