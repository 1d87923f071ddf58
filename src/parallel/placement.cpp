#include "src/parallel/placement.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/row_groups.h"

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

// Four micro-batches for each stage keep the bubble below a fifth. Each consists of whole groups of rows that layers
// work on together.
int micro_batches_of(const Plan& plan) {
  const RowGroups groups{plan.request.step_rows / plan.replicas(), plan.row_group(0)};
  const int asked = plan.request.pipeline.micro_batches;
  if (asked > groups.count())
    fail("pipeline.micro_batches is ", asked, ", and a pipeline has ", groups.rows, " rows of a step",
         groups.size > 1 ? concat(", ", groups.count(), " groups of ", groups.size, " (batch_norm's 'rows')") : "",
         "; use ", groups.count(), " or less");
  return asked > 0 ? asked : static_cast<int>(std::clamp<int64_t>(groups.count(), 1, 4 * plan.model_ranks));
}

// Each rank of a model group has a stage, whole. All layers are behind the boundary, and the rounds are micro-batches.
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

void place_layers(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  // Without a flush a single stage is no plain step either: it has several updates.
  const bool staged = plan.model_ranks > 1 || updates_each_micro_batch(plan.request.pipeline.schedule);
  if (facts_of(plan.request.strategy).in_stages && staged) return place_stages(plan);
  place_back(plan, layers);
}

}  // namespace owt
