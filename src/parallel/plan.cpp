#include "src/parallel/plan.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/parallel/step_result.h"

namespace owt {
namespace {

int64_t activation_bytes(const Plan& plan) { return size_of(activation_type(plan.request.on.precision)); }

int64_t round_up_share(int64_t most, int ranks, int64_t bytes_each) { return most * ranks * bytes_each; }

// Layouts of the layers behind the boundary (DESIGN section 5).
void place_back(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  Layout layout = Layout::kReplicated;
  std::vector<Slice> parts;
  for (int64_t i = plan.boundary; i < static_cast<int64_t>(layers.size()); ++i) {
    LayerPlan& at = plan.layers[static_cast<size_t>(i)];
    const Columns columns = layers[static_cast<size_t>(i)]->columns();
    at.gather_before = layout == Layout::kFeature && columns != Columns::kKeeps;
    if (columns == Columns::kSplits) {
      layout = Layout::kFeature;
      parts.clear();
      for (int r = 0; r < plan.ranks(); ++r) parts.push_back(split(at.out.elements(), plan.ranks(), r));
    } else if (columns == Columns::kMixes) {
      layout = Layout::kReplicated;
      OWT_CHECK(at.params.empty(), "layer '", at.name, "' has weights and cannot stand behind the first dense layer");
    }
    at.layout = layout;
    if (layout == Layout::kFeature) at.parts = parts;
  }
}

void fill_buckets(Plan& plan) {
  if (plan.front_layout() != Layout::kBatch) return;
  for (int64_t i = plan.boundary - 1; i >= 0; --i) {
    const LayerPlan& at = plan.layers[static_cast<size_t>(i)];
    if (at.params.empty()) continue;
    if (plan.buckets.empty() || plan.buckets.back().elements * 4 >= plan.request.bucket_bytes)
      plan.buckets.emplace_back();
    plan.buckets.back().layers.push_back(i);
    for (const Shape& shape : at.params) plan.buckets.back().elements += aligned_elements(shape.elements());
  }
}

class TransferList {
 public:
  explicit TransferList(Plan& plan) : plan_(plan) {}

  void add(const std::string& name, Collective collective, Layout from, Layout to, int64_t tensor_bytes) {
    const int64_t bytes = bytes_sent(collective, tensor_bytes, plan_.ranks());
    for (Transfer& known : plan_.transfers) {
      if (known.name != name) continue;
      ++known.calls;
      known.bytes += bytes;
      return;
    }
    plan_.transfers.push_back({name, collective, from, to, 1, bytes});
  }

