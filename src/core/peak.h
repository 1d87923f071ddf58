// What the calling thread's team of threads does per second at best, which the times of layers can be held against.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "src/core/device.h"
#include "src/core/plan_cache.h"

namespace owt {

struct Peak {
  double flops_per_s = 0;  // a multiply-add is 2; 0: unknown, and so is the other
  double bytes_per_s = 0;  // of memory, read and written

  bool known() const { return flops_per_s > 0; }
  // Seconds that so much work takes at least. Source: Williams et al. 2009, "Roofline: An Insightful Visual Performance
  // Model for Multicore Architectures".
  double seconds(double flops, double bytes) const;
  bool computes(double flops, double bytes) const;  // whether products, not memory, take that long
};

// Measured in about 0.2 s, while so many teams of this machine do the same: a product of matrices of this precision
// that fit into the second-level caches (oneDNN), and a sweep over more memory than caches hold. `meet` waits for the
// other teams before each of the two. The cache keeps the peak by processor, threads, teams and precision.
Peak measure_peak(
    Precision precision, int teams, const std::function<void()>& meet = [] {}, PlanCache& cache = PlanCache::process());
// What the cache has, which is taken as it is.
std::optional<Peak> known_peak(Precision precision, int teams, PlanCache& cache = PlanCache::process());
// What the cache calls it.
std::string peak_key(Precision precision, int teams);

}  // namespace owt
