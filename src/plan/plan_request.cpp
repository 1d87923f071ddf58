#include "src/plan/plan_request.h"

namespace owt {

const char* name_of(DenseSplit split) {
  switch (split) {
    case DenseSplit::kOfStrategy:
      return "strategy";
    case DenseSplit::kColumns:
      return "columns";
    case DenseSplit::kRows:
      return "rows";
    case DenseSplit::kLess:
      return "less";
  }
  return "";
}

}  // namespace owt
