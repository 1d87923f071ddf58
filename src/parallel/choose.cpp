#include "src/parallel/choose.h"

#include <algorithm>
#include <functional>

#include "src/core/check.h"
#include "src/core/log.h"

namespace owt {
namespace {

double ms(double seconds) { return 1e3 * seconds; }
double mb(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// The least of those that pass; null where none does.
const Prediction* least(const std::vector<Prediction>& all, const std::function<bool(const Prediction&)>& passes) {
  const Prediction* best = nullptr;
  for (const Prediction& p : all)
    if (passes(p) && (!best || p.step_s() < best->step_s())) best = &p;
  return best;
}

// The smallest multiple of `unit` up to most_rows from which on `holds`, which does not hold below; 0: none.
int64_t first_multiple(int64_t unit, int64_t most_rows, const std::function<bool(int64_t)>& holds) {
  int64_t below = 0, above = 1;  // in units
  while (!holds(above * unit)) {
    below = above;
    above *= 2;
    if (above * unit > most_rows) return 0;
  }
  while (above - below > 1) {
    const int64_t middle = below + (above - below) / 2;
    (holds(middle * unit) ? above : below) = middle;
  }
  return above * unit;
}

// The same for steps of so many rows, a multiple of the ranks, in no more slices than a rank has rows then.
PlanRequest of_rows(PlanRequest request, int64_t rows) {
  request.step_rows = rows;
  request.slices = static_cast<int>(std::min<int64_t>(request.slices, rows / request.ranks));
  return request;
}

}  // namespace

const Prediction* Choice::best_split() const {
  return least(all, [](const Prediction& p) { return p.split; });
}

const Prediction* Choice::best_data_parallel() const {
  return least(all, [](const Prediction& p) { return !p.split; });
}

std::string Choice::reason() const {
  const Prediction &best_one = chosen(), *other = best_one.split ? best_data_parallel() : best_split();
  if (best_one.request.ranks == 1) return "One rank has nothing to send: the strategies are the same.";
  if (!other) return format("{}: {:.4g} ms a step. Nothing can be split.", best_one.name(), ms(best_one.step_s()));
  std::string text = format(
      "{}: {:.4g} ms a step, {:.2f} times as fast as {}: it sends {:.4g} MB instead of {:.4g} MB per rank, waits "
      "{:.4g} instead of {:.4g} ms, updates for {:.4g} instead of {:.4g} ms.",
      best_one.name(), ms(best_one.step_s()), other->step_s() / best_one.step_s(), other->name(), mb(best_one.bytes),
      mb(other->bytes), ms(best_one.exposed_s), ms(other->exposed_s), ms(best_one.update_s), ms(other->update_s));
  if (!best_one.split) text += " Splitting the dense layers does not pay here.";
  return text;
}

std::string Choice::table() const {
  std::string text =
      format("{:<14} {:>12} {:>12} {:>11} {:>11} {:>10} {:>11} {:>11} {:>10}\n", "strategy", "MB sent/rank",
             "busiest link", "compute ms", "exposed ms", "update ms", "step ms", "images/s", "MB memory");
  for (size_t i = 0; i < all.size(); ++i) {
    const Prediction& p = all[i];
    text += format("{:<14} {:>12.3f} {:>12.3f} {:>11.3f} {:>11.3f} {:>10.3f} {:>11.3f} {:>11.0f} {:>10.1f}{}\n",
                   p.name(), mb(p.bytes), mb(p.busiest_link), ms(p.compute_s), ms(p.exposed_s), ms(p.update_s),
                   ms(p.step_s()), p.images_per_second(), mb(p.memory_bytes), i == best ? "   <- best" : "");
  }
  return text;
}

std::vector<PlanRequest> candidates(const PlanRequest& request, const Network& network) {
  std::vector<int> groups = {0};  // all ranks
  if (network.hosts > 1 && network.ranks_per_host > 1) groups.push_back(network.ranks_per_host);
  if (request.model_ranks > 0) groups = {request.model_ranks};
  std::vector<PlanRequest> all;
  for (const Strategy strategy : all_strategies())
    for (const int model_ranks : groups) {
      const StrategyFacts& facts = facts_of(strategy);
      if (request.average_every > 1 && !facts.can_average) continue;
      if (request.average_every > 1 && request.norm_sums > 0 && facts.splits()) continue;  // make_plan() refuses
      if (request.slices > 1 && facts.in_stages) continue;
      PlanRequest candidate = request;
      candidate.strategy = strategy;
      candidate.model_ranks = model_ranks;
      if (facts.splits() || model_ranks == groups.front()) all.push_back(candidate);
    }
  return all;
}

Choice choose_strategy(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute) {
  Choice choice;
  const bool can_split = can_split_dense(model);
  for (const PlanRequest& candidate : candidates(request, network)) {
    if (splits_dense(candidate.strategy) && !can_split) continue;
    if (facts_of(candidate.strategy).in_stages && !can_be_staged(model, candidate)) continue;
    const Plan plan = make_plan(model, candidate);
    // With nothing split it is dp once more, or every rank for itself.
    if (!plan.split() && facts_of(candidate.strategy).splits()) continue;
    choice.all.push_back(price_step(plan, network, compute));
    if (choice.all.back().step_s() < choice.chosen().step_s()) choice.best = choice.all.size() - 1;
  }
  return choice;
}

int64_t crossover_rows(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute, int64_t most_rows) {
  if (request.ranks == 1) return 0;
  return first_multiple(request.ranks, most_rows, [&](int64_t rows) {
    const Choice choice = choose_strategy(model, of_rows(request, rows), network, compute);
    return choice.best_split() && !choice.chosen().split;
  });
}

int64_t crossover_rows_by_bytes(const Model& model, const PlanRequest& request, int64_t most_rows) {
  if (request.ranks == 1) return 0;
  return first_multiple(request.ranks, most_rows, [&](int64_t rows) {
    PlanRequest at = of_rows(request, rows);
    const Plan asked = make_plan(model, at);
    at.strategy = kPlainDataParallel;
    return asked.split() && make_plan(model, at).bytes_per_step() < asked.bytes_per_step();
  });
}

}  // namespace owt
