#include "src/commands/extract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "data/synthetic.h"
#include "src/system/files.h"
#include "src/train/inference.h"
#include "tests/support/harness.h"
#include "tests/support/whole_runs.h"

namespace owt::extract_test {
namespace {

using ::testing::HasSubstr;

struct Array {
  std::string header;
  std::vector<float> values;
};
Array read_npy(const std::string& path) {
  const std::string bytes = read_file(path);
  Array array{bytes.substr(0, 128), std::vector<float>((bytes.size() - 128) / 4)};
  std::memcpy(array.values.data(), bytes.data() + 128, bytes.size() - 128);
  return array;
}

class ExtractTest : public WholeRuns, public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ExtractTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(ExtractTest, FeaturesAreChannelsFirstInTheOrderOfTheImages) {
  run("run", {{"schedule.epochs", "1"}});
  const Settings settings = for_one_rank(small_settings(kSmallRecipe, {{"run.device", name_of(device())}}));
  ExtractOptions options;
  options.source.weights = weights_of("run");
  options.source.threads = 1;
  options.source.layer = "conv2";
  options.out = path("x.npy");
  options.labels = path("labels.npy");
  EXPECT_EQ(extract(settings, options), (Shape{50, 16, 6, 6}));  // steps of 24, 24 and 2
  const Array found = read_npy(options.out);
  EXPECT_THAT(found.header, HasSubstr("'shape': (50, 16, 6, 6)"));

  const SyntheticDataset test({.size = 50, .side = 16, .split = Split::kTest}), train({.size = 100, .side = 16});
  const Augmenter augmenter(settings.data.augment, {16, 16, 3}, compute_statistics(train));
  std::vector<uint8_t> pixels(16 * 16 * 3);
  Inference network(settings, weights_of("run"), "conv2");
  for (const int64_t image : {0, 23, 24, 49}) {
    test.read(image, View{}, pixels.data());
    Tensor x({1, 12, 12, 3});
    augmenter.make(View{}, image, pixels.data(), x.data());
    const Tensor y = network.run(x);
    for (int64_t c = 0; c < 16; ++c)
      for (int64_t place = 0; place < 36; ++place)
        EXPECT_NEAR(found.values[static_cast<size_t>((image * 16 + c) * 36 + place)], y.data()[place * 16 + c], 1e-5);
  }
  EXPECT_THAT(read_file(options.labels), HasSubstr("'shape': (50,)"));
}

// 50 images are three batches: of 24, 24 and 2.
TEST_P(ExtractTest, FeaturesAreTheSameForEveryNumberOfWorkers) {
  run("run", {{"schedule.epochs", "1"}});
  const Settings settings = for_one_rank(small_settings(kSmallRecipe, {{"run.device", name_of(device())}}));
  ExtractOptions options;
  options.source.weights = weights_of("run");
  options.source.layer = "fc2";
  const auto with = [&](int workers) {
    options.source.workers = options.source.threads = workers;
    options.out = path("x.npy");
    options.labels = path("labels.npy");
    extract(settings, options);
    return read_file(options.out) + read_file(options.labels);
  };
  const std::string alone = with(1);
  for (const int workers : {2, 3, 5}) EXPECT_TRUE(with(workers) == alone) << workers;
}

}  // namespace
}  // namespace owt::extract_test
