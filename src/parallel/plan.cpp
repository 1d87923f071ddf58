#include "src/parallel/plan.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/parallel/sharded_softmax_loss.h"
#include "src/parallel/step_result.h"

namespace owt {
namespace {

// Of an element on the wire.
int64_t gradient_bytes(const Plan& plan) { return plan.request.half_wire && plan.ranks() > 1 ? 2 : 4; }
int64_t activation_bytes(const Plan& plan) {
  return std::min(gradient_bytes(plan), size_of(activation_type(plan.request.on.precision)));
}

int64_t round_up_share(int64_t most, int ranks, int64_t bytes_each) { return most * ranks * bytes_each; }

// Of a dense layer under owt-d: bringing its whole input together sends more than summing its outputs. At the boundary
// the input comes by rows, so that summing needs an all_to_all besides, of 1 / ranks of the whole.
bool sends_less_by_inputs(const Plan& plan, int64_t layer, Layout input) {
  if (!facts_of(plan.request.strategy).by_inputs) return false;
  const LayerPlan& at = plan.layer(layer);
  const int64_t in = at.in.elements(), out = at.out.elements();
  if (layer == plan.boundary) return in / plan.model_ranks + out < in;
  return input == Layout::kFeature && out < in;
}

// Layouts of the layers behind the boundary: a dense layer has columns of all rows, or sums over its part of the inputs
// where the strategy splits by inputs; layers that work on columns keep them; before others the columns are gathered.
void place_back(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  Layout layout = Layout::kReplicated;
  std::vector<Slice> parts;
  const auto slices = [&](int64_t features) {
    std::vector<Slice> all;
    for (int r = 0; r < plan.model_ranks; ++r) all.push_back(split(features, plan.model_ranks, r));
    return all;
  };
  for (int64_t i = plan.boundary; i < static_cast<int64_t>(layers.size()); ++i) {
    LayerPlan& at = plan.layer(i);
    const Columns columns = layers[static_cast<size_t>(i)]->columns();
    if (columns == Columns::kSplits && sends_less_by_inputs(plan, i, layout)) at.inputs = slices(at.in.elements());
    at.gather_before = layout == Layout::kFeature && columns != Columns::kKeeps && !at.by_inputs();
    if (columns == Columns::kSplits) {
      layout = Layout::kFeature;
      parts = slices(at.out.elements());
    } else if (columns == Columns::kMixes) {
      layout = Layout::kReplicated;
      if (!at.params.empty())
        fail("layer '", at.name, "' has weights, but cannot be split as the dense layer '", plan.boundary_name(),
             "' before it is under ", name_of(plan.request.strategy), "; use --parallel dp, or move '", at.name,
             "' before '", plan.boundary_name(), "'");
    }
    at.layout = layout;
    if (layout == Layout::kFeature) at.parts = parts;
  }
}

// What such a bucket takes of a layer; of a split one, of its largest part.
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
  if (gradient_bytes(plan) == 4) return buckets_like({}, plan, begin, end);
  std::vector<Bucket> buckets = buckets_like({.averages = false}, plan, begin, end);
  const std::vector<Bucket> averages = buckets_like({.trained = false}, plan, begin, end);
  buckets.insert(buckets.end(), averages.begin(), averages.end());
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.layers.back() > b.layers.back(); });
  return buckets;
}

void fill_buckets(Plan& plan) {
  plan.buckets = buckets_of(plan, 0, plan.boundary);
  if (plan.shares_update())
    for (Bucket& bucket : plan.buckets)
      bucket.elements = aligned_elements(bucket.elements, plan.ranks() * kAlignedElements);
  if (plan.replicas() > 1 && plan.split())
    plan.back_buckets = buckets_of(plan, plan.boundary, static_cast<int64_t>(plan.layers.size()));
}

class TransferList {
 public:
  explicit TransferList(Plan& plan) : plan_(plan) {}

  // One more call of the transfer, which is new where it has no id yet.
  void add(TransferId& id, const std::string& name, Collective collective, Group group, Layout from, Layout to,
           int64_t tensor_bytes) {
    if (id == kNoTransfer) {
      id = static_cast<TransferId>(plan_.transfers.size());
      plan_.transfers.push_back({name, collective, group, from, to});
    }
    Transfer& transfer = plan_.transfers[static_cast<size_t>(id)];
    ++transfer.calls;
    transfer.bytes += bytes_sent(collective, tensor_bytes, plan_.ranks_of(group));
  }

