#include "src/report/what_if.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "src/plan/plan_updates.h"
#include "src/predict/step_price.h"
#include "src/system/check.h"
#include "src/system/log.h"
#include "src/train/bottleneck.h"

namespace owt {
namespace {

using RowName = std::pair<std::string, Phase>;

// Weights for dividing a row's time among its actions: rows and parts of layers, weights, bytes of transfers.
class InProportion : public ComputeModel {
 public:
  explicit InProportion(const Plan& plan) : plan_(plan) {}
  double forward(size_t, double rows, double part) const override { return rows * part; }
  double backward(size_t, double rows, double part) const override { return rows * part; }
  double update(size_t layer, double part) const override {
    return static_cast<double>(plan_.layers[layer].weight_bytes) * part;
  }
  double loss(double rows) const override { return rows; }
  double rest() const override { return 0; }
  std::string text() const override { return "in proportion"; }

 private:
  const Plan& plan_;
};

Network byte_a_second(int ranks) {
  Network network;
  network.ranks_per_host = ranks;
  network.local = {0, 1};
  return network;
}

Phase phase_of(const Action& action) {
  if (action.moves_bytes()) return Phase::kTransfer;
  switch (action.kind) {
    case Action::Kind::kForward:
      return Phase::kForward;
    case Action::Kind::kBackwardData:
    case Action::Kind::kBackwardWeights:
      return Phase::kBackward;
    case Action::Kind::kLoss:
      return Phase::kLoss;
    default:
      return Phase::kUpdate;
  }
}

// Each layer of a merged row, "conv1+relu1", is named by that row.
bool names_layer(const std::string& row, const std::string& layer) {
  return ("+" + row + "+").find("+" + layer + "+") != std::string::npos;
}

// The part of a transfer's row that is neither the transfer nor waiting for it: work of each rank on the bytes. This is
// the smallest value of all ranks, since early ranks also wait. Valid only if all wait at once; otherwise it may
// include other transfers.
double own_ms_of(std::span<const RankTimes> ranks, const std::string& name) {
  double least = INFINITY;
  for (const RankTimes& rank : ranks)
    if (const RowTimes* row = rank.find(name, Phase::kTransfer))
      least = std::min(least, row->transfer_ms > 0 ? std::max(0.0, row->ms - row->transfer_ms) : 0);
  return std::isfinite(least) ? least : 0;
}

// The duration of a transfer without the work of its ranks.
double link_ms(std::span<const RankTimes> ranks, const std::string& name, const std::function<bool(int)>& takes_part) {
  double ms = transfer_ms_of(ranks, name, takes_part);
  for (size_t r = 0; r < ranks.size(); ++r)
    if (const RowTimes* row = ranks[r].find(name, Phase::kTransfer); row && takes_part(static_cast<int>(r)))
      ms -= row->own_ms;
  return std::max(0.0, ms);
}

class MeasuredTimes : public ActionTimes {
 public:
  MeasuredTimes(const Plan& plan, std::span<const RankTimes> ranks, bool overlaps)
      : plan_(plan),
        overlaps_(overlaps),
        model_(plan),
        network_(byte_a_second(plan.ranks())),
        prices_(predicted_times(plan, network_, model_)) {
    OWT_CHECK_EQ(std::ssize(ranks), plan.ranks());
    for (const RankTimes& rank : ranks) ranks_.push_back({.rows = rows_of_layers(rank)});
    for (int rank = 0; rank < plan.ranks(); ++rank) take(ranks, rank);
  }

  // The seconds of the action that belong to each row.
  std::vector<std::pair<RowName, double>> rows(int rank, const Action& action) const {
    std::vector<std::pair<RowName, double>> all = parts(rank, action);
    for (auto& [row, seconds] : all) seconds *= found(of(rank).own, row);
    return all;
  }

  double compute(int rank, const Action& action) const override {
    double seconds = action.moves_bytes() ? 0 : of(rank).between_s;
    for (const auto& [row, of_row] : rows(rank, action)) seconds += of_row;
    return seconds;
  }

  double transfer(int rank, const Action& start) const override {
    return found(of(rank).transfers, plan_.transfer(start.transfer).name) * prices_->transfer(rank, start);
  }

  double before(int rank) const override { return of(rank).before_s; }

