// Makes the plan. Its queries are in plan.cpp.
#include "src/plan/back_part.h"
#include "src/plan/plan.h"

#include <algorithm>

#include "layers/base/in_place.h"
#include "layers/loss/class_sample.h"
#include "src/core/row_groups.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/plan/strategy_families.h"
#include "src/plan/transfers.h"
#include "src/plan/wire_bytes.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Throws Error if one of these layers needs sums over all rows of the step.
void refuse_sums_of(std::span<const LayerPlan> layers, const std::string& why) {
  for (const LayerPlan& at : layers)
    if (!at.forward_sums.empty())
      fail("layer '", at.name, "' normalises over all rows of the step (rows = \"step\"), ", why,
           "; use e.g. rows = 32, which is possible here");
}

// The elements of a layer in such a bucket; for a split layer, the elements of its largest part.
int64_t elements_in(const Bucket& bucket, const LayerPlan& at) {
  int64_t elements = 0;
  for (size_t p = 0; p < at.params.size(); ++p)
    if (bucket.holds(at.roles[p])) elements += aligned_elements(at.gradient_elements(at.params[p]));
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
  if (!rounds_gradients(plan)) return buckets_like({}, plan, begin, end);
  std::vector<Bucket> buckets = buckets_like({.averages = false}, plan, begin, end);
  const std::vector<Bucket> averages = buckets_like({.trained = false}, plan, begin, end);
  buckets.insert(buckets.end(), averages.begin(), averages.end());
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.layers.back() > b.layers.back(); });
  return buckets;
}

void fill_buckets(Plan& plan) {
  plan.buckets = buckets_of(plan, 0, plan.boundary);
  if (shares_evenly(plan))
    for (Bucket& bucket : plan.buckets)
      bucket.elements = aligned_elements(bucket.elements, updating_ranks(plan) * kAlignedElements);
  if (plan.replicas() == 1 || !plan.split()) return;
  for (int place = 0; place < plan.places(); ++place) {
    const Slice layers = plan.back_layers(place);
    const std::vector<Bucket> of_place = buckets_of(plan, layers.begin, layers.end);
    plan.back_buckets.insert(plan.back_buckets.end(), of_place.begin(), of_place.end());
  }
}

// If nothing is split, every rank has the whole network; under mp-dense and mp the ranks of a group then compute the
// same.
int model_ranks_of(const PlanRequest& request, const std::vector<std::unique_ptr<Layer>>& layers) {
  if (!facts_of(request.strategy).splits()) return 1;
  const int asked = request.model_ranks > 0 ? request.model_ranks : request.ranks;
  if (request.ranks % asked != 0)
    fail(request.ranks, " workers cannot be divided into groups of ", asked,
         " (parallel.model_ranks); use a divisor of ", request.ranks);
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
  const int64_t group = row_group(plan, 0), most = most_slices(plan);
  if (slices > most)
    fail("data.accumulate is ", slices, ", and a worker has ", most,
         group > 1 ? concat(" groups of ", group, " rows (batch_norm's 'rows', run.canonical)") : " rows",
         " per step at most; use ", most, " or less");
}

// If a part of the weights is updated on its own, the gradient of the whole step is not complete before that update.
void check_norms(const Plan& plan) {
  if (!plan.split()) return;
  if (plan.request.dense_update == DenseUpdate::kRound)
    refuse_norms(plan, "but the weights are updated after every round (parallel.dense_update); use \"step\"");
  if (plan.averages())
    refuse_norms(plan, concat("but each worker trains the layers before the dense ones on its own "
                              "(parallel.average_every under ",
                              name_of(plan.request.strategy), "); use dp, or leave average_every out"));
}

// Canonical sums (core/canonical.h) exclude what depends on the workers in another way.
void check_canonical(const Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  const PlanRequest& request = plan.request;
  if (request.on.device != Device::kCpu) refuse_canonical(plan, "not on a GPU yet; use --device cpu");
  if (request.on.precision != Precision::kFp32) refuse_canonical(plan, "its sums are of f32; use --precision fp32");
  for (const auto& layer : layers)
    if (const std::string why = layer->why_not_canonical(); !why.empty())
      refuse_canonical(plan, concat("layer '", layer->name(), "' ", why));
  if (plan.has_norms())
    refuse_canonical(plan, "norms of all gradients are not canonical sums yet (optimizer.clip, optimizer.type)");
  if (request.loss.samples())
    refuse_canonical(plan, "with loss.sample the classes of a step depend on the parts of the last layer");
  if (request.bf16_transport) refuse_canonical(plan, "parallel.wire = \"bf16\" rounds the sums; leave it out");
  if (plan.averages())
    refuse_canonical(plan, "with parallel.average_every each worker trains on its own; leave it out");
  if (plan.split() && request.dense_update == DenseUpdate::kRound)
    refuse_canonical(plan, "the number of rounds depends on the workers (parallel.dense_update); use \"step\"");
}