 private:
  Plan& plan_;
};

int64_t most_columns(const LayerPlan& layer) { return layer.parts.front().size(); }

void list_boundary(const Plan& plan, const StepRows& rows, const Round& round, TransferList& list) {
  const int ranks = plan.ranks();
  const int64_t row_bytes = plan.layers[static_cast<size_t>(plan.boundary)].in.elements() * activation_bytes(plan);
  const std::string there = plan.boundary_name() + " input", back = plan.boundary_name() + " input gradient";
  if (plan.request.strategy == Strategy::kModelParallel) {
    if (plan.front_learns)
      list.add(back, Collective::kAllReduce, Layout::kPartial, Layout::kReplicated, rows.total() * row_bytes);
  } else if (plan.request.strategy == Strategy::kOwtB) {
    list.add(there, Collective::kBroadcast, Layout::kBatch, Layout::kReplicated, rows_of(round) * row_bytes);
    if (plan.front_learns)
      list.add(back, Collective::kReduce, Layout::kPartial, Layout::kBatch, rows_of(round) * row_bytes);
  } else {
    int64_t most = 0;
    for (const RowRange& range : round) most = std::max(most, range.size());
    const int64_t bytes = round_up_share(most, ranks, row_bytes);
    list.add(there, Collective::kAllGather, Layout::kBatch, Layout::kReplicated, bytes);
    if (plan.front_learns) list.add(back, Collective::kReduceScatter, Layout::kPartial, Layout::kBatch, bytes);
  }
}

void list_feature_gathers(const Plan& plan, int64_t rows, TransferList& list) {
  for (int64_t i = plan.boundary; i < static_cast<int64_t>(plan.layers.size()); ++i) {
    const LayerPlan& at = plan.layers[static_cast<size_t>(i)];
    if (!at.gather_before) continue;
    const LayerPlan& before = plan.layers[static_cast<size_t>(i - 1)];
    const int64_t bytes = round_up_share(most_columns(before), plan.ranks(), rows * activation_bytes(plan));
    list.add(at.name + " input", Collective::kAllGather, Layout::kFeature, Layout::kReplicated, bytes);
    if (plan.gradient_layout(i) == Layout::kPartial)
      list.add(at.name + " input gradient", Collective::kReduceScatter, Layout::kPartial, Layout::kFeature, bytes);
  }
  const LayerPlan& last = plan.layers.back();
  if (last.layout == Layout::kFeature)
    list.add("logits", Collective::kAllGather, Layout::kFeature, Layout::kReplicated,
             round_up_share(most_columns(last), plan.ranks(), rows * activation_bytes(plan)));
}

void list_transfers(Plan& plan) {
  TransferList list(plan);
  const StepRows rows(plan.rounds_strategy(), plan.ranks(), plan.request.step_rows);
  if (plan.split()) {
    if (plan.loss_layout() == Layout::kReplicated && plan.front_layout() == Layout::kBatch)
      list.add("labels", Collective::kAllGather, Layout::kBatch, Layout::kReplicated,
               round_up_share(rows.most(), plan.ranks(), 4));
    for (const Round& round : rows.rounds(0)) {
      list_boundary(plan, rows, round, list);
      list_feature_gathers(plan, rows_of(round), list);
    }
  }
  for (const Bucket& bucket : plan.buckets)
    list.add("gradients", Collective::kAllReduce, Layout::kPartial, Layout::kReplicated, bucket.elements * 4);
  list.add("step result", Collective::kAllReduce, Layout::kPartial, Layout::kReplicated, kStepResultBytes);
}

}  // namespace

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

Strategy Plan::rounds_strategy() const {
  return split() || request.strategy == Strategy::kModelParallel ? request.strategy : Strategy::kDataParallel;
}

Layout Plan::front_layout() const {
  return request.strategy == Strategy::kModelParallel && ranks() > 1 ? Layout::kReplicated : Layout::kBatch;
}

Layout Plan::loss_layout() const { return split() ? Layout::kReplicated : front_layout(); }

bool Plan::counts_rows(int rank) const { return loss_layout() == Layout::kBatch || rank == 0; }

Layout Plan::gradient_layout(int64_t first) const {
  for (int64_t i = first; i < static_cast<int64_t>(layers.size()); ++i) {
    const LayerPlan& at = layers[static_cast<size_t>(i)];
    if (i > first && at.gather_before) break;
    if (at.layout == Layout::kFeature) return Layout::kPartial;
  }
  return Layout::kReplicated;
}

int64_t Plan::bytes_per_step() const {
  int64_t total = 0;
  for (const Transfer& transfer : transfers) total += transfer.bytes;
  return total;
}

std::string Plan::boundary_name() const { return split() ? layers[static_cast<size_t>(boundary)].name : ""; }

Plan make_plan(const Model& model, const PlanRequest& request) {
  OWT_CHECK(request.ranks >= 1 && request.step_rows >= 1);
  Plan plan;
  plan.request = request;
  plan.model = model.name;
  const auto layers = whole_layers(model);
  Shape batch = model.input.batch_of(1);
  plan.boundary = static_cast<int64_t>(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerPlan at;
    at.name = layers[i]->name();
    at.type = layers[i]->type();
    at.in = batch.row();
    at.in_place = layers[i]->in_place() && i > 0;
    at.flops_per_row = layers[i]->flops(batch);
    at.backward_flops_per_row = at.flops_per_row * (i == 0 ? 1 : 2);
    batch = layers[i]->out_shape(batch);
    at.out = batch.row();
    at.layout = plan.front_layout();
    for (const Param& param : layers[i]->params()) {
      at.params.push_back(param.full_shape);
      at.weight_bytes += param.full_shape.elements() * 4;
    }
    const bool first_dense =
        layers[i]->columns() == Columns::kSplits && plan.boundary == static_cast<int64_t>(layers.size());
    // On one rank, and under dp, there is nothing to split.
    if (first_dense && request.ranks > 1 && request.strategy != Strategy::kDataParallel)
      plan.boundary = static_cast<int64_t>(i);
    if (static_cast<int64_t>(i) < plan.boundary && !at.params.empty()) plan.front_learns = true;
    plan.layers.push_back(std::move(at));
  }
  place_back(plan, layers);
  fill_buckets(plan);
  list_transfers(plan);
  return plan;
}

}  // namespace owt
