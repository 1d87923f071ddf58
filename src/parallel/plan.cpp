#include "src/parallel/plan.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/parallel/transfers.h"

namespace owt {
namespace {

// Whether what goes into a dense layer can come as columns of all rows, or be taken from rows that are there.
bool can_split_inputs(const Plan& plan, int64_t layer, Layout input) {
  const StrategyFacts& facts = facts_of(plan.request.strategy);
  if (layer == plan.boundary) return facts.shares_rows || facts.rounds == Rounds::kAllRows;
  return input == Layout::kFeature && plan.layer(layer - 1).out.rank() == 1;
}

// Whether bringing a dense layer's whole input together, and summing its gradient, sends more than summing its outputs
// and bringing their gradient together. At the boundary the input comes by rows, so that summing outputs needs an
// all_to_all besides, of 1 / ranks of the whole. Where all ranks have the rows, only the gradient of the input travels
// there, if anybody wants it: summed, as twice of it, or each rank's columns of it.
bool sends_less_by_inputs(const Plan& plan, int64_t layer) {
  const LayerPlan& at = plan.layer(layer);
  const int64_t in = at.in.elements(), out = at.out.elements();
  if (layer != plan.boundary) return out < in;
  if (facts_of(plan.request.strategy).shares_rows) return plan.front_learns && 2 * out < in;
  return in / plan.model_ranks + out < in;
}

bool splits_inputs(const Plan& plan, int64_t layer, Layout input) {
  DenseSplit split = plan.request.split;
  if (split == DenseSplit::kOfStrategy)
    split = facts_of(plan.request.strategy).by_inputs ? DenseSplit::kLess : DenseSplit::kColumns;
  if (split == DenseSplit::kColumns || !can_split_inputs(plan, layer, input)) return false;
  return split == DenseSplit::kRows || sends_less_by_inputs(plan, layer);
}

bool splits(Columns columns) { return columns == Columns::kSplits || columns == Columns::kSplitsChannels; }

// Layouts of the layers behind the boundary: a layer that splits has columns of all rows, or sums over its part of the
// inputs where it is split by inputs; layers that work on columns keep them; before others the columns are gathered.
void place_back(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  Layout layout = Layout::kReplicated;
  std::vector<Slice> parts;
  std::string dense;  // the first one
  const auto slices = [&](int64_t features) {
    std::vector<Slice> all;
    for (int r = 0; r < plan.model_ranks; ++r) all.push_back(split(features, plan.model_ranks, r));
    return all;
  };
  for (int64_t i = plan.boundary; i < static_cast<int64_t>(layers.size()); ++i) {
    LayerPlan& at = plan.layer(i);
    const Columns columns = layers[static_cast<size_t>(i)]->columns();
    if (columns == Columns::kSplits && splits_inputs(plan, i, layout)) at.inputs = slices(at.in.elements());
    at.gather_before = layout == Layout::kFeature && columns != Columns::kKeeps && !at.by_inputs();
    if (columns == Columns::kSplits && dense.empty()) dense = at.name;
    if (splits(columns)) {
      layout = Layout::kFeature;
      parts = slices(at.columns_out());
    } else if (columns == Columns::kMixes) {
      layout = Layout::kReplicated;
      if (!at.params.empty())
        fail("layer '", at.name, "' has weights, but cannot be split as the dense layer '", dense,
             "' before it is under ", name_of(plan.request.strategy), "; use --parallel dp, or move '", at.name,
             "' before '", dense, "'");
    }
    at.layout = layout;
    if (layout == Layout::kFeature) at.parts = parts;
  }
}

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
  if (plan.gradient_size() == 4) return buckets_like({}, plan, begin, end);
  std::vector<Bucket> buckets = buckets_like({.averages = false}, plan, begin, end);
  const std::vector<Bucket> averages = buckets_like({.trained = false}, plan, begin, end);
  buckets.insert(buckets.end(), averages.begin(), averages.end());
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.layers.back() > b.layers.back(); });
  return buckets;
}