// Muon's updates. Call it when the plan has its buckets: they decide the parts of an update.
void check_matrices(const Plan& plan) {
  if (!plan.has_matrices()) return;
  bool parts = false;
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i)
    for (size_t p = 0; p < plan.layer(i).params.size(); ++p) parts = parts || matrix_block(plan, i, p) > 0;
  if (parts && plan.request.on.device != Device::kCpu)
    fail("on GPUs optimizer type 'muon' needs whole matrices on each worker, and under ",
         name_of(plan.request.strategy), " they have parts; use --parallel dp, or --device cpu");
  refuse_canonical(plan, "the updates of muon are products of whole matrices; use another optimizer");
}

// Sums over all rows of the step need all these rows at once.
void check_step_sums(const Plan& plan) {
  if (plan.request.slices > 1) refuse_step_sums(plan, "but with data.accumulate it sees one micro-batch at a time");
  if (plan.averages()) refuse_step_sums(plan, "but with parallel.average_every each worker trains on its own");
  if (rows_of(plan, plan.request.step_rows).count_rounds() > 1)
    refuse_sums_of(std::span(plan.layers).subspan(static_cast<size_t>(plan.boundary)),
                   concat("but in the back part it sees one round at a time under ", name_of(plan.request.strategy)));
}

// Every rank needs the labels of all rows of the step. Updates work on rows, not on other parts of the weights.
void sample_classes(Plan& plan) {
  const PlanRequest& request = plan.request;
  const auto refuse = [](const auto&... why) { fail("the loss samples classes (loss.sample), but ", why...); };
  LayerPlan& last = plan.layers.back();
  if (last.columns != Columns::kSplits)
    refuse("the last layer '", last.name, "' is of type '", last.type, "'; use dense or cosine there");
  if (plan.ranks() > 1 && !facts_of(request.strategy).gathers_labels && std::ssize(last.parts) != plan.ranks())
    refuse("under ", name_of(request.strategy), last.parts.empty() ? "" : concat(" in groups of ", plan.model_ranks),
           " no worker knows all labels of a step; use owt-a, owt-b, owt-c, owt-d or dp");
  if (plan.averages() && !plan.split())
    refuse("with parallel.average_every each worker trains on its own; leave average_every out");
  if (request.slices > 1) refuse("data.accumulate divides the labels of a step; leave accumulate out");
  if (request.norm_sums > 1) refuse("LARS needs the norm of all weights; use another optimizer");
  last.can_update_at_once = false;
  const std::vector<Slice> whole{{0, last.columns_out()}};
  for (const Slice& part : last.parts.empty() ? whole : last.parts)
    last.sampled.push_back(most_sampled(part.size(), request.loss.sample, request.step_rows));
}

// For a composite layer: its own work and the work of its branches. The gradient of the input and the gradient of the
// weights each cost as much as forward, if they are used. Layers without weights count both.
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

// Describes `layer` for rows of in.row(). wants_dx: the gradient of its input is used.
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
    at.matrices.push_back(param->is_matrix);
    at.cpu_reads_copy16.push_back(param->cpu_reads_copy16);
    at.weight_bytes += elements * 4;
    at.parameters += is_average(param->role) ? 0 : elements;
    at.trained += param->role == ParamRole::kTrained ? elements : 0;
  }
  for (const Layer::Inner& each : layer.inner(in)) {
    const bool wanted = each.first ? wants_dx : at.inner.back().runs_backward();
    LayerPlan& inner = at.inner.emplace_back(describe(*each.layer, each.in, on, wanted));
    inner.in_place = each.in_place;
    inner.begins_branch = each.first;
  }
  at.backward_flops_per_row = backward_flops(at);
  return at;
}

// Each rank runs the layers between two transfers as one net.
void note_in_place(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  const auto count = std::ssize(plan.layers);
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    for (end = begin + 1; end < count && !begins_stage(plan, end);) ++end;
    const auto [first, size] = std::pair(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    const std::vector<bool> in_place = work_in_place(std::span(layers).subspan(first, size));
    for (int64_t i = begin; i < end; ++i) plan.layer(i).in_place = in_place[static_cast<size_t>(i - begin)];
  }
}

}  // namespace

void refuse_norms(const Plan& plan, const std::string& why) {
  if (plan.has_norms())
    fail("clipping and LARS need the norms of all gradients of a step (optimizer.clip, optimizer.type), ", why);
}

void refuse_step_sums(const Plan& plan, const std::string& why) { refuse_sums_of(plan.layers, why); }

void refuse_canonical(const Plan& plan, const std::string& why) {
  if (plan.request.on.canonical()) fail("run.canonical gives the same bits with every number of workers, but ", why);
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
  plan.boundary = std::ssize(layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerPlan at = describe(*layers[i], batch, request.on, i > 0 && plan.layers.back().runs_backward());
    at.layout = plan.front_layout();
    batch = layers[i]->out_shape(batch);
    plan.layers.push_back(std::move(at));
  }
  note_in_place(plan, layers);  // first pass: an in-place layer cannot begin a pipeline stage
  facts_of(request.strategy).place(plan, layers);
  note_in_place(plan, layers);
  if (request.loss.samples()) sample_classes(plan);
  if (const auto check = acting_strategy(plan).check) check(plan);
  check_slices(plan);
  check_norms(plan);
  check_canonical(plan, layers);
  check_step_sums(plan);
  fill_buckets(plan);
  check_matrices(plan);
  list_transfers(plan);
  return plan;
}

}  // namespace owt
