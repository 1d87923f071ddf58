#include "layers/base/bad_values.h"

#include <atomic>
#include <cmath>

#include "src/core/conversions.h"
#include "src/core/threads.h"

namespace owt {

bool all_finite(const Tensor& values) {
  const Tensor here = f32_on_host(values);
  const float* v = here.data();
  std::atomic<bool> finite{true};
  parallel_for(here.elements(), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (!std::isfinite(v[i])) {
        finite = false;
        return;
      }
  });
  return finite;
}

int32_t first_bad_layer(std::span<const Watched> watched, int32_t first) {
  for (const Watched& one : watched)
    if (first > one.layer && !all_finite(one.values)) first = one.layer;
  return first;
}

}  // namespace owt
