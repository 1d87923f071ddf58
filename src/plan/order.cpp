#include "src/plan/order.h"

#include "src/plan/step_order.h"
#include "src/system/check.h"

namespace owt {
namespace {

std::vector<Action> order_of(const Plan& plan, int64_t step_rows, int place, bool learns, StepKind kind) {
  StepOrder step(plan, step_rows, place, learns, kind);
  do acting_strategy(plan).order(step);
  while (step.next_slice());
  step.average_weights();
  step.share_result();
  return step.take();
}

}  // namespace

std::vector<Action> training(const Plan& plan, int64_t step_rows, StepKind kind, int place) {
  OWT_CHECK(kind == StepKind::kSynchronous ? plan.synchronizes() : plan.averages(), "the plan has no such steps");
  return order_of(plan, step_rows, place, true, kind);
}

std::vector<KindOfStep> kinds_of_steps(const Plan& plan) {
  if (!plan.averages()) return {{StepKind::kSynchronous, 1}};
  const double averaging = 1.0 / plan.request.average_every;
  std::vector<KindOfStep> kinds{{StepKind::kLocal, 1 - averaging}, {StepKind::kAveraging, averaging}};
  if (plan.synchronizes()) kinds.push_back({StepKind::kSynchronous, 0});
  return kinds;
}

std::vector<Action> training(const Plan& plan, int64_t step_rows, int place) {
  return training(plan, step_rows, plan.averages() ? StepKind::kAveraging : StepKind::kSynchronous, place);
}

std::vector<Action> evaluation(const Plan& plan, int64_t step_rows, int place) {
  return order_of(plan, step_rows, place, false, StepKind::kSynchronous);
}

}  // namespace owt
