#include "src/plan/plan.h"

#include <algorithm>
#include <cmath>

#include "src/core/row_groups.h"

namespace owt {

bool LayerPlan::learns() const {
  return std::any_of(roles.begin(), roles.end(), [](ParamRole role) { return owt::learns(role); });
}

int64_t LayerPlan::most_elements(const Shape& param) const {
  if (layout != Layout::kFeature) return param.elements();
  if (!by_inputs()) return param.with_rows(parts.front().size()).elements();
  return param.rank() == 1 ? param.elements() : param.rows() * inputs.front().size();  // one rank has the whole bias
}

int64_t LayerPlan::kept_elements() const {
  const bool columns = layout == Layout::kFeature && !by_inputs();  // partial sums are as wide as the whole output
  return columns ? pixels_out() * parts.front().size() : out.elements();
}

Shape LayerPlan::out_of(size_t place) const {
  return layout == Layout::kFeature ? with_columns(out, parts[place].size()) : out;
}

double LayerPlan::share() const {
  const auto part = [](const Slice& of, int64_t whole) {
    return static_cast<double>(of.size()) / static_cast<double>(whole);
  };
  if (by_inputs()) return part(inputs.front(), in.elements());
  return layout == Layout::kFeature ? part(parts.front(), columns_out()) : 1;
}

std::vector<int64_t> LayerPlan::step_sums(Phase phase, int place) const {
  std::vector<int64_t> sums = phase == Phase::kForward ? forward_sums : backward_sums;
  if (layout == Layout::kFeature)
    for (int64_t& each : sums) each = each / columns_out() * parts[static_cast<size_t>(place)].size();
  return sums;
}

int64_t LayerPlan::inner_elements() const {
  int64_t elements = 0;
  for (const LayerPlan& each : inner) elements += each.inner_elements() + (each.in_place ? 0 : each.out.elements());
  return elements;
}

// An in-place layer shares its output memory with the layer before it.
int64_t kept_elements(std::span<const LayerPlan> layers) {
  int64_t elements = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool last = i + 1 == layers.size() || layers[i + 1].begins_branch;
    const bool shared = !last && layers[i + 1].in_place;
    elements += kept_elements(layers[i].inner);
    if (!shared && (last || layers[i + 1].runs_backward())) elements += layers[i].kept_elements();
  }
  return elements;
}

const char* name_of(DenseSplit split) {
  switch (split) {
    case DenseSplit::kOfStrategy:
      return "strategy";
    case DenseSplit::kColumns:
      return "columns";
    case DenseSplit::kRows:
      return "rows";
    case DenseSplit::kLess:
      return "less";
  }
  return "";
}

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

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::kBatch:
      return "batch";
    case Layout::kReplicated:
      return "replicated";
    case Layout::kFeature:
      return "feature";
    case Layout::kPartial:
      return "partial";
  }
  return "";
}

Plan::LayerRows Plan::layer_rows(int64_t layer, int64_t step_rows) const {
  const StepRows step = rows(step_rows);
  if (layer < boundary) return {step.of(0).size(), step.slice(0).of(0).size()};
  LayerRows behind;
  for (const StepRows::RoundSize& round : step.round_sizes(0)) {
    behind.total += round.rows;
    behind.at_once = std::max(behind.at_once, round.rows);
  }
  return behind;
}

Strategy Plan::rounds_strategy() const {
  const StrategyFacts& facts = facts_of(request.strategy);
  return split() || (facts.shares_rows && !facts.in_stages) ? request.strategy : kPlainDataParallel;
}

Layout Plan::front_layout() const {
  return facts_of(request.strategy).shares_rows && model_ranks > 1 ? Layout::kReplicated : Layout::kBatch;
}

Group Plan::front_group() const { return front_layout() == Layout::kBatch ? Group::kWorld : Group::kReplicas; }