 private:
  Plan& plan_;
};

int64_t most_columns(const LayerPlan& layer) { return layer.parts.front().size(); }

void list_boundary(Plan& plan, const StepRows& rows, const StepRows::RoundSize& round, TransferList& list) {
  LayerPlan& first = plan.layer(plan.boundary);
  const int64_t row_bytes = first.in.elements() * activation_bytes(plan);
  TransferId &there = first.transfers.input, &back = first.transfers.input_gradient;
  const std::string name = first.name + " input", gradient = name + " gradient";
  if (facts_of(plan.request.strategy).shares_rows) {
    if (plan.front_learns)
      list.add(back, gradient, Collective::kAllReduce, Group::kModel, Layout::kPartial, Layout::kReplicated,
               rows.most() * row_bytes);
  } else if (facts_of(plan.request.strategy).rounds == Rounds::kOneRanks) {
    list.add(there, name, Collective::kBroadcast, Group::kModel, Layout::kBatch, Layout::kReplicated,
             round.rows * row_bytes);
    if (plan.front_learns)
      list.add(back, gradient, Collective::kReduce, Group::kModel, Layout::kPartial, Layout::kBatch,
               round.rows * row_bytes);
  } else if (first.by_inputs()) {
    const int64_t bytes =
        round_up_share(round.longest, plan.model_ranks, first.inputs.front().size() * activation_bytes(plan));
    list.add(there, name, Collective::kAllToAll, Group::kModel, Layout::kBatch, Layout::kFeature, bytes);
    if (plan.front_learns)
      list.add(back, gradient, Collective::kAllToAll, Group::kModel, Layout::kFeature, Layout::kBatch, bytes);
  } else {
    const int64_t bytes = round_up_share(round.longest, plan.model_ranks, row_bytes);
    list.add(there, name, Collective::kAllGather, Group::kModel, Layout::kBatch, Layout::kReplicated, bytes);
    if (plan.front_learns)
      list.add(back, gradient, Collective::kReduceScatter, Group::kModel, Layout::kPartial, Layout::kBatch, bytes);
  }
}

void list_feature_gathers(Plan& plan, int64_t rows, TransferList& list) {
  for (int64_t i = plan.boundary; i < static_cast<int64_t>(plan.layers.size()); ++i) {
    LayerPlan& at = plan.layer(i);
    if (at.by_inputs()) {
      const int64_t bytes = round_up_share(most_columns(at), plan.model_ranks, rows * activation_bytes(plan));
      list.add(at.transfers.output, at.name + " output", Collective::kReduceScatter, Group::kModel, Layout::kPartial,
               Layout::kFeature, bytes);
      list.add(at.transfers.output_gradient, at.name + " output gradient", Collective::kAllGather, Group::kModel,
               Layout::kFeature, Layout::kReplicated, bytes);
    }
    if (!at.gather_before) continue;
    const LayerPlan& before = plan.layer(i - 1);
    const int64_t bytes = round_up_share(most_columns(before), plan.model_ranks, rows * activation_bytes(plan));
    list.add(at.transfers.input, at.name + " input", Collective::kAllGather, Group::kModel, Layout::kFeature,
             Layout::kReplicated, bytes);
    if (plan.gradient_layout(i) == Layout::kPartial)
      list.add(at.transfers.input_gradient, at.name + " input gradient", Collective::kReduceScatter, Group::kModel,
               Layout::kPartial, Layout::kFeature, bytes);
  }
  const LayerPlan& last = plan.layers.back();
  if (plan.sharded_loss)
    list.add(plan.of_step.loss_statistics, "loss statistics", Collective::kAllGather, Group::kModel, Layout::kFeature,
             Layout::kReplicated, plan.model_ranks * rows * kLossStats * 4);
  else if (last.layout == Layout::kFeature)
    list.add(plan.of_step.logits, "logits", Collective::kAllGather, Group::kModel, Layout::kFeature,
             Layout::kReplicated, round_up_share(most_columns(last), plan.model_ranks, rows * activation_bytes(plan)));
}

// What the ranks must know of each other's logits is less than the logits.
bool sends_less_sharded(const Plan& plan) {
  const LayerPlan& last = plan.layers.back();
  return last.layout == Layout::kFeature && kLossStats * 4 < most_columns(last) * activation_bytes(plan);
}

