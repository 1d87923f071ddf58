// Steps that fit into less memory.
#include <algorithm>

#include "src/plan/plan_rows.h"
#include "src/predict/memory_need.h"

namespace owt {

int slices_that_fit(Plan plan, int64_t memory_bytes) {
  const int64_t groups = most_slices(plan);
  constexpr int64_t kMostSlices = 256;  // the list of a step grows with them
  for (int64_t slices = plan.request.slices + 1; slices <= std::min(groups, kMostSlices); ++slices) {
    plan.request.slices = static_cast<int>(slices);
    if (groups % slices == 0 && memory_need(plan).bytes(plan.request.step_rows) <= memory_bytes)
      return plan.request.slices;
  }
  return 0;
}

std::string what_fits(const Plan& plan, int64_t memory_bytes, int64_t step_rows) {
  const MemoryNeed need = memory_need(plan);
  const int64_t fits = need.rows_in(memory_bytes);
  if (fits <= 0 || fits >= step_rows)
    return concat("the weights with their gradients alone take ", need.weight_bytes >> 20,
                  " MiB; more workers share the dense layers");
  const int slices = slices_that_fit(plan, memory_bytes);
  return concat("a step of about ", fits, " images would fit (data.batch is ", step_rows, ")",
                slices > 0 ? concat(", or this step with gradient accumulation: data.accumulate = ", slices) : "");
}

}  // namespace owt