bool Plan::are_together(int rank, int other, Group group) const {
  if (group == Group::kWorld) return true;
  return group == Group::kModel ? rank / model_ranks == other / model_ranks : place_of(rank) == place_of(other);
}

int Plan::ranks_of(Group group) const {
  if (group == Group::kWorld) return ranks();
  return group == Group::kModel ? model_ranks : replicas();
}

bool Plan::sums_gradients(int64_t layer) const {
  if (layer < boundary)
    return (synchronizes() && ranks_of(front_group()) > 1) || copies_gradients() || request.slices > 1;
  const bool of_rounds = request.dense_update == DenseUpdate::kStep && rows(request.step_rows).count_rounds() > 1;
  return replicas() > 1 || of_rounds;
}

bool Plan::updates_at_once(int64_t i) const {
  const bool may = request.on.device == Device::kCpu && !request.keeps_gradients && !has_norms();
  const bool copies = in_stages() && copies_weights(request.pipeline.schedule);  // the update would change the stash
  return may && layer(i).can_update_at_once && layer(i).learns() && !sums_gradients(i) && !copies;
}

DType Plan::gradient_type(int64_t layer, size_t param) const {
  const LayerPlan& at = this->layer(layer);
  const bool of_products = at.roles[param] == ParamRole::kTrained && at.params[param].rank() > 1;
  const bool halves = request.on.device == Device::kCuda && request.on.precision == Precision::kBf16;
  const bool bf16 = halves && of_products && !sums_gradients(layer);
  return bf16 ? DType::kBF16 : DType::kF32;
}

bool Plan::has_copy16(int64_t i, size_t param) const {
  Param like;
  like.cpu_reads_copy16 = layer(i).cpu_reads_copy16[param];
  return like.has_copy16(request.on);
}

bool Plan::has_copies16(const Bucket& bucket) const {
  for (const int64_t i : bucket.layers)
    for (size_t p = 0; p < layer(i).params.size(); ++p)
      if (bucket.holds(layer(i).roles[p]) && has_copy16(i, p)) return true;
  return false;
}

Layout Plan::loss_layout() const {
  if (!split()) return front_layout();
  return sharded_loss ? Layout::kFeature : Layout::kReplicated;
}

bool Plan::counts_rows(int rank) const {
  if (loss_layout() == Layout::kBatch) return true;
  return in_stages() ? has_loss(place_of(rank)) : place_of(rank) == 0;
}

Slice Plan::layers_behind(int place) const {
  return in_stages() ? stages[static_cast<size_t>(place)] : Slice{boundary, std::ssize(layers)};
}

int Plan::micro_batches_in(int64_t step_rows) const {
  if (!in_stages() || request.dense_update == DenseUpdate::kStep) return micro_batches;
  const int64_t needed = (step_rows * micro_batches + request.step_rows - 1) / request.step_rows;
  return static_cast<int>(std::clamp<int64_t>(needed, 1, micro_batches));
}

int Plan::slices_in(int64_t step_rows) const {
  if (request.slices == 1) return 1;
  return static_cast<int>(
      std::max<int64_t>(1, (step_rows * request.slices + request.step_rows - 1) / request.step_rows));
}

int Plan::tapes(int place) const {
  return in_stages() ? most_under_way(request.pipeline.schedule, model_ranks, place, micro_batches) : 1;
}

Layout Plan::gradient_layout(int64_t first) const {
  for (int64_t i = first; i < static_cast<int64_t>(layers.size()); ++i) {
    const LayerPlan& at = layer(i);
    if (i > first && at.gather_before) break;
    if (at.layout == Layout::kFeature) return Layout::kPartial;
  }
  return Layout::kReplicated;
}

bool Plan::begins_stage(int64_t layer) const {
  if (layer == boundary || this->layer(layer).gather_before) return true;
  return layer > 0 && (this->layer(layer - 1).by_inputs() || this->layer(layer - 1).place != this->layer(layer).place);
}