 private:
  struct OfRank {
    std::map<Phase, std::vector<std::string>> rows;  // names of the rows by layer
    std::map<RowName, double> own{};                 // seconds per part of a row
    std::map<std::string, double> transfers{};       // seconds per part of a transfer
    double before_s = 0;                             // waiting for data
    double between_s = 0;                            // host time per action
  };
  const OfRank& of(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

  template <class Name>
  static double found(const std::map<Name, double>& all, const Name& name) {
    const auto at = all.find(name);
    return at == all.end() ? 0 : at->second;
  }

  // An update row has the name of a single layer; rows of passes have the names of all layers that run as one.
  std::map<Phase, std::vector<std::string>> rows_of_layers(const RankTimes& rank) const {
    std::map<Phase, std::vector<std::string>> names;
    for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kUpdate})
      for (const LayerPlan& layer : plan_.layers) {
        const auto row = std::find_if(rank.rows.begin(), rank.rows.end(), [&](const RowTimes& each) {
          return each.phase == phase && names_layer(each.name, layer.name);
        });
        names[phase].push_back(row == rank.rows.end() ? layer.name : row->name);
      }
    return names;
  }

  // The sum of each row's parts in a mean step.
  std::map<RowName, double> sums_of(int rank) const {
    std::map<RowName, double> sums;
    for (const KindOfStep& of : kinds_of_steps(plan_))
      for (const Action& action : training(plan_, plan_.request.step_rows, of.kind, plan_.place_of(rank)))
        for (const auto& [row, part] : all_parts(rank, action)) sums[row] += of.part * part;
    return sums;
  }

  // The number of computing actions in a mean step.
  double actions_of(int rank) const {
    double count = 0;
    for (const KindOfStep& of : kinds_of_steps(plan_))
      for (const Action& action : training(plan_, plan_.request.step_rows, of.kind, plan_.place_of(rank)))
        count += action.moves_bytes() || action.kind == Action::Kind::kTakeWeights ? 0 : of.part;
    return count;
  }

  // The time of a rank's own work in a row, without waiting for others.
  double own_ms(std::span<const RankTimes> ranks, const RowTimes& row) const {
    if (row.phase != Phase::kTransfer) return row.ms;
    if (row.own_ms > 0) return row.own_ms;
    return overlaps_ ? 0 : own_ms_of(ranks, row.name);
  }

  // Computes the seconds per part for every row of a rank; rows without parts come before the first action.
  void take(std::span<const RankTimes> ranks, int rank) {
    const std::map<RowName, double> sums = sums_of(rank);
    const RankTimes& measured = ranks[static_cast<size_t>(rank)];
    OfRank& to = ranks_[static_cast<size_t>(rank)];
    to.between_s = std::max(0.0, measured.rest_ms()) / 1e3 / actions_of(rank);
    for (const RowTimes& row : measured.rows) {
      const double sum = found(sums, {row.name, row.phase});
      if (sum > 0)
        to.own[{row.name, row.phase}] = own_ms(ranks, row) / 1e3 / sum;
      else if (row.phase != Phase::kTransfer)
        to.before_s += row.ms / 1e3;
    }
    for (const Transfer& transfer : plan_.transfers) {
      const auto takes_part = [&](int other) { return are_together(plan_, rank, other, transfer.group); };
      if (const double sum = found(sums, {transfer.name, Phase::kTransfer}); sum > 0)
        to.transfers[transfer.name] = link_ms(ranks, transfer.name, takes_part) / 1e3 / sum;
    }
  }

  // The parts() of an action, and the transfer that it waits for itself.
  std::vector<std::pair<RowName, double>> all_parts(int rank, const Action& action) const {
    std::vector<std::pair<RowName, double>> all = parts(rank, action);
    Action inside = action;
    inside.transfer = transfer_inside(plan_, action);
    if (inside.transfer != kNoTransfer)
      all.push_back({{plan_.transfer(inside.transfer).name, Phase::kTransfer}, prices_->transfer(rank, inside)});
    return all;
  }

  // The rows that an action belongs to, and its part of each.
  std::vector<std::pair<RowName, double>> parts(int rank, const Action& action) const {
    const Phase phase = phase_of(action);
    if (action.moves_bytes()) {
      if (action.kind == Action::Kind::kWait) return {};
      return {{{plan_.transfer(action.transfer).name, phase}, prices_->transfer(rank, action)}};
    }
    const bool by_layer = phase == Phase::kForward || phase == Phase::kBackward ||
                          (action.kind == Action::Kind::kUpdate && ranks_per_update(plan_) == 1 &&
                           plan_.request.on.device == Device::kCpu);
    if (!by_layer) {
      const RowName row{phase == Phase::kLoss ? "loss" : "weights", phase};
      return {{row, prices_->compute(rank, action)}};
    }
    const std::vector<std::string>& names = of(rank).rows.at(phase);
    std::vector<std::pair<RowName, double>> all;
    for (int64_t i = action.layers.begin; i < action.layers.end; ++i) {
      Action of_layer = action;
      of_layer.layers = {i, i + 1};
      if (const double part = prices_->compute(rank, of_layer); part > 0)
        all.push_back({{names[static_cast<size_t>(i)], phase}, part});
    }
    return all;
  }