// Of a step: how often the parts behind the boundary are updated.
int dense_updates(const Plan& plan, const StepRows& rows) {
  return plan.request.dense_update == DenseUpdate::kRound ? static_cast<int>(rows.round_sizes(0).size()) : 1;
}

void list_transfers(Plan& plan) {
  TransferList list(plan);
  const StepRows rows = plan.rows(plan.request.step_rows);
  if (plan.split()) {
    if (plan.front_layout() == Layout::kBatch)
      list.add(plan.of_step.labels, "labels", Collective::kAllGather, Group::kModel, Layout::kBatch,
               Layout::kReplicated, round_up_share(rows.most(), plan.model_ranks, 4));
    for (const StepRows::RoundSize& round : rows.round_sizes(0)) {
      list_boundary(plan, rows, round, list);
      list_feature_gathers(plan, round.rows, list);
    }
  }
  for (const Bucket& bucket : plan.back_buckets)
    for (int round = 0; round < dense_updates(plan, rows); ++round)
      list.add(plan.of_step.dense_gradients, "dense gradients", Collective::kAllReduce, Group::kReplicas,
               Layout::kPartial, Layout::kReplicated, plan.wire_bytes(bucket));
  for (const Bucket& bucket : plan.buckets) {
    const int64_t bytes = plan.wire_bytes(bucket);
    if (plan.shares_update()) {  // shares are elements, which is as near to features as to anything
      list.add(plan.of_step.gradients, "gradients", Collective::kReduceScatter, Group::kWorld, Layout::kPartial,
               Layout::kFeature, bytes);
      list.add(plan.of_step.weights, "weights", Collective::kAllGather, Group::kWorld, Layout::kFeature,
               Layout::kReplicated, bucket.elements * 4);
    } else if (!plan.copies_gradients() || plan.replicas() > 1) {
      list.add(plan.of_step.gradients, "gradients", Collective::kAllReduce, plan.front_group(), Layout::kPartial,
               Layout::kReplicated, bytes);
    }
    if (plan.copies_gradients())
      list.add(plan.of_step.gradient_copies, "gradient copies", Collective::kBroadcast, Group::kModel,
               Layout::kReplicated, Layout::kReplicated, bytes);
  }
  list.add(plan.of_step.result, "step result", Collective::kAllReduce, Group::kWorld, Layout::kPartial,
           Layout::kReplicated, kStepResultBytes);
}

}  // namespace

int64_t LayerPlan::most_elements(const Shape& param) const {
  if (layout != Layout::kFeature) return param.elements();
  if (!by_inputs()) return param.with_rows(parts.front().size()).elements();
  return param.rank() == 1 ? param.elements() : param.rows() * inputs.front().size();  // the bias is whole on one rank
}

int64_t LayerPlan::inner_elements() const {
  int64_t elements = 0;
  for (const LayerPlan& each : inner) elements += each.inner_elements() + (each.in_place ? 0 : each.out.elements());
  return elements;
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
  return split() || facts_of(request.strategy).shares_rows ? request.strategy : kPlainDataParallel;
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
  if (layer < boundary) return ranks_of(front_group()) > 1 || copies_gradients();
  const bool of_rounds =
      request.dense_update == DenseUpdate::kStep && rows(request.step_rows).round_sizes(0).size() > 1;
  return replicas() > 1 || of_rounds;
}

DType Plan::gradient_type(int64_t layer, size_t param) const {
  const LayerPlan& at = this->layer(layer);
  const bool of_products = at.roles[param] == ParamRole::kTrained && at.params[param].rank() > 1;
  const bool bf16 = request.on.precision == Precision::kBf16 && of_products && !sums_gradients(layer);
  return bf16 ? DType::kBF16 : DType::kF32;
}

Layout Plan::loss_layout() const {
  if (!split()) return front_layout();
  return sharded_loss ? Layout::kFeature : Layout::kReplicated;
}

bool Plan::counts_rows(int rank) const { return loss_layout() == Layout::kBatch || rank % model_ranks == 0; }

Layout Plan::gradient_layout(int64_t first) const {
  for (int64_t i = first; i < static_cast<int64_t>(layers.size()); ++i) {
    const LayerPlan& at = layer(i);
    if (i > first && at.gather_before) break;
    if (at.layout == Layout::kFeature) return Layout::kPartial;
  }
  return Layout::kReplicated;
}

