#include "src/parallel/plan.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/core/row_groups.h"
#include "src/parallel/parameter_server.h"
#include "src/parallel/placement.h"
#include "src/parallel/transfers.h"

namespace owt {
namespace {

// What such a bucket takes of a layer, or of the largest part of a split one.
int64_t elements_in(const Bucket& bucket, const LayerPlan& at) {
  int64_t elements = 0;
  for (size_t p = 0; p < at.params.size(); ++p)
    if (bucket.holds(at.roles[p])) elements += aligned_elements(at.most_elements(at.params[p]));
  return elements;
}

// The gradients of layers [begin, end) in buckets like `empty`, the last layer first.
std::vector<Bucket> buckets_like(const Bucket& empty, const Plan& plan, int64_t begin, int64_t end) {
  std::vector<Bucket> buckets;
  for (int64_t i = end - 1; i >= begin; --i) {
    const int64_t elements = elements_in(empty, plan.layer(i));
    if (elements == 0) continue;
    if (buckets.empty() || buckets.back().elements * 4 >= plan.request.bucket_bytes) buckets.push_back(empty);
    buckets.back().layers.push_back(i);
    buckets.back().elements += elements;
  }
  return buckets;
}

std::vector<Bucket> buckets_of(const Plan& plan, int64_t begin, int64_t end) {
  if (!plan.rounds_gradients()) return buckets_like({}, plan, begin, end);
  std::vector<Bucket> buckets = buckets_like({.averages = false}, plan, begin, end);
  const std::vector<Bucket> averages = buckets_like({.trained = false}, plan, begin, end);
  buckets.insert(buckets.end(), averages.begin(), averages.end());
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.layers.back() > b.layers.back(); });
  return buckets;
}

void fill_buckets(Plan& plan) {
  plan.buckets = buckets_of(plan, 0, plan.boundary);
  if (plan.shares_evenly())
    for (Bucket& bucket : plan.buckets)
      bucket.elements = aligned_elements(bucket.elements, plan.updating_ranks() * kAlignedElements);
  if (plan.replicas() == 1 || !plan.split()) return;
  for (int place = 0; place < plan.places(); ++place) {
    const Slice layers = plan.layers_behind(place);
    const std::vector<Bucket> of_place = buckets_of(plan, layers.begin, layers.end);
    plan.back_buckets.insert(plan.back_buckets.end(), of_place.begin(), of_place.end());
  }
}

}  // namespace

bool LayerPlan::learns() const {
  return std::any_of(roles.begin(), roles.end(), [](ParamRole role) { return owt::learns(role); });
}

int64_t LayerPlan::most_elements(const Shape& param) const {
  if (layout != Layout::kFeature) return param.elements();
  if (!by_inputs()) return param.with_rows(parts.front().size()).elements();
  return param.rank() == 1 ? param.elements() : param.rows() * inputs.front().size();  // the bias is whole on one rank
}

int64_t LayerPlan::kept_elements() const {
  const bool columns = layout == Layout::kFeature && !by_inputs();  // and no summands
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

// An in-place layer shares its output with the one before it.
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
  const bool of_rounds =
      request.dense_update == DenseUpdate::kStep && rows(request.step_rows).round_sizes(0).size() > 1;
  return replicas() > 1 || of_rounds;
}

bool Plan::updates_at_once(int64_t i) const {
  const bool may = request.on.device == Device::kCpu && !request.keeps_gradients && !has_norms();
  const bool copies = in_stages() && copies_weights(request.pipeline.schedule);  // a copy would be updated
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
  std::vector<int64_t> all(step.round_sizes(0).size());
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

// Averages over time take in weights in steps behind which they are alike.
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

namespace {

// Where there is nothing to split every rank has the whole net; under mp all of a group compute the same then.
int model_ranks_of(const PlanRequest& request, const std::vector<std::unique_ptr<Layer>>& layers) {
  if (!facts_of(request.strategy).splits()) return 1;
  const int asked = request.model_ranks > 0 ? request.model_ranks : request.ranks;
  if (request.ranks % asked != 0)
    fail(request.ranks, " workers cannot be dealt to groups of ", asked, " (parallel.model_ranks); use a divisor of ",
         request.ranks);
  const bool splits =
      std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer->columns() == Columns::kSplits; });
  if (facts_of(request.strategy).shares_rows) return asked;
  return splits ? asked : 1;
}