  const Plan& plan_;
  bool overlaps_;
  InProportion model_;
  Network network_;
  std::unique_ptr<ActionTimes> prices_;
  std::vector<OfRank> ranks_;
};

// The critical path with the names of a trace.
std::vector<PathPart> path_of(const Plan& plan, const MeasuredTimes& times, const std::vector<OnPath>& walked) {
  std::vector<PathPart> path;
  for (const OnPath& on : walked) {
    const double begin = 1e3 * on.begin_s, end = 1e3 * on.end_s;
    const bool transfers = on.action && on.action->moves_bytes();
    if (!on.action || transfers) {
      const std::string name = transfers ? plan.transfer(on.action->transfer).name : "data wait";
      path.push_back({name, on.rank, transfers, begin, end});
      continue;
    }
    const double all = times.compute(on.rank, *on.action);
    double at = begin;
    for (const auto& [row, seconds] : times.rows(on.rank, *on.action)) {
      const double next = at + (end - begin) * seconds / all;
      path.push_back({text_of_row(row.first, row.second), on.rank, false, at, next});
      at = next;
    }
    if (end - at > 1e-9 * end) path.push_back({"host", on.rank, false, at, end});
  }
  return path;
}

// The ranks' times with each row multiplied by a factor; time outside of rows does not change.
std::vector<RankTimes> scaled(std::span<const RankTimes> ranks,
                              const std::function<double(int rank, const RowTimes& row)>& factor) {
  std::vector<RankTimes> all(ranks.begin(), ranks.end());
  for (size_t r = 0; r < all.size(); ++r)
    for (RowTimes& row : all[r].rows) {
      const double by = factor(static_cast<int>(r), row), before = row.ms;
      if (by == 1) continue;
      if (row.phase == Phase::kTransfer) {
        // never 0, which would mean that the duration is unknown
        const double own = own_ms_of(ranks, row.name), transfer = row.taken_ms();
        row.transfer_ms = std::max(by * transfer, 1e-9);
        row.ms = own + row.transfer_ms;
        row.own_ms *= by;
      } else {
        row.ms *= by;
      }
      all[r].step_ms += row.ms - before;
    }
  return all;
}

struct Change {
  std::string what;
  std::function<bool(const RowTimes& row)> changes;
};

bool is_of_layer(Phase phase) { return belongs_to_layer(phase) || phase == Phase::kLoss; }

std::vector<Change> changes(std::span<const RankTimes> ranks) {
  std::vector<Change> all;
  const auto add = [&](const std::string& what, std::function<bool(const RowTimes&)> changes) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const Change& each) { return each.what == what; });
    if (same == all.end()) all.push_back({what, std::move(changes)});
  };
  for (const RankTimes& rank : ranks)
    for (const RowTimes& row : rank.rows) {
      const std::string name = row.name;
      if (is_of_layer(row.phase))
        add(name, [name](const RowTimes& other) { return other.name == name && is_of_layer(other.phase); });
      else if (row.phase == Phase::kData)
        add("waiting for data", [](const RowTimes& other) { return other.phase == Phase::kData; });
      else
        add(concat("`", name, "`"),
            [name](const RowTimes& other) { return other.name == name && other.phase == Phase::kTransfer; });
    }
  if (ranks.size() > 1) add("all transfers", [](const RowTimes& other) { return other.phase == Phase::kTransfer; });
  return all;
}

double taken_ms(std::span<const RankTimes> ranks, const Change& change) {
  double most = 0;
  for (const RankTimes& rank : ranks) {
    double sum = 0;
    for (const RowTimes& row : rank.rows)
      if (change.changes(row)) sum += row.phase == Phase::kTransfer ? transfer_ms_of(ranks, row.name) : row.ms;
    most = std::max(most, sum);
  }
  return most;
}

