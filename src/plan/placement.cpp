#include "src/plan/placement.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/row_groups.h"
#include "src/plan/plan_rows.h"

namespace owt {
namespace {

// Whether the input of a dense layer can arrive as columns of all rows, or be taken from rows that are present.
bool can_split_inputs(const Plan& plan, int64_t layer, Layout input) {
  const StrategyFacts& facts = facts_of(plan.request.strategy);
  if (layer == plan.boundary) return facts.shares_rows || facts.rounds == Rounds::kAllRows;
  return input == Layout::kFeature && plan.layer(layer - 1).out.rank() == 1;
}

// Whether splitting a dense layer by inputs sends less than splitting it by outputs. By outputs, the whole input is
// all-gathered and its gradient summed. By inputs, the outputs are summed and their gradient is all-gathered. At the
// boundary the input arrives by rows, so splitting by inputs needs an all-to-all of 1 / ranks of the input as well. If
// all ranks have the rows, only the gradient of the input travels, if it is used: by outputs it is summed (twice its
// size); by inputs each rank sends its columns.
bool sends_less_by_inputs(const Plan& plan, int64_t layer) {
  const LayerPlan& at = plan.layer(layer);
  const int64_t in = at.in.elements(), out = at.out.elements();
  if (layer != plan.boundary) return out < in;
  if (facts_of(plan.request.strategy).shares_rows) return at.wants_dx && 2 * out < in;
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

// Sets the layouts of the layers of the back part. A layer that splits has columns of all rows, or partial sums over
// its part of the inputs. Layers that work on columns keep them. The columns are gathered before all other layers.
void place_back(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  Layout layout = Layout::kReplicated;
  std::vector<Slice> parts;
  std::string dense;  // name of the first one
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

// The cost that is balanced over the stages: forward and backward. Layers with next to no arithmetic move memory, which
// costs about this many operations per element.
constexpr double kFlopsPerElement = 20;

double cost_of(const LayerPlan& at) {
  const auto elements = static_cast<double>(at.in.elements() + at.out.elements() + at.inner_elements());
  return at.flops_per_row + at.backward_flops_per_row + kFlopsPerElement * elements;
}

// Cuts the layers at the stages asked for, or so that they are balanced. An in-place layer stays with the layer before
// it, whose output it overwrites.
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
    fail("pipeline.stages has ", asked.size(), " layer names, but ", plan.model_ranks,
         " stages (one for each worker of a group) need ", plan.model_ranks - 1,
         ", the first layer of each stage but the first; or leave it out");
  std::vector<Slice> stages{{0, 0}};
  for (const std::string& name : asked) {
    int64_t i = stages.back().begin + 1;
    while (i < std::ssize(plan.layers) && plan.layer(i).name != name) ++i;
    if (i >= std::ssize(plan.layers))
      fail("pipeline.stages: there is no layer '", name, "' after '", plan.layer(stages.back().begin).name, "'");
    if (sent[static_cast<size_t>(i)] < 0)
      fail("pipeline.stages: '", name,
           "' works in place on the output of the layer before it, so no stage can begin there");
    stages.back().end = i;
    stages.push_back({i, i});
  }
  stages.back().end = std::ssize(plan.layers);
  return stages;
}

// Four micro-batches per stage keep the bubble below a fifth. Each consists of whole row groups (row_group()).
int micro_batches_of(const Plan& plan) {
  const RowGroups groups{plan.request.step_rows / plan.replicas(), row_group(plan, 0)};
  const int asked = plan.request.pipeline.micro_batches;
  if (asked > groups.count())
    fail("pipeline.micro_batches is ", asked, ", but a pipeline has ", groups.rows, " rows of a step",
         groups.size > 1 ? concat(", ", groups.count(), " groups of ", groups.size, " (batch_norm's 'rows')") : "",
         "; use ", groups.count(), " or less");
  return asked > 0 ? asked : static_cast<int>(std::clamp<int64_t>(groups.count(), 1, 4 * plan.model_ranks));
}

// Each rank of a model group has a whole stage. All layers are in the back part, and the rounds are micro-batches.
void place_stages(Plan& plan) {
  plan.boundary = 0;
  const bool each = updates_each_micro_batch(plan.request.pipeline.schedule);
  plan.request.dense_update = each ? DenseUpdate::kRound : DenseUpdate::kStep;
  plan.stages = stages_of(plan);
  plan.micro_batches = micro_batches_of(plan);
  for (size_t place = 0; place < plan.stages.size(); ++place)
    for (int64_t i = plan.stages[place].begin; i < plan.stages[place].end; ++i)
      plan.layer(i).place = static_cast<int>(place);
}

}  // namespace

// The first layer that is split. It is the first dense layer, or an earlier convolution: every layer with weights
// between that convolution and the dense layers must then be splittable too (another convolution, or a layer that works
// on channels). A layer that cannot be split is computed whole, and so are all layers before it.
int64_t boundary_of(const Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  const auto none = static_cast<int64_t>(layers.size());
  const StrategyFacts& facts = facts_of(plan.request.strategy);
  if (plan.model_ranks == 1 || !facts.splits_dense) return none;
  int64_t first = none;
  bool by_channels = false;  // whether the last layer's output is split by channels
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

void place_layers(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  // Without a flush even a single stage is no plain step, since it has several updates.
  const bool staged = plan.model_ranks > 1 || updates_each_micro_batch(plan.request.pipeline.schedule);
  if (facts_of(plan.request.strategy).in_stages && staged) return place_stages(plan);
  place_back(plan, layers);
}

}  // namespace owt
