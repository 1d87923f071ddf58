#include "data/load_stages.h"

namespace owt {
namespace {

void add_times(LoadWork& to, const LoadWork& from, int sign) {
  to.images += sign * from.images;
  to.times.work_s += sign * from.times.work_s;
  to.times.wait_s += sign * from.times.wait_s;
  to.staged_s += sign * from.staged_s;
  for (size_t stage = 0; stage < to.stage_s.size(); ++stage) to.stage_s[stage] += sign * from.stage_s[stage];
}

}  // namespace

const char* name_of(LoadStage stage) {
  constexpr std::array<const char*, kLoadStages> kNames{"read", "decode", "resize", "augment", "mix"};
  return kNames[static_cast<size_t>(stage)];
}

LoadWork& LoadWork::operator+=(const LoadWork& other) {
  add_times(*this, other, 1);
  return *this;
}

LoadWork LoadWork::operator-(const LoadWork& earlier) const {
  LoadWork difference = *this;
  add_times(difference, earlier, -1);
  return difference;
}

}  // namespace owt
