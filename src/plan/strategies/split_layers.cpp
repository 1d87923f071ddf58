// owt-a to owt-d, mp and mp-dense: the dense layers, and under mp convolutions, are split over the ranks of a model
// group.
#include <algorithm>

#include "src/core/canonical.h"
#include "src/plan/step_order.h"
#include "src/plan/strategy_families.h"
#include "src/plan/transfer_list.h"
#include "src/system/check.h"

namespace owt {
namespace {

// owt-a to owt-d: each rank runs the front part on its own rows. The dense layers of the back part are split by columns
// and run on batches of all ranks' rows, one batch a round.
//   owt-a: one round of all rows
//   owt-b: a round for each rank, of its rows
//   owt-c: as many rounds, of a part of every rank's rows
//   owt-d: as owt-a; a dense layer is split by inputs if that sends less
// While a round is computed, the rows of the next round and the gradients of the previous one travel; there is memory
// for two rounds. On a grid (groups of fewer ranks than there are) each group does so on its own. The groups sum the
// gradients of their dense layers after the last round.
// Source: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", schemes (a) to (c).
void one_weird_trick(StepOrder& step) {
  step.start_labels();
  step.forward_front();
  step.bring_rows(0);
  for (int round = 0; round < step.rounds(); ++round) {
    step.bring_rows(round + 1);
    step.wait_for_rows(round);
    step.forward_dense(round);
    step.loss(round);
    step.backward_dense(round);
    step.update_after(round);
  }
  step.wait_for_home();
  step.backward_front();
  step.gradient_norms();
  step.update_dense();
  step.update_front();
  step.average_front();
}

// mp and mp-dense: all ranks of a group have the same rows. Layers are split (under mp the convolutions too), and each
// rank computes all earlier layers whole. No rows are gathered at the boundary. The gradient at the boundary is a
// partial sum on every rank, and is summed.
//   mp: each rank has some channels of a convolution's input; they are all-gathered before the convolution
//   mp-dense: each rank has the whole input of the first dense layer
// Source: Krizhevsky 2014, on model parallelism; Dean et al. 2012, "Large Scale Distributed Deep Networks", section 3.
void model_parallel(StepOrder& step) {
  step.forward_front();
  step.forward_dense(0);
  step.loss(0);
  step.backward_dense(0);
  step.update_after(0);
  step.wait_for_home();
  step.backward_front();
  step.gradient_norms();
  step.update_dense();
  step.update_front();
}

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
  if (plan.request.loss.samples() && layer + 1 == std::ssize(plan.layers)) return false;  // its columns are sampled
  if (plan.request.on.canonical()) return false;
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
    for (int r = 0; r < plan.model_ranks; ++r)
      all.push_back(plan.request.on.canonical() ? canonical_part(features, plan.model_ranks, r)
                                                : split(features, plan.model_ranks, r));
    return all;
  };
  for (int64_t i = plan.boundary; i < static_cast<int64_t>(layers.size()); ++i) {
    LayerPlan& at = plan.layer(i);
    const Layer& layer = *layers[static_cast<size_t>(i)];
    const Columns columns = layer.columns();
    if (layer.can_split_inputs() && splits_inputs(plan, i, layout)) at.inputs = slices(at.in.elements());
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
    // Parts of a convolution's outputs would have other bits, and its input's gradient would be a sum over the parts.
    const bool by_channels_here = facts.splits_channels && !plan.request.on.canonical();
    const bool splits = layer.columns() == Columns::kSplitsChannels && by_channels_here;
    by_channels = splits || (by_channels && layer.columns() == Columns::kKeeps);
    if (splits) first = std::min(first, i);
    if (!by_channels && !layer.params().empty()) first = none;
  }
  return first;
}

// The all-gather of rows at the boundary, and the return of their gradients (seam.h). Under owt-b a round has the rows
// of one rank.
void gather_rows(TransferList& list, const StepRows::RoundSize& round) {
  const LayerPlan& first = list.seam();
  const int64_t row_bytes = activation_bytes(list.plan(), first.in.elements());
  const auto cross = [&](Collective there, Collective back, Layout to, Layout of_gradient, int64_t bytes) {
    list.bring(there, to, bytes);
    list.return_gradient(back, of_gradient, Layout::kBatch, bytes);
  };
  if (facts_of(list.plan().request.strategy).rounds == Rounds::kOneRanks)
    cross(Collective::kBroadcast, Collective::kReduce, Layout::kReplicated, Layout::kPartial, round.rows * row_bytes);
  else if (first.by_inputs())
    cross(Collective::kAllToAll, Collective::kAllToAll, Layout::kFeature, Layout::kFeature,
          list.columns_bytes(first.inputs, round.longest));
  else
    cross(Collective::kAllGather, Collective::kReduceScatter, Layout::kReplicated, Layout::kPartial,
          list.plan().model_ranks * round.longest * row_bytes);
}

// The entry of a variant, which adds its rounds.
StrategyFacts variant(const char* name, const char* help, Rounds rounds, bool by_inputs = false) {
  return {.name = name,
          .help = help,
          .rounds = rounds,
          .splits_dense = true,
          .by_inputs = by_inputs,
          .gathers_labels = true,
          .can_average = true,
          .order = one_weird_trick};
}

// mp and mp-dense: nothing travels forward at the boundary. The gradients of the rows are partial sums, or columns if
// the first dense layer is split by inputs.
void model_parallel_transfers(TransferList& list) {
  list.each_round([&](const StepRows::RoundSize& round) {
    const LayerPlan& first = list.seam();
    if (first.by_inputs())
      list.return_gradient(Collective::kAllGather, Layout::kFeature, Layout::kReplicated,
                           list.columns_bytes(first.inputs, list.most_rows()));
    else
      list.return_gradient(Collective::kAllReduce, Layout::kPartial, Layout::kReplicated,
                           list.most_rows() * activation_bytes(list.plan(), first.in.elements()));
    list.features(round.rows);
  });
  list.gradients();
}

}  // namespace

void split_layers(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) {
  plan.boundary = boundary_of(plan, layers);
  place_back(plan, layers);
}

void one_weird_trick_transfers(TransferList& list) {
  const bool samples = list.plan().request.loss.samples() && list.plan().ranks() > 1;
  if (list.plan().split() || samples) list.labels();
  if (list.plan().split()) {
    list.each_round([&](const StepRows::RoundSize& round) {
      gather_rows(list, round);
      list.features(round.rows);
    });
  }
  list.gradients();
}

std::vector<StrategyFacts> one_weird_trick_family() {
  return {
      variant("owt-a", "dense layers are split; one round has the rows of all workers", Rounds::kAllRows),
      variant("owt-b", "dense layers are split; each round has the rows of one worker", Rounds::kOneRanks),
      variant("owt-c", "dense layers are split; each round has a part of every worker's rows", Rounds::kAPartOfEach),
      variant("owt-d",
              "as owt-a, but sends columns instead of rows, and sums of outputs instead of inputs, where that is "
              "less",
              Rounds::kAllRows, true)};
}

std::vector<StrategyFacts> model_parallel_family() {
  return {{.name = "mp",
           .help = "dense layers and convolutions are split by their outputs; every worker computes all rows",
           .splits_dense = true,
           .splits_channels = true,
           .shares_rows = true,
           .order = model_parallel,
           .transfers = model_parallel_transfers},
          {.name = "mp-dense",
           .help = "dense layers are split; every worker computes the layers before them for all rows",
           .splits_dense = true,
           .shares_rows = true,
           .order = model_parallel,
           .transfers = model_parallel_transfers}};
}

}  // namespace owt
