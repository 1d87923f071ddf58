#include "src/system/check.h"

#include "src/system/activity.h"

namespace owt {
namespace {

thread_local std::string_view current_what, current_how;

}  // namespace

std::string working_on() {
  return current_how.empty() ? std::string(current_what) : concat(current_what, ", ", current_how);
}

Working::Working(std::string_view what, std::string_view how) : outer_what_(current_what), outer_how_(current_how) {
  note_work();
  current_what = what;
  current_how = how;
}

Working::~Working() {
  current_what = outer_what_;
  current_how = outer_how_;
}

}  // namespace owt