void fill_buckets(Plan& plan) {
  plan.buckets = buckets_of(plan, 0, plan.boundary);
  if (plan.updates() == Updates::kShares)
    for (Bucket& bucket : plan.buckets)
      bucket.elements = aligned_elements(bucket.elements, plan.ranks() * kAlignedElements);
  if (plan.replicas() == 1 || !plan.split()) return;
  for (int place = 0; place < plan.places(); ++place) {
    const Slice layers = plan.layers_behind(place);
    const std::vector<Bucket> of_place = buckets_of(plan, layers.begin, layers.end);
    plan.back_buckets.insert(plan.back_buckets.end(), of_place.begin(), of_place.end());
  }
}

// What a stage is to have as little of: forward and backward. Layers that compute next to nothing move memory, about as
// fast as so many operations for each element.
constexpr double kFlopsPerElement = 20;

double cost_of(const LayerPlan& at) {
  const auto elements = static_cast<double>(at.in.elements() + at.out.elements() + at.inner_elements());
  return at.flops_per_row + at.backward_flops_per_row + kFlopsPerElement * elements;
}

// A cut where the asked stages begin, or where they are balanced. An in-place layer stays with the one before it, whose
// output it takes the place of.
std::vector<Slice> stages_of(const Plan& plan) {
  const std::vector<std::string>& asked = plan.request.pipeline.stages;
  std::vector<double> cost;
  std::vector<int64_t> sent;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    cost.push_back(cost_of(at));
    sent.push_back(i == 0 || at.in_place ? -1 : at.in.elements());
  }
  if (asked.empty()) return balanced_stages(cost, sent, plan.model_ranks);
  if (std::ssize(asked) + 1 != plan.model_ranks)
    fail("pipeline.stages names the first layers of ", asked.size(), " stages behind the first one, and there are ",
         plan.model_ranks, " stages, one for each worker of a group; name ", plan.model_ranks - 1, ", or leave it out");
  std::vector<Slice> stages{{0, 0}};
  for (const std::string& name : asked) {
    int64_t i = stages.back().begin + 1;
    while (i < std::ssize(plan.layers) && plan.layer(i).name != name) ++i;
    if (i >= std::ssize(plan.layers))
      fail("pipeline.stages: there is no layer '", name, "' behind '", plan.layer(stages.back().begin).name, "'");
    if (sent[static_cast<size_t>(i)] < 0)
      fail("pipeline.stages: '", name,
           "' works in place of the output of the layer before it, and no stage begins there");
    stages.back().end = i;
    stages.push_back({i, i});
  }
  stages.back().end = std::ssize(plan.layers);
  return stages;
}

// Four micro-batches for each stage keep the bubble below a fifth.
int micro_batches_of(const Plan& plan) {
  const int64_t rows = plan.request.step_rows / plan.replicas();
  const int asked = plan.request.pipeline.micro_batches;
  if (asked > rows)
    fail("pipeline.micro_batches is ", asked, ", and a pipeline has ", rows, " rows of a step; use ", rows, " or less");
  return asked > 0 ? asked : static_cast<int>(std::clamp<int64_t>(rows, 1, 4 * plan.model_ranks));
}

// Each rank of a model group has a stage, whole. All layers are behind the boundary, and the rounds are micro-batches.
void place_stages(Plan& plan) {
  plan.boundary = 0;
  plan.front_learns = false;
  const bool each = updates_each_micro_batch(plan.request.pipeline.schedule);
  plan.request.dense_update = each ? DenseUpdate::kRound : DenseUpdate::kStep;
  plan.stages = stages_of(plan);
  plan.micro_batches = micro_batches_of(plan);
  for (size_t place = 0; place < plan.stages.size(); ++place)
    for (int64_t i = plan.stages[place].begin; i < plan.stages[place].end; ++i)
      plan.layer(i).place = static_cast<int>(place);
}

int64_t bytes_of(const std::vector<Transfer>& transfers, StepKind kind, int place) {
  int64_t total = 0;
  for (const Transfer& transfer : transfers) total += transfer.in(kind) ? transfer.bytes_at(place) : 0;
  return total;
}

