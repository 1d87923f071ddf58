#include "src/plan/transfer.h"

namespace owt {

const char* name_of(Group group) {
  const char* const names[] = {"world", "model", "replicas"};
  return names[static_cast<size_t>(group)];
}

}  // namespace owt