Shape Plan::input_of(int64_t layer, size_t place) const {
  const LayerPlan& at = this->layer(layer);
  if (at.by_inputs()) return {at.inputs[place].size()};
  if (layer == boundary || at.gather_before || in_stages()) return at.in;
  return this->layer(layer - 1).out_of(place);
}

int64_t Plan::row_group(int64_t first_layer) const {
  int64_t group = 1;
  for (int64_t i = first_layer; i < std::ssize(layers); ++i) group = common_group(group, layer(i).row_group);
  return group;
}

int64_t Plan::wire_bytes(const Bucket& bucket) const {
  if (!filters_pushes() || !bucket.trained) return bucket.elements * (bucket.trained ? gradient_size() : 4);
  const int64_t each = bucket.elements / updating_ranks();
  const auto sent = static_cast<int64_t>(std::ceil(request.push_filters.usual_share() * static_cast<double>(each)));
  return updating_ranks() * request.push_filters.message_bytes(each, sent, trained_tensors(bucket));
}

std::vector<int> Plan::dispensable_workers() const {
  std::vector<int> workers;
  for (int rank = 1; has_servers_apart() && rank < computing_ranks(); ++rank) workers.push_back(rank);
  return workers;
}

Slice Plan::even_share(const Bucket& bucket, int rank) const {
  if (!updates_share(rank)) return {};
  const int64_t each = bucket.elements / updating_ranks(), number = rank - (ranks() - updating_ranks());
  return {number * each, (number + 1) * each};
}

int64_t Plan::trained_tensors(const Bucket& bucket) const {
  int64_t tensors = 0;
  for (const int64_t i : bucket.layers)
    tensors += std::count(layer(i).roles.begin(), layer(i).roles.end(), ParamRole::kTrained);
  return tensors;
}

std::vector<int64_t> Plan::round_rows(const StepRows& step) const {
  std::vector<int64_t> all(static_cast<size_t>(step.count_rounds()));
  for (int replica = 0; replica < (split() ? replicas() : 1); ++replica) {
    const std::vector<StepRows::RoundSize> sizes = step.round_sizes(replica * model_ranks);
    for (size_t r = 0; r < all.size(); ++r) all[r] += sizes[r].rows;
  }
  return all;
}

int64_t Plan::steps_apart() const {
  if (!serves()) return 0;
  return request.server.delay == kNoBound ? kMostApart : std::min(request.server.delay, kMostApart);
}

StepKind Plan::kind_of(int64_t step) const {
  if (!averages()) return StepKind::kSynchronous;
  return (step + 1) % request.average_every == 0 ? StepKind::kAveraging : StepKind::kLocal;
}

// Averages over time are updated only in steps after which all ranks have the same weights.
int Plan::period() const {
  const int each = local_period();
  return (std::max(1, request.ema_every) + each - 1) / each * each;
}

int64_t Plan::averaged_elements(const Bucket& bucket) const {
  int64_t elements = bucket.elements;
  for (const int64_t i : bucket.layers)
    for (size_t p = 0; p < layer(i).params.size(); ++p)
      if (bucket.trained && layer(i).roles[p] == ParamRole::kTrained)
        elements += request.optimizer_states * aligned_elements(layer(i).params[p].elements());
  return elements;
}

int64_t Plan::trained_params() const {
  int64_t params = 0;
  for (const LayerPlan& layer : layers)
    params += std::count(layer.roles.begin(), layer.roles.end(), ParamRole::kTrained);
  return params;
}

int64_t Plan::most_step_sums() const {
  int64_t most = 0;
  for (const LayerPlan& layer : layers)
    for (const std::vector<int64_t>* sums : {&layer.forward_sums, &layer.backward_sums})
      for (const int64_t each : *sums) most = std::max(most, each);
  return most;
}

std::string Plan::boundary_name() const { return split() ? layer(boundary).name : ""; }

}  // namespace owt