// Of the first rank, from which messages go to the others, or of another.
Traffic traffic_of(const std::vector<Transfer>& transfers, StepKind kind, int ranks, bool first, int place) {
  Traffic all;
  for (const Transfer& transfer : transfers) {
    if (!transfer.in(kind)) continue;
    if (transfer.is_between_places()) {
      all.in += transfer.receiver == place ? transfer.bytes : 0;
      all.out += transfer.bytes_at(place);
      continue;
    }
    if (!is_message(transfer.collective)) {
      all.in += transfer.bytes_at(place);
      all.out += transfer.bytes_at(place);
      continue;
    }
    OWT_CHECK(transfer.group == Group::kWorld, "a star of a part of the ranks");
    const bool sends = first == (transfer.collective == Collective::kSend);
    (sends ? all.out : all.in) += first ? (ranks - 1) * transfer.whole : transfer.whole;
  }
  return all;
}

// In the mean over the steps between two averages.
template <class BytesIn>
int64_t mean_of_steps(const Plan& plan, const BytesIn& bytes_in) {
  if (!plan.averages()) return bytes_in(StepKind::kSynchronous);
  const int64_t local = bytes_in(StepKind::kLocal);
  return local + (bytes_in(StepKind::kAveraging) - local) / plan.request.average_every;
}

}  // namespace

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