// The effect of making a slow rank as fast as the median of the others.
std::optional<WhatIf> slow_rank(const StepTimes& times,
                                const std::function<double(const std::vector<RankTimes>&)>& step_ms) {
  const Bottleneck found = find_bottleneck(times);
  for (const StepPart& part : found.parts) {
    if (part.kind != StepPart::Kind::kSlowRank) continue;
    const RankTimes& slow = times.middle[static_cast<size_t>(found.rank)];
    const double factor = 1 - part.ms / slow.busy_ms();
    const double then = step_ms(scaled(times.middle, [&](int rank, const RowTimes& row) {
      return rank == found.rank && row.phase != Phase::kTransfer ? factor : 1;
    }));
    return WhatIf{concat(part.name, " as the others"), part.ms, part.ms, then, then};
  }
  return {};
}

std::string line_of(const WhatIf& each, double measured_ms) {
  const auto saved = [&](double ms) { return 100 * (1 - ms / measured_ms); };
  return format("{:<28} {:>9.3f} {:>9.3f} {:>11.3f} {:>7.1f} {:>11.3f} {:>7.1f}\n", each.what.substr(0, 28),
                each.now_ms, each.path_ms, each.half_ms, saved(each.half_ms), each.free_ms, saved(each.free_ms));
}

MeasuredWalk walk_of(const Plan& plan, std::span<const RankTimes> ranks, bool overlaps) {
  const MeasuredTimes times(plan, ranks, overlaps);
  WalkedStep step{.ranks = {}, .overlaps = overlaps};
  for (int rank = 0; rank < plan.ranks(); ++rank) step.ranks.push_back(rank);
  MeasuredWalk found;
  for (const KindOfStep& of : kinds_of_steps(plan)) {
    if (of.part == 0) continue;
    step.kind = of.kind;
    StepWalk of_kind = walk(plan, step, times);
    found.ms += 1e3 * of.part * of_kind.end_s();
    if (of.kind != StepKind::kLocal) found.step = std::move(of_kind);
  }
  found.path = path_of(plan, times, found.step.path);
  return found;
}

}  // namespace

MeasuredWalk walk_measured(const Plan& plan, std::span<const RankTimes> ranks) {
  return walk_of(plan, ranks, transfers_overlap(ranks));
}

WhatIfs what_if(const Plan& plan, const StepTimes& times) {
  const std::vector<RankTimes>& ranks = times.middle;
  const MeasuredWalk now = walk_measured(plan, ranks);
  WhatIfs found{longest_step_ms(ranks), now.ms, {}};
  const bool overlaps = transfers_overlap(ranks);
  // The error of the simulation is assumed to be the same with and without the change.
  const auto step_ms = [&](const std::vector<RankTimes>& changed) {
    return found.measured_ms - (found.walked_ms - walk_of(plan, changed, overlaps).ms);
  };
  for (const Change& change : changes(ranks)) {
    const auto with = [&](double factor) {
      return step_ms(scaled(ranks, [&](int, const RowTimes& row) { return change.changes(row) ? factor : 1.0; }));
    };
    WhatIf one{change.what, taken_ms(ranks, change), 0, with(0.5), with(0)};
    for (const PathPart& part : now.path)
      for (const RowTimes& row : ranks[static_cast<size_t>(part.rank)].rows)
        if (text_of_row(row.name, row.phase) == part.row && change.changes(row))
          one.path_ms += part.end_ms - part.begin_ms;
    found.all.push_back(std::move(one));
  }
  if (std::optional<WhatIf> slow = slow_rank(times, step_ms)) found.all.push_back(std::move(*slow));
  std::stable_sort(found.all.begin(), found.all.end(),
                   [](const WhatIf& a, const WhatIf& b) { return a.free_ms < b.free_ms; });
  return found;
}

std::string WhatIfs::table() const {
  std::string text = format(
      "What if: the simulated step takes {:.3f} ms; {:.3f} ms were measured ({:+.1f} %)\n"
      "{:<28} {:>9} {:>9} {:>11} {:>7} {:>11} {:>7}\n{:<28} {:>9} {:>9} {:>11} {:>7} {:>11} {:>7}\n",
      walked_ms, measured_ms, 100 * (walked_ms / measured_ms - 1), "", "takes", "on path", "twice as", "saves",
      "if it took", "saves", "", "ms", "ms", "fast, ms", "%", "nothing, ms", "%");
  for (const WhatIf& each : all) text += line_of(each, measured_ms);
  return text;
}

}  // namespace owt
