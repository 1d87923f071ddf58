#include "src/train/evaluation.h"

#include "src/system/log.h"

namespace owt {

std::string accuracy_text(const Evaluation& of, int64_t classes) {
  return format("top-1 {:.2f} %{}", 100 * of.top1, has_top5(classes) ? format(", top-5 {:.2f} %", 100 * of.top5) : "");
}

}  // namespace owt
