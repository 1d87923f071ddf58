#include "src/plan/action.h"

#include "src/plan/plan_updates.h"

#include <algorithm>

#include "src/system/log.h"

namespace owt {
namespace {

std::string bucket_of(const Plan& plan, const Action& action) {
  const StepTransfers& at = plan.of_step;
  for (const TransferId id : {at.gradients, at.gradient_copies, at.weights, at.averages, at.dense_gradients})
    if (action.transfer == id) return concat(", bucket ", action.bucket);
  return "";
}

// The weights that are used: "copy 2, 3 updates ahead".
std::string weights_text(const Action& action) {
  if (action.copy == kNewestWeights) return "current weights";
  if (action.ahead == 0) return concat("copy ", action.copy + 1);
  return concat("copy ", action.copy + 1, ", ", action.ahead, action.ahead == 1 ? " update" : " updates", " ahead");
}

std::string remark(const Action& action) {
  if (action.kind == Action::Kind::kCopyWeights || action.kind == Action::Kind::kTakeWeights)
    return concat(" (", weights_text(action), ")");
  if (action.beside) return " (overlaps what follows)";
  return action.updates ? " (updated at once)" : "";
}

}  // namespace

const char* name_of(Action::Kind kind) {
  const char* const names[] = {"forward",         "loss",  "backward data", "backward weights",
                               "update",          "start", "wait",          "copy weights",
                               "average weights", "norms", "take weights"};
  return names[static_cast<size_t>(kind)];
}

int weight_copies(const std::vector<Action>& actions) {
  int copies = 0;
  for (const Action& at : actions) copies = std::max(copies, at.copy + 1);
  return copies;
}

TransferId transfer_inside(const Plan& plan, const Action& action) {
  switch (action.kind) {
    case Action::Kind::kForward:
    case Action::Kind::kBackwardData:
      return plan.layer(action.layers.begin).transfers.sums;
    case Action::Kind::kUpdate:
      if (plan.shares_update() && !plan.buckets[static_cast<size_t>(action.bucket)].trained) return kNoTransfer;
      for (int64_t i = action.layers.begin; i < action.layers.end; ++i)
        for (size_t p = 0; p < plan.layer(i).params.size(); ++p)
          if (matrix_block(plan, i, p) > 0) return plan.of_step.matrices;
      return kNoTransfer;
    default:
      return kNoTransfer;
  }
}

std::string subject(const Plan& plan, const Action& action) {
  if (action.moves_bytes()) return concat(plan.transfer(action.transfer).name, bucket_of(plan, action));
  if (action.layers.size() == 0) return "";
  const auto name = [&](int64_t i) { return plan.layer(i).name; };
  const std::string first = name(action.layers.begin), last = name(action.layers.end - 1);
  return first == last ? first : concat(first, " to ", last);
}

std::string action_text(const Plan& plan, const std::vector<Action>& actions) {
  const bool slices = std::any_of(actions.begin(), actions.end(), [](const Action& at) { return at.slice > 0; });
  const auto slice = [&](const auto& text) { return slices ? format(" {:>11}", text) : std::string(); };
  std::string text = format("{:>4}  {:<17}{} {:>5}  {}\n", "nr", "action", slice("micro-batch"), "round", "of");
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& at = actions[i];
    text += format("{:>4}  {:<17}{} {:>5}  {}{}\n", i + 1, name_of(at.kind), slice(at.slice + 1),
                   at.round == kOwnRows ? "" : concat(at.round + 1), subject(plan, at), remark(at));
  }
  return text;
}

}  // namespace owt