bool Plan::begins_stage(int64_t layer) const {
  return layer == boundary || this->layer(layer).gather_before || (layer > 0 && this->layer(layer - 1).by_inputs());
}

Shape Plan::input_of(int64_t layer, size_t place) const {
  const LayerPlan& at = this->layer(layer);
  if (at.by_inputs()) return {at.inputs[place].size()};
  if (layer == boundary || at.gather_before) return at.in;
  return {this->layer(layer - 1).parts[place].size()};
}

int64_t Plan::wire_bytes(const Bucket& bucket) const {
  return bucket.elements * (bucket.trained ? gradient_bytes(*this) : 4);
}

int64_t Plan::bytes_per_step() const {
  int64_t total = 0;
  for (const Transfer& transfer : transfers) total += transfer.bytes;
  return total;
}

std::string Plan::boundary_name() const { return split() ? layer(boundary).name : ""; }

namespace {

// Where there is nothing to split every rank has the whole net; under mp all of a group compute the same then.
int model_ranks_of(const PlanRequest& request, const std::vector<std::unique_ptr<Layer>>& layers) {
  if (!splits_dense(request.strategy)) return 1;
  const int asked = request.model_ranks > 0 ? request.model_ranks : request.ranks;
  if (request.ranks % asked != 0)
    fail(request.ranks, " workers cannot be dealt to groups of ", asked, " (parallel.model_ranks); use a divisor of ",
         request.ranks);
  const bool splits =
      std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer->columns() == Columns::kSplits; });
  if (facts_of(request.strategy).shares_rows) return asked;
  return splits ? asked : 1;
}

// Of `layer` on rows of in.row(); wants_dx: somebody needs the gradient of its input.
LayerPlan describe(Layer& layer, const Shape& in, bool wants_dx) {
  LayerPlan at;
  at.name = layer.name();
  at.type = layer.type();
  at.columns = layer.columns();
  at.in = in.row();
  at.out = layer.out_shape(in).row();
  at.flops_per_row = layer.flops(in);
  at.backward_flops_per_row = at.flops_per_row * (wants_dx ? 2 : 1);
  for (const Param* param : layer.params()) {
    at.params.push_back(param->full_shape);
    at.roles.push_back(param->role);
    at.weight_bytes += param->full_shape.elements() * 4;
    if (param->role == ParamRole::kTrained) at.trained += param->full_shape.elements();
  }
  for (const Layer::Inner& each : layer.inner(in)) {
    LayerPlan& inner = at.inner.emplace_back(describe(*each.layer, each.in, wants_dx || !each.first));
    inner.in_place = each.layer->in_place() && !each.first;
    if (!wants_dx && !each.first) at.backward_flops_per_row += inner.flops_per_row;
  }
  return at;
}

}  // namespace

bool can_split_dense(const Model& model) {
  bool dense = false;
  for (const auto& layer : whole_layers(model)) {
    if (dense && layer->columns() == Columns::kMixes && !layer->params().empty()) return false;
    dense |= layer->columns() == Columns::kSplits;
  }
  return true;
}

Plan make_plan(const Model& model, const PlanRequest& request) {
  OWT_CHECK(request.ranks >= 1 && request.step_rows >= 1);
  Plan plan;
  plan.request = request;
  plan.model = model.name;
  const auto layers = whole_layers(model);
  plan.model_ranks = model_ranks_of(request, layers);
  Shape batch = model.input.batch_of(1);
  plan.boundary = static_cast<int64_t>(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerPlan at = describe(*layers[i], batch, i > 0);
    at.in_place = layers[i]->in_place() && i > 0;
    at.layout = plan.front_layout();
    batch = layers[i]->out_shape(batch);
    const bool first_dense =
        layers[i]->columns() == Columns::kSplits && plan.boundary == static_cast<int64_t>(layers.size());
    // On one rank, and under dp, there is nothing to split.
    if (first_dense && plan.model_ranks > 1) plan.boundary = static_cast<int64_t>(i);
    if (static_cast<int64_t>(i) < plan.boundary && !at.params.empty()) plan.front_learns = true;
    plan.layers.push_back(std::move(at));
  }
  place_back(plan, layers);
  plan.sharded_loss = !request.whole_logits && sends_less_sharded(plan);
  fill_buckets(plan);
  list_transfers(plan);
  return plan;
}

}  // namespace owt
