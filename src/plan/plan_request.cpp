#include "src/plan/plan_request.h"

namespace owt {

const char* name_of(DenseSplit split) {
  const char* const names[] = {"strategy", "columns", "rows", "less"};
  return names[static_cast<size_t>(split)];
}

}  // namespace owt
