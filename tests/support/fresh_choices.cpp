// Every test begins as in a new process, with convolution algorithms chosen by shape. So its results depend neither on
// measurements nor on the tests before it. A run through train() or the program measures, as its recipe says.
//
// OWT_TEST_DRAW=SEED replaces the measured times of convolutions on the CPU by random ones. So each pass of a geometry
// uses a random algorithm, the same for every number of threads. Tests must pass with any of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "layers/conv_cpu/conv_algorithm.h"

namespace owt {
namespace {

void draw_times(const std::string& seed, const std::string& key, std::vector<ConvChoices::Timing>& measured) {
  // without the team size
  std::mt19937_64 random(std::hash<std::string>()(seed + ' ' + key.substr(0, key.rfind(", "))));
  for (ConvChoices::Timing& each : measured) each.ms = std::uniform_real_distribution<>(1, 2)(random);
}

class FreshChoices : public ::testing::EmptyTestEventListener {
 public:
  FreshChoices() {
    if (const char* seed = std::getenv("OWT_TEST_DRAW")) {
      mode_ = ConvAlgorithm::kAuto;
      ConvChoices::process().set_retime(
          [seed = std::string(seed)](const std::string& key, auto& measured) { draw_times(seed, key, measured); });
    }
  }

 private:
  void OnTestStart(const ::testing::TestInfo&) override {
    ConvChoices::process().clear();
    ConvChoices::process().set_mode(mode_);
  }

  ConvAlgorithm mode_ = ConvAlgorithm::kByShape;
};

[[maybe_unused]] const bool listens = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new FreshChoices);
  return true;
}();

}  // namespace
}  // namespace owt
