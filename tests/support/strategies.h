// Strategies that tests run through.
#pragma once

#include <vector>

#include "src/parallel/strategy.h"

namespace owt {

// Those whose ranks all do the same; of the others tests have figures of their own.
inline std::vector<Strategy> strategies_without_stages() {
  std::vector<Strategy> all = all_strategies();
  std::erase_if(all, [](Strategy strategy) { return facts_of(strategy).in_stages; });
  return all;
}

}  // namespace owt
