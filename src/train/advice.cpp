#include "src/train/advice.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/predict/choose.h"
#include "src/predict/step_price.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr double kWorthIt = 0.9;  // fraction of the step's time

// The mean over the ranks that have the row, in seconds.
double mean_s(std::span<const RankTimes> ranks, const std::string& name, Phase phase) {
  double sum = 0, count = 0;
  for (const RankTimes& rank : ranks)
    if (const RowTimes* row = rank.find(name, phase)) sum += row->ms / 1e3, ++count;
  return count > 0 ? sum / count : 0;
}

// The name of the row that begins with this layer: "conv1+relu1".
std::string row_named_after(std::span<const RankTimes> ranks, const std::string& layer) {
  for (const RankTimes& rank : ranks)
    for (const RowTimes& row : rank.rows)
      if (row.name.starts_with(layer + "+")) return row.name;
  return layer;
}

// Seconds of weight updates outside of layer rows, over all ranks: their sum if updates are sharded or made by the
// first rank, else once.
double shared_update_s(const Plan& plan, std::span<const RankTimes> ranks) {
  return mean_s(ranks, "weights", Phase::kUpdate) * ranks_per_update(plan);
}

std::unique_ptr<ComputeModel> compute_seen(const Plan& plan, const StepTimes& times) {
  const std::vector<RankTimes>& ranks = times.middle;
  ComputeSamples samples;
  double all_weights = 0;
  for (const LayerPlan& layer : plan.layers) all_weights += static_cast<double>(layer.weight_bytes);
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    const int64_t rows = layer_rows(plan, static_cast<int64_t>(i), plan.request.step_rows).total;
    const std::string row = row_named_after(ranks, at.name);
    LayerSample sample{.rows = static_cast<double>(rows), .part = at.share()};
    sample.forward_s = mean_s(ranks, row, Phase::kForward);
    sample.backward_s = mean_s(ranks, row, Phase::kBackward);
    const double of_weights = all_weights > 0 ? static_cast<double>(at.weight_bytes) / all_weights : 0;
    sample.update_s = mean_s(ranks, at.name, Phase::kUpdate) + of_weights * sample.part * shared_update_s(plan, ranks);
    samples.layers.push_back({sample});
  }
  const auto behind = static_cast<int64_t>(plan.layers.size()) - 1;
  const auto loss_rows = static_cast<double>(layer_rows(plan, behind, plan.request.step_rows).total);
  samples.loss.emplace_back(loss_rows, mean_s(ranks, "loss", Phase::kLoss));
  samples.rest_s = std::max(0.0, times.longest.rest_ms() + times.longest.data_ms()) / 1e3;
  return measured_compute(std::move(samples));
}

// The predicted duration of a step's calls of each transfer of the plan, by name.
std::map<std::string, double> transfer_ms_by(const Plan& plan, const Network& network) {
  std::map<std::string, double> all;
  const std::vector<double> seconds = transfer_seconds(plan, network);
  for (size_t id = 0; id < seconds.size(); ++id) all[plan.transfers[id].name] += 1e3 * seconds[id];
  return all;
}

// Whether rank 0 has rows in every layer: without rows it has measured nothing.
bool can_predict(const Plan& plan) {
  for (size_t i = 0; i < plan.layers.size(); ++i)
    if (layer_rows(plan, static_cast<int64_t>(i), plan.request.step_rows).total <= 0 || plan.layers[i].share() <= 0)
      return false;
  return plan.ranks() > 1;
}

// The number of successive latencies in a call of a collective among this many ranks (network.h).
double messages_of(Collective collective, int ranks) {
  return collective == Collective::kAllReduce ? 2.0 * (ranks - 1) : ranks - 1;
}

// The duration seen by the last rank to arrive; 0: it was not measured, as in a recorded step.
double timed_ms(const StepTimes& times, const std::string& name) {
  for (const RankTimes& rank : times.middle)
    if (const RowTimes* row = rank.find(name, Phase::kTransfer); !row || row->transfer_ms == 0) return 0;
  return times.transfer_ms(name);
}

bool tells_the_rate(const Plan& plan, const Transfer& transfer) {
  const bool chain = transfer.collective == Collective::kBroadcast || transfer.collective == Collective::kReduce;
  return !chain && !is_message(transfer.collective) && plan.ranks_of(transfer.group) == plan.ranks() &&
         transfer.every == 1;
}

}  // namespace

std::optional<Network> network_seen(const Plan& plan, const StepTimes& times) {
  std::set<std::string> hosts;
  for (const RankTimes& rank : times.middle) hosts.insert(rank.host);
  const int count = static_cast<int>(hosts.size()), size = plan.ranks();
  if (size < 2 || (count > 1 && count < size)) return {};
  const Transfer* most = nullptr;
  for (const Transfer& transfer : plan.transfers)
    if (tells_the_rate(plan, transfer) && (!most || transfer.bytes > most->bytes)) most = &transfer;
  const double result_ms =
      plan.of_step.result == kNoTransfer ? 0 : timed_ms(times, plan.transfer(plan.of_step.result).name);
  if (!most || result_ms <= 0) return {};
  Link link{result_ms / 1e3 / messages_of(Collective::kAllReduce, size), 0};
  const double whole_s = timed_ms(times, most->name) / 1e3;
  const double bytes_s = whole_s - most->calls * messages_of(most->collective, size) * link.latency_s;
  if (whole_s <= 0) return {};
  // If latencies explain all of the time, this is a lower limit of the rate.
  link.bytes_per_s = static_cast<double>(most->bytes) / std::max(bytes_s, 0.1 * whole_s);
  Network network;
  network.hosts = count;
  network.ranks_per_host = size / count;
  network.local = network.between = link;
  network.overlaps = transfers_overlap(times.middle);
  return network;
}

std::string advice(const Model& model, const Plan& plan, const StepTimes& times, const Network& network) {
  if (!can_predict(plan) || network.ranks() != plan.ranks()) return "";
  const std::unique_ptr<ComputeModel> compute = compute_seen(plan, times);
  Choice choice;
  try {
    choice = choose_strategy(model, plan.request, network, *compute);
  } catch (const Error&) {
    return "";  // a strategy that the recipe does not allow cannot be advice
  }
  const Prediction& best = choice.chosen();
  const double now_s = std::min(longest_step_ms(times.middle) / 1e3, price_step(plan, network, *compute).step_s());
  if (best.step_s() > kWorthIt * now_s) return "";
  const bool grid = best.split && best.model_ranks != plan.ranks();
  return format("Try --parallel {}{} (predicted {:.1f} ms).", name_of(best.request.strategy),
                grid ? format(" --set parallel.model_ranks={}", best.model_ranks) : "", 1e3 * best.step_s());
}

Bottleneck explain_step(const Model& model, const Plan& plan, const StepTimes& times,
                        const std::optional<Network>& links) {
  Bottleneck found = find_bottleneck(times, links ? transfer_ms_by(plan, *links) : std::map<std::string, double>());
  // The planner assumes equal ranks.
  const bool slow_rank = std::any_of(found.parts.begin(), found.parts.end(),
                                     [](const StepPart& part) { return part.kind == StepPart::Kind::kSlowRank; });
  if (slow_rank) return found;
  if (const std::optional<Network> network = links ? links : network_seen(plan, times))
    found.advice = advice(model, plan, times, *network);
  return found;
}

}  // namespace owt
