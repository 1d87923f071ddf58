// Random small nets give the same results if memory is filled with NaN as soon as it may no longer be read
// (src/core/poison.h).
#include "src/core/poison.h"

#include <gtest/gtest.h>

#include <random>

#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/runs.h"
#include "tests/support/using_conv_algorithm.h"

namespace owt::poison_test {
namespace {

const std::vector<std::string> kKinds = {
    "type = \"relu\"",
    "type = \"dropout\", rate = 0.3",
    "type = \"activation\", kind = \"tanh\"",
    "type = \"activation\", kind = \"sigmoid\"",
    "type = \"activation\", kind = \"softplus\"",
    "type = \"activation\", kind = \"relu6\"",
    "type = \"activation\", kind = \"leaky\"",
    "type = \"activation\", kind = \"gelu\"",
    "type = \"activation\", kind = \"prelu\"",
};
const std::vector<std::string> kOfImages = {
    "type = \"conv\", out = 4, kernel = 3, pad = 1",
    "type = \"conv\", out = 4, kernel = 1, bias = false",
    "type = \"max_pool\", kernel = 2, stride = 1",
    "type = \"avg_pool\", kernel = 2, stride = 1",
    "type = \"lrn\", size = 3",
    "type = \"batch_norm\"",
    "type = \"local\", out = 3, kernel = 2",
};

class RandomNet {
 public:
  explicit RandomNet(uint32_t seed) : random_(seed) {}

  std::string recipe() {
    std::string layers = layer("type = \"conv\", out = 4, kernel = 3, pad = 1");
    for (int64_t i = below(4); i > 0; --i) layers += image_layer();
    for (int64_t i = 1 + below(3); i > 0; --i) {
      layers += layer(concat("type = \"dense\", out = ", 4 + below(9)));
      for (int64_t k = below(3); k > 0; --k) layers += layer(one_of(kKinds));
    }
    layers += layer("type = \"dense\", out = 10");
    return recipe_of("[3, 8, 8]", "train_images = 40\nbatch = 12\n", layers, 0.005);
  }

  Overrides run() {
    const std::vector<Overrides> all = {
        {{"parallel.strategy", "dp"}, {"parallel.workers", "1"}},
        {{"parallel.strategy", "dp"}, {"parallel.workers", "3"}, {"data.accumulate", "2"}},
        {{"parallel.strategy", "dp-zero"}, {"parallel.workers", "2"}},
        {{"parallel.strategy", "dp-star"}, {"parallel.workers", "2"}},
        {{"parallel.strategy", "owt-a"}, {"parallel.workers", "3"}},
        {{"parallel.strategy", "owt-b"}, {"parallel.workers", "2"}, {"parallel.shares", "[1, 2]"}},
        {{"parallel.strategy", "owt-c"}, {"parallel.workers", "2"}},
        {{"parallel.strategy", "owt-c"}, {"parallel.workers", "3"}, {"parallel.shares", "[1, 3, 2]"}},
        {{"parallel.strategy", "owt-d"}, {"parallel.workers", "2"}, {"data.accumulate", "2"}},
        {{"parallel.strategy", "mp"}, {"parallel.workers", "3"}},
        {{"parallel.strategy", "mp-dense"}, {"parallel.workers", "2"}},
        {{"parallel.strategy", "pipeline"}, {"parallel.workers", "2"}},
        {{"parallel.strategy", "pipeline"}, {"parallel.workers", "3"}, {"pipeline.schedule", "gpipe"}},
        {{"parallel.strategy", "ps"}, {"parallel.workers", "2"}},
    };
    Overrides chosen = one_of(all);
    if (below(3) == 0) chosen.emplace_back("run.precision", "bf16");
    return chosen;
  }

 private:
  int64_t below(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(count)); }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<size_t>(below(std::ssize(all)))];
  }
  std::string layer(const std::string& keys) { return concat("{ name = \"l", next_++, "\", ", keys, " },\n"); }
  std::string image_layer() {
    const int64_t kind = below(6);
    if (kind < 2) return layer(one_of(kKinds));
    if (kind < 4) return layer(one_of(kOfImages));
    std::string body = layer("type = \"conv\", out = 4, kernel = 3, pad = 1") + layer(one_of(kKinds)) +
                       layer(one_of(kKinds)) + layer("type = \"conv\", out = 4, kernel = 1");
    std::erase(body, '\n');
    if (kind == 4) return layer(concat("type = \"branches\", branches = [{ layers = [", body, "] }, { layers = [] }]"));
    return layer(concat("type = \"residual\", body = [", body, "], shortcut = [",
                        "{ name = \"s\", type = \"conv\", out = 4, kernel = 1 }]"));
  }

  std::mt19937 random_;
  int next_ = 0;
};

struct Learnt {
  SmallRun run;
  std::string failed;  // why it did not end
};

Learnt learn(const std::string& recipe, const Overrides& changes, bool poison) {
  const WithPoison with(poison);
  try {
    return {run_small(recipe, 3, changes), ""};
  } catch (const Error& e) {
    return {{}, e.what()};
  }
}

using PoisonTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, PoisonTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(PoisonTest, RandomNetsLearnTheSame) {
  const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
  const uint32_t nets = device() == Device::kCpu ? 100 : 10;
  int learnt = 0;
  for (uint32_t seed = 0; seed < nets; ++seed) {
    RandomNet net(seed);
    const std::string recipe = net.recipe();
    Overrides changes = net.run();
    changes.emplace_back("run.device", name_of(device()));
    try {
      small_settings(recipe, changes).plan_to_run();
    } catch (const Error&) {
      continue;  // the strategy cannot split such a net, or it pools more pixels than there are
    }
    SCOPED_TRACE(concat("seed ", seed, ", ", changes[0].second, " on ", changes[1].second, "\n", recipe));
    const Learnt plain = learn(recipe, changes, false), poisoned = learn(recipe, changes, true);
    EXPECT_EQ(plain.failed, "");
    EXPECT_EQ(poisoned.failed, "");
    EXPECT_EQ(poisoned.run.losses, plain.run.losses);
    EXPECT_EQ(poisoned.run.weights, plain.run.weights);
    ++learnt;
  }
  EXPECT_GT(learnt, static_cast<int>(nets) / 2);
}

TEST(Poison, FillsMemoryWithNaNWhereItIsAsked) {
  Tensor memory({3});
  memory.zero();
  {
    const WithPoison with(true);
    poison(memory, Stream());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(memory.data()[i]));
    EXPECT_TRUE(std::isnan(Tensor({2}).data()[1])) << "nothing was written to it yet";
  }
  const WithPoison with(false);
  memory.zero();
  poison(memory, Stream());
  EXPECT_EQ(memory.data()[0], 0);
}

}  // namespace
}  // namespace owt::poison_test
