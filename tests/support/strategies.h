// Strategies that tests run through.
#pragma once

#include <vector>

#include "src/core/device.h"
#include "src/parallel/strategy.h"

namespace owt {

inline bool works_on(Strategy strategy, Device device) {
  return device == Device::kCpu || facts_of(strategy).updates != Updates::kServers;
}

// Of the gradients of a whole step.
inline bool finds_norms(Strategy strategy) { return facts_of(strategy).updates != Updates::kServers; }

// Those whose ranks all do the same; of the others tests have figures of their own.
inline std::vector<Strategy> strategies_without_stages(Device device = Device::kCpu) {
  std::vector<Strategy> all = all_strategies();
  std::erase_if(all, [&](Strategy strategy) { return facts_of(strategy).in_stages || !works_on(strategy, device); });
  return all;
}

}  // namespace owt
