// The strategies that tests iterate over.
#pragma once

#include <vector>

#include "src/core/device.h"
#include "src/plan/strategy.h"

namespace owt {

inline bool works_on(Strategy strategy, Device device) {
  return device == Device::kCpu || facts_of(strategy).updates != Updates::kServers;
}

// Whether the ranks know the norms of the whole step's gradients.
inline bool finds_norms(Strategy strategy) { return facts_of(strategy).updates != Updates::kServers; }

// Strategies whose ranks all do the same; tests have separate figures for the others.
inline std::vector<Strategy> strategies_without_stages(Device device = Device::kCpu) {
  std::vector<Strategy> all = all_strategies();
  std::erase_if(all, [&](Strategy strategy) {
    return facts_of(strategy).rounds == Rounds::kEqualParts || !works_on(strategy, device);
  });
  return all;
}

}  // namespace owt
