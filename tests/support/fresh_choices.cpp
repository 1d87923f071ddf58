// Every test begins as in a new process, with convolutions that go by their shape: what it finds depends neither on
// which of them a race found the fastest this time, nor on what the test before it has left. A run through train() or
// the program measures, as its recipe says.
#include <gtest/gtest.h>

#include "layers/conv_algorithm.h"

namespace owt {
namespace {

class FreshChoices : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    ConvChoices::process().clear();
    ConvChoices::process().set_mode(ConvAlgorithm::kByShape);
  }
};

[[maybe_unused]] const bool listens = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new FreshChoices);
  return true;
}();

}  // namespace
}  // namespace owt
