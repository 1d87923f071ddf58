#include "src/predict/choose.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "src/plan/plan_bytes.h"
#include "src/plan/plan_table.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

double ms(double seconds) { return 1e3 * seconds; }
double mb(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// The fastest prediction that passes; null if none passes.
const Prediction* least(const std::vector<Prediction>& all, const std::function<bool(const Prediction&)>& passes) {
  const Prediction* best = nullptr;
  for (const Prediction& p : all)
    if (passes(p) && (!best || p.step_s() < best->step_s())) best = &p;
  return best;
}

// The smallest multiple of `unit`, at most most_rows, for which `holds`; it must hold for all larger ones. 0: none.
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

// The request for steps of `rows` rows, a multiple of the ranks, with at most as many micro-batches as a rank has rows.
PlanRequest of_rows(PlanRequest request, int64_t rows) {
  request.step_rows = rows;
  request.slices = static_cast<int>(std::min<int64_t>(request.slices, rows / request.ranks));
  return request;
}

std::string name_of_candidate(const PlanRequest& request) {
  Prediction nothing_yet;
  nothing_yet.request = request;
  if (facts_of(request.strategy).splits() && request.model_ranks > 0) nothing_yet.model_ranks = request.model_ranks;
  return nothing_yet.name();
}

// A bar of the parts of a step: computing, updating and waiting. `longest` fills all cells.
std::string bar_of(const Prediction& p, double longest, int cells, bool unicode) {
  const auto upto = [&](double seconds) { return std::lround(seconds / longest * cells); };
  const long ends[] = {upto(p.compute_s), upto(p.compute_s + p.update_s), std::max(1L, upto(p.step_s()))};
  constexpr const char* kParts[2][3] = {{"#", "+", "."}, {"█", "▓", "░"}};
  std::string bar;
  for (long cell = 0, part = 0; cell < ends[2]; ++cell) {
    while (part < 2 && cell >= ends[part]) ++part;
    bar += kParts[int{unicode}][part];
  }
  return bar;
}

bool may_be_chosen(const PlanRequest& request) { return request.ranks == 1 || facts_of(request.strategy).for_auto; }

}  // namespace

const Prediction* Choice::best_split() const {
  return least(all, [](const Prediction& p) { return p.split; });
}

const Prediction* Choice::best_data_parallel() const {
  return least(all, [](const Prediction& p) { return !p.split && may_be_chosen(p.request); });
}

std::string Choice::reason() const {
  const Prediction &best_one = chosen(), *other = best_one.split ? best_data_parallel() : best_split();
  if (best_one.request.ranks == 1) return "One worker has nothing to send: all strategies are the same.";
  if (!other) return format("{}: {:.4g} ms a step. Nothing can be split.", best_one.name(), ms(best_one.step_s()));
  std::string text = format(
      "{}: {:.4g} ms a step, {:.2f} times as fast as {}: it sends {:.4g} MB instead of {:.4g} MB per worker, is idle "
      "for {:.4g} instead of {:.4g} ms, updates for {:.4g} instead of {:.4g} ms.",
      best_one.name(), ms(best_one.step_s()), other->step_s() / best_one.step_s(), other->name(), mb(best_one.bytes),
      mb(other->bytes), ms(best_one.exposed_s), ms(other->exposed_s), ms(best_one.update_s), ms(other->update_s));
  if (!best_one.split) text += " Splitting the dense layers does not pay here.";
  return text;
}

std::string Choice::table() const {
  std::string text =
      format("{:<14} {:>12} {:>12} {:>11} {:>11} {:>10} {:>11} {:>11} {:>10}\n", "strategy", "MB/worker",
             "busiest link", "compute ms", "exposed ms", "update ms", "step ms", "images/s", "MB memory");
  for (size_t i = 0; i < all.size(); ++i) {
    const Prediction& p = all[i];
    text += format("{:<14} {:>12.3f} {:>12.3f} {:>11.3f} {:>11.3f} {:>10.3f} {:>11.3f} {:>11.0f} {:>10.1f}{}\n",
                   p.name(), mb(p.bytes), mb(p.busiest_link), ms(p.compute_s), ms(p.exposed_s), ms(p.update_s),
                   ms(p.step_s()), p.images_per_second(), mb(p.memory_bytes), i == best ? "   <- best" : "");
  }
  return text;
}

std::string Choice::comparison(int columns, bool unicode) const {
  constexpr int kFigures = 74, kLeastBar = 8;  // columns
  std::vector<const Prediction*> order;
  for (const Prediction& p : all) order.push_back(&p);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->step_s() < b->step_s(); });
  std::string text = format("  {:<13} {:>11} {:>10} {:>11} {:>12} {:>10}\n", "strategy", "step ms", "images/s",
                            "MB memory", "MB sent", "idle ms");
  const int cells = columns - kFigures;
  for (const Prediction* p : order) {
    text += format("{} {:<13} {:>11.3f} {:>10.0f} {:>11.1f} {:>12.3f} {:>10.3f}", p == &chosen() ? '*' : ' ', p->name(),
                   ms(p->step_s()), p->images_per_second(), mb(p->memory_bytes), mb(p->bytes), ms(p->exposed_s));
    if (cells >= kLeastBar) text += "  " + bar_of(*p, order.back()->step_s(), cells, unicode);
    text += '\n';
  }
  text += "* the shortest predicted step; memory, MB sent (mean) and idle time are per worker and step";
  if (cells >= kLeastBar) text += unicode ? "\n█ computes  ▓ updates  ░ idle" : "\n# computes  + updates  . idle";
  text += '\n';
  if (!refused.empty()) text += "\nNot possible here:\n";
  for (size_t i = 0; i < refused.size(); ++i) {
    text += (i > 0 && refused[i].why == refused[i - 1].why ? ", " : "  ") + refused[i].name;
    if (i + 1 == refused.size() || refused[i].why != refused[i + 1].why) text += ": " + refused[i].why + '\n';
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
      PlanRequest candidate = request;
      candidate.strategy = strategy;
      candidate.model_ranks = model_ranks;
      if (facts_of(strategy).splits() || model_ranks == groups.front()) all.push_back(candidate);
    }
  return all;
}

std::optional<Plan> plan_if_possible(const Model& model, const PlanRequest& request, std::string& why) {
  const bool in_groups = request.model_ranks == 0 || request.ranks % request.model_ranks == 0;
  try {
    return make_plan(model, request);
  } catch (const Error& e) {
    if (!in_groups) throw;  // the request is wrong, not the strategy
    why = e.what();
  }
  return {};
}

Choice choose_strategy(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute) {
  Choice choice;
  for (const PlanRequest& candidate : candidates(request, network)) {
    std::string why;
    const std::optional<Plan> plan = plan_if_possible(model, candidate, why);
    // With nothing split the candidate is equivalent to dp, or to independent ranks.
    if (plan) why = unsplit_text(*plan);
    if (!why.empty()) {
      choice.refused.push_back({name_of_candidate(candidate), why});
      continue;
    }
    choice.all.push_back(price_step(*plan, network, compute));
    if (may_be_chosen(candidate) && choice.all.back().step_s() < choice.chosen().step_s())
      choice.best = choice.all.size() - 1;
  }
  if (choice.all.empty()) fail(choice.refused.front().why);
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
    return bytes_per_step(make_plan(model, at)) < bytes_per_step(asked);
  });
}

}  // namespace owt