int64_t LayerPlan::inner_elements() const {
  int64_t elements = 0;
  for (const LayerPlan& each : inner) elements += each.inner_elements() + (each.in_place ? 0 : each.out.elements());
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
  if (layer < boundary) return {step.of(0).size(), step.of(0).size()};
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

int Plan::ranks_of(Group group) const {
  if (group == Group::kWorld) return ranks();
  return group == Group::kModel ? model_ranks : replicas();
}

bool Plan::sums_gradients(int64_t layer) const {
  if (layer < boundary) return (synchronizes() && ranks_of(front_group()) > 1) || copies_gradients();
  const bool of_rounds =
      request.dense_update == DenseUpdate::kStep && rows(request.step_rows).round_sizes(0).size() > 1;
  return replicas() > 1 || of_rounds;
}

bool Plan::updates_at_once(int64_t i) const {
  const bool may = request.on.device == Device::kCpu && !request.keeps_gradients;
  const bool copies = in_stages() && copies_weights(request.pipeline.schedule);  // a copy would be updated
  return may && layer(i).can_update_at_once && !sums_gradients(i) && !copies;
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

int64_t Plan::wire_bytes(const Bucket& bucket) const {
  return bucket.elements * (bucket.trained ? gradient_size() : 4);
}

std::vector<int64_t> Plan::round_rows(int64_t step_rows) const {
  const StepRows step = rows(step_rows);
  std::vector<int64_t> all(step.round_sizes(0).size());
  for (int replica = 0; replica < (split() ? replicas() : 1); ++replica) {
    const std::vector<StepRows::RoundSize> sizes = step.round_sizes(replica * model_ranks);
    for (size_t r = 0; r < all.size(); ++r) all[r] += sizes[r].rows;
  }
  return all;
}

StepKind Plan::kind_of(int64_t step) const {
  if (!averages()) return StepKind::kSynchronous;
  return (step + 1) % request.average_every == 0 ? StepKind::kAveraging : StepKind::kLocal;
}

int64_t Plan::averaged_elements(const Bucket& bucket) const {
  int64_t elements = bucket.elements;
  for (const int64_t i : bucket.layers)
    for (size_t p = 0; p < layer(i).params.size(); ++p)
      if (bucket.trained && layer(i).roles[p] == ParamRole::kTrained)
        elements += aligned_elements(layer(i).params[p].elements());
  return elements;
}

int64_t Plan::bytes_in(StepKind kind) const {
  int64_t most = 0;
  for (int place = 0; place < places(); ++place) most = std::max(most, bytes_of(transfers, kind, place));
  return most;
}

int64_t Plan::bytes_per_step() const {
  return mean_of_steps(*this, [this](StepKind kind) { return bytes_in(kind); });
}

Traffic Plan::traffic(StepKind kind, int rank) const {
  return traffic_of(transfers_of(*this, rank), kind, ranks(), rank == 0, place_of(rank));
}

// Behind the first all ranks of a group are alike, but for the stages of a pipeline, and the plan's transfers are those
// of the group with the most.
int64_t Plan::busiest_link(StepKind kind) const {
  int64_t most = 0;
  for (const bool first : {true, false})
    for (int place = 0; place < places(); ++place) {
      const Traffic traffic = traffic_of(transfers, kind, ranks(), first, place);
      most = std::max({most, traffic.in, traffic.out});
    }
  return most;
}

int64_t Plan::busiest_link() const {
  return mean_of_steps(*this, [this](StepKind kind) { return busiest_link(kind); });
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
  at.backward_flops_per_row = at.flops_per_row * (wants_dx ? 2 : 1);
  for (const Param* param : layer.params()) {
    at.params.push_back(param->full_shape);
    at.roles.push_back(param->role);
    at.cpu_reads_copy16.push_back(param->cpu_reads_copy16);
    at.weight_bytes += param->full_shape.elements() * 4;
    if (param->role == ParamRole::kTrained) at.trained += param->full_shape.elements();
  }
  for (const Layer::Inner& each : layer.inner(in)) {
    LayerPlan& inner = at.inner.emplace_back(describe(*each.layer, each.in, on, wants_dx || !each.first));
    inner.in_place = each.layer->in_place() && !each.first;
    if (!wants_dx && !each.first) at.backward_flops_per_row += inner.flops_per_row;
  }
  return at;
}

// The first of the layers that are split: the first dense one, or a convolution where all that has weights between it
// and the dense layers can be split too: another convolution, or what works on channels as they come. What cannot be
// split, and all before it, is computed whole.
int64_t boundary_of(const Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  const auto none = static_cast<int64_t>(layers.size());
  const StrategyFacts& facts = facts_of(plan.request.strategy);
  if (plan.model_ranks == 1 || !facts.splits_dense) return none;
  int64_t first = none;
  bool by_channels = false;  // so comes what the last layer gives
  for (int64_t i = 0; i < none; ++i) {
    Layer& layer = *layers[static_cast<size_t>(i)];
    if (layer.columns() == Columns::kSplits) return std::min(first, i);
    const bool splits = layer.columns() == Columns::kSplitsChannels && facts.splits_channels;
    by_channels = splits || (by_channels && layer.columns() == Columns::kKeeps);
    if (splits) first = std::min(first, i);
    if (!by_channels && !layer.params().empty()) first = none;
  }
  return first;
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
  const int64_t rows = request.step_rows * stages / request.ranks;  // of a pipeline
  int64_t cuts = -1;                                                // none before the first layer
  for (const auto& layer : whole_layers(model)) cuts += layer->in_place() ? 0 : 1;
  return cuts + 1 >= stages && (named == 0 || named + 1 == stages) &&
         rows >= std::max(1, request.pipeline.micro_batches);
}

Plan make_plan(const Model& model, const PlanRequest& request) {
  OWT_CHECK(request.ranks >= 1 && request.step_rows >= 1);
  check_averages(request);
  Plan plan;
  plan.request = request;
  plan.model = model.name;
  const auto layers = whole_layers(model);
  plan.model_ranks = model_ranks_of(request, layers);
  Shape batch = model.input.batch_of(1);
  plan.boundary = boundary_of(plan, layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerPlan at = describe(*layers[i], batch, request.on, i > 0);
    at.in_place = layers[i]->in_place() && i > 0;
    at.layout = plan.front_layout();
    batch = layers[i]->out_shape(batch);
    if (static_cast<int64_t>(i) < plan.boundary && !at.params.empty()) plan.front_learns = true;
    plan.layers.push_back(std::move(at));
  }
  // Without a flush a single stage is no plain step either: it has several updates.
  const bool staged = plan.model_ranks > 1 || updates_each_micro_batch(request.pipeline.schedule);
  if (facts_of(request.strategy).in_stages && staged)
    place_stages(plan);
  else
    place_back(plan, layers);
  fill_buckets(plan);
  list_transfers(plan);
  return plan;
}

}  // namespace owt