void check_averages(const PlanRequest& request) {
  OWT_CHECK(request.average_every >= 1);
  if (request.average_every == 1 || facts_of(request.strategy).can_average) return;
  fail("weights cannot be averaged every ", request.average_every, " steps (parallel.average_every) under ",
       name_of(request.strategy), "; use ", averaging_strategies(), ", or leave average_every out");
}

void check_slices(const Plan& plan) {
  const int slices = plan.request.slices;
  OWT_CHECK(slices >= 1);
  if (slices == 1) return;
  if (plan.in_stages())
    fail("data.accumulate is ", slices, ", and a pipeline adds up the gradients of its micro-batches as it is; use ",
         "pipeline.micro_batches, or another strategy");
  const int64_t group = plan.row_group(0), most = RowGroups{plan.rows(plan.request.step_rows).most(), group}.count();
  if (slices > most)
    fail("data.accumulate is ", slices, ", and a worker has ", most,
         group > 1 ? concat(" groups of ", group, " rows (batch_norm's 'rows')") : " rows", " of a step at most; use ",
         most, " or less");
}

// Of a composite layer, what its own part and its branches do. The gradients of its input and of weights are taken to
// be as much work as forward, each where it is wanted; of layers without weights backward is as much as both.
double backward_flops(const LayerPlan& at) {
  double inside_forward = 0, inside_backward = 0;
  for (const LayerPlan& inner : at.inner) {
    inside_forward += inner.flops_per_row;
    inside_backward += inner.backward_flops_per_row;
  }
  const bool of_weights = at.learns() || at.params.empty();
  const int times = at.runs_backward() ? int{at.wants_dx} + int{of_weights} : 0;
  return (at.flops_per_row - inside_forward) * times + inside_backward;
}

// Where parts of the weights have an update of their own, there is no gradient of the whole step before it.
void check_norms(const Plan& plan) {
  if (!plan.has_norms() || !plan.split()) return;
  const PlanRequest& request = plan.request;
  const char* const refused =
      "gradients cannot be clipped, and LARS finds no norms of them (optimizer.clip, optimizer.type), ";
  if (request.dense_update == DenseUpdate::kRound)
    fail(refused, "with an update after every ",
         plan.in_stages() ? "micro-batch (pipeline.schedule); use \"1f1b\""
                          : "round (parallel.dense_update); use \"step\"");
  if (plan.averages())
    fail(refused, "where only the layers before the dense ones learn by themselves (parallel.average_every under ",
         name_of(request.strategy), "); use dp, or leave average_every out");
}

// Servers have a part of the gradients each, and with a delay no step's weights are there as a whole.
void check_server(const Plan& plan) {
  if (!plan.serves()) return;
  const PlanRequest& request = plan.request;
  const auto refuse = [&](const std::string& what, const char* cure) {
    fail(what, ", and under ", name_of(request.strategy), " each rank updates a share of the weights by itself; ",
         cure);
  };
  if (plan.has_norms())
    refuse("optimizer.clip and lars want norms of all gradients of a step", "use another optimizer, or dp-zero");
  if (request.half_wire && request.push_filters.any())
    fail("ps.filters and parallel.wire = \"bf16\" both say how gradients travel; leave one of them out");
  if (request.server.backup > 0) refuse("backup workers are virtual ones'", "use owt simulate");
  if (request.ema_every > 0 && plan.has_servers_apart())
    refuse("optimizer.ema averages the weights of every step", "let every worker serve (ps.servers = 0)");
  if (request.server.synchronous()) return;
  if (request.ema_every > 0) refuse("optimizer.ema averages the weights of whole steps", "use ps.delay = 0");
  if (request.server.by_task() && request.server.delay == kNoBound)
    refuse("ps.pushes = 0 with ps.delay = inf would keep gradients without a bound", "use ps.pushes = 1");
}

// Sums over all rows of a step want all of them at once.
void check_step_sums(const Plan& plan) {
  const auto& layers = plan.layers;
  const auto sums =
      std::find_if(layers.begin(), layers.end(), [](const LayerPlan& at) { return !at.forward_sums.empty(); });
  if (sums == layers.end()) return;
  const auto refuse = [](const LayerPlan& at, const auto&... why) {
    fail("layer '", at.name, "' normalises over all rows of the step (rows = \"step\"), ", why...,
         "; use rows = 32, whose statistics do not see it either");
  };
  if (plan.in_stages()) refuse(*sums, "and in a pipeline it sees a micro-batch at a time");
  if (plan.request.slices > 1) refuse(*sums, "and with data.accumulate it sees a slice at a time");
  if (plan.steps_apart() > 0) refuse(*sums, "and with ps.delay the workers are at different steps");
  if (plan.averages()) refuse(*sums, "and with parallel.average_every the workers learn each by itself");
  if (plan.rows(plan.request.step_rows).round_sizes(0).size() == 1) return;
  for (int64_t i = plan.boundary; i < std::ssize(layers); ++i)
    if (const LayerPlan& at = plan.layer(i); !at.forward_sums.empty())
      refuse(at, "and behind the boundary it sees a round at a time under ", name_of(plan.request.strategy));
}

