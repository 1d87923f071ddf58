// Runs a test of a communicator on a device with a number of ranks.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <tuple>
#include <vector>

#include "src/comm/launch.h"
#include "src/comm/threads.h"
#include "src/core/gpus.h"
#include "src/system/texts.h"

namespace owt {

// The devices and the numbers of ranks to test with. In a launch the ranks are its processes.
inline std::vector<Device> devices_of_ranks() {
  if (launch().several()) return {launch().shares_gpu ? Device::kCuda : Device::kCpu};
  if (find_gpus().list.empty()) return {Device::kCpu};
  return {Device::kCpu, Device::kCuda};
}
inline std::vector<int> numbers_of_ranks(const std::vector<int>& of_threads) {
  return launch().several() ? std::vector<int>{launch().ranks} : of_threads;
}

class OnRanks : public ::testing::TestWithParam<std::tuple<Device, int>> {
 protected:
  void SetUp() override {
    const bool on_gpus = device() == Device::kCuda && !launch().several();
    const auto gpus = static_cast<int>(on_gpus ? find_gpus().list.size() : 1);
    if (gpus > 1 && gpus < ranks()) GTEST_SKIP() << ranks() << " ranks do not fit " << gpus << " GPUs";
    one_memory_ = gpus == 1 && !launch().shares_gpu;
  }

  Device device() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  bool one_memory() const { return one_memory_; }  // not through NCCL
  void run(const std::function<void(Communicator&)>& body) const { run_ranks(ranks(), 1, body, device()); }

 private:
  bool one_memory_ = true;
};

}  // namespace owt
