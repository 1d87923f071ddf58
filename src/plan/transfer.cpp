#include "src/plan/transfer.h"

namespace owt {

const char* name_of(Group group) {
  switch (group) {
    case Group::kWorld:
      return "world";
    case Group::kModel:
      return "model";
    case Group::kReplicas:
      return "replicas";
  }
  return "";
}

}  // namespace owt