// The plan of `layer` on rows of in.row(); wants_dx: somebody needs the gradient of its input.
LayerPlan describe(Layer& layer, const Shape& in, const Compute& on, bool wants_dx) {
  LayerPlan at;
  at.name = layer.name();
  at.type = layer.type();
  at.columns = layer.columns();
  at.can_update_at_once = layer.can_update_at_once();
  at.in = in.row();
  at.out = layer.out_shape(in).row();
  at.flops_per_row = layer.flops(in);
  at.scratch_bytes = layer.scratch_bytes(in, on);
  at.wants_dx = wants_dx;
  at.row_group = layer.row_group();
  at.forward_sums = layer.step_sums(Phase::kForward, wants_dx);
  at.backward_sums = layer.step_sums(Phase::kBackward, wants_dx);
  for (const Param* param : layer.params()) {
    const int64_t elements = param->full_shape.elements();
    at.params.push_back(param->full_shape);
    at.roles.push_back(param->role);
    at.cpu_reads_copy16.push_back(param->cpu_reads_copy16);
    at.weight_bytes += elements * 4;
    at.parameters += is_average(param->role) ? 0 : elements;
    at.trained += param->role == ParamRole::kTrained ? elements : 0;
  }
  for (const Layer::Inner& each : layer.inner(in)) {
    const bool wanted = each.first ? wants_dx : at.inner.back().runs_backward();
    LayerPlan& inner = at.inner.emplace_back(describe(*each.layer, each.in, on, wanted));
    inner.in_place = each.layer->in_place() && !each.first;
    inner.begins_branch = each.first;
  }
  at.backward_flops_per_row = backward_flops(at);
  return at;
}

}  // namespace

Shape with_columns(const Shape& row, int64_t columns) {
  return row.rank() == 3 ? Shape{row[0], row[1], columns} : Shape{columns};
}

bool can_split_dense(const Model& model) {
  bool dense = false;
  for (const auto& layer : whole_layers(model)) {
    if (dense && layer->columns() == Columns::kMixes && !layer->params().empty()) return false;
    dense |= layer->columns() == Columns::kSplits;
  }
  return true;
}

bool can_be_staged(const Model& model, const PlanRequest& request) {
  const int stages = request.model_ranks > 0 ? request.model_ranks : request.ranks;
  const auto named = std::ssize(request.pipeline.stages);
  const RowGroups groups{request.step_rows * stages / request.ranks, model.row_group};  // of a pipeline
  int64_t cuts = -1;                                                                    // none before the first layer
  for (const auto& layer : whole_layers(model)) cuts += layer->in_place() ? 0 : 1;
  return cuts + 1 >= stages && (named == 0 || named + 1 == stages) &&
         groups.count() >= std::max(1, request.pipeline.micro_batches);
}

Plan make_plan(const Model& model, const PlanRequest& request) {
  OWT_CHECK(request.ranks >= 1 && request.step_rows >= 1);
  check_averages(request);
  Plan plan;
  plan.request = request;
  if (plan.has_servers_apart() && request.shares.empty()) {
    OWT_CHECK(request.servers < request.ranks);
    plan.request.shares.assign(static_cast<size_t>(plan.computing_ranks()), 1);
    plan.request.shares.resize(static_cast<size_t>(request.ranks), 0);
  }
  plan.model = model.name;
  const auto layers = whole_layers(model);
  plan.model_ranks = model_ranks_of(request, layers);
  Shape batch = model.input.batch_of(1);
  plan.boundary = boundary_of(plan, layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerPlan at = describe(*layers[i], batch, request.on, i > 0 && plan.layers.back().runs_backward());
    at.in_place = layers[i]->in_place() && i > 0;
    at.layout = plan.front_layout();
    batch = layers[i]->out_shape(batch);
    plan.layers.push_back(std::move(at));
  }
  place_layers(plan, layers);
  check_slices(plan);
  check_norms(plan);
  check_server(plan);
  check_step_sums(plan);
  fill_buckets(plan);
  list_transfers(plan);
  return plan;
}

}  // namespace owt
