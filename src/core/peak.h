// Peak throughput of the calling thread's team of threads, for comparison with the times of layers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "src/core/device.h"
#include "src/system/plan_cache.h"

namespace owt {

struct Peak {
  double flops_per_s = 0;  // a multiply-add is 2; 0: both are unknown
  double bytes_per_s = 0;  // memory traffic, read and written

  bool known() const { return flops_per_s > 0; }
  // Roofline limit: the least seconds for this work. Source: Williams et al. 2009, "Roofline: An Insightful Visual
  // Performance Model for Multicore Architectures".
  double seconds(double flops, double bytes) const;
  bool computes(double flops, double bytes) const;  // whether arithmetic, not memory, sets the limit
};

// Measures the peak in about 0.2 s, while `teams` teams of this machine do the same. It times a matrix product of this
// precision that fits into the second-level caches (oneDNN), and a sweep over more memory than the caches hold. `meet`
// waits for the other teams before each of the two. The cache stores the peak by processor, threads, teams and
// precision.
Peak measure_peak(
    Precision precision, int teams, const std::function<void()>& meet = [] {}, PlanCache& cache = PlanCache::process());
// The peak in the cache, without a measurement; none if there is none.
std::optional<Peak> known_peak(Precision precision, int teams, PlanCache& cache = PlanCache::process());
// The key of the peak in the cache.
std::string peak_key(Precision precision, int teams);

}  // namespace owt
