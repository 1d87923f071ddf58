// Runs a test of a communicator on a device with a number of ranks.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "src/comm/threads.h"
#include "src/core/gpus.h"
#include "src/system/texts.h"

namespace owt {

class OnRanks : public ::testing::TestWithParam<std::tuple<Device, int>> {
 protected:
  void SetUp() override {
    const auto gpus = static_cast<int>(device() == Device::kCuda ? find_gpus().list.size() : 1);
    if (gpus > 1 && gpus < ranks()) GTEST_SKIP() << ranks() << " ranks do not fit " << gpus << " GPUs";
    one_memory_ = gpus == 1;
  }

  Device device() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  bool one_memory() const { return one_memory_; }  // not through NCCL
  void run(const std::function<void(Communicator&)>& body) const { run_ranks(ranks(), 1, body, device()); }

 private:
  bool one_memory_ = true;
};

}  // namespace owt
