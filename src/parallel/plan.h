// The plan: where everything is computed, and what travels. Data only: made without weights or devices,
// printable.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "layers/param.h"
#include "layers/softmax_loss.h"
#include "src/comm/communicator.h"
#include "src/net/model.h"
#include "src/parallel/consistency.h"
#include "src/parallel/pipeline.h"
#include "src/parallel/push_filters.h"
#include "src/parallel/rounds.h"

namespace owt {

enum class Layout {
  kBatch,       // rows split over ranks
  kReplicated,  // the same everywhere
  kFeature,     // columns split over ranks
  kPartial,     // every rank holds a summand
};
const char* name_of(Layout layout);

// When the dense weights are updated under a scheme of several rounds.
enum class DenseUpdate {
  kStep,   // once, with the gradients of all rounds: exact synchronous SGD
  kRound,  // after every round, with that round's gradient: the paper's variable batch size
};

// What the ranks do with their copies of the weights before the boundary in a training step (local SGD, see
// PlanRequest::average_every).
enum class StepKind {
  kSynchronous,  // all learn from the sum of their gradients
  kLocal,        // each learns from its own rows, and they differ then
  kAveraging     // the same, and then weights and the optimizer's states are averaged
};

// Which part of a dense layer's work a rank has, where the layer is split.
enum class DenseSplit {
  kOfStrategy,  // what the strategy does: the one that sends less under owt-d, columns under all others
  kColumns,     // some of the outputs, from all inputs
  kRows,        // summands of all outputs, from some of the inputs
  kLess,        // for each layer the one of the two that sends less
};
const char* name_of(DenseSplit split);  // as parallel.split says it

// The ranks that take part in a transfer.
enum class Group {
  kWorld,     // all
  kModel,     // those that share one copy of the split layers
  kReplicas,  // those that hold the same parts, one of each model group
};
const char* name_of(Group group);

// A transfer of a plan, by its place in Plan::transfers. Its name is a label for people.
using TransferId = int;
constexpr TransferId kNoTransfer = -1;

// The transfers around a layer behind the boundary: of what goes into it, of what comes out, and of their gradients;
// and within any layer that of its sums over all rows of the step.
struct LayerTransfers {
  TransferId input = kNoTransfer, input_gradient = kNoTransfer, output = kNoTransfer, output_gradient = kNoTransfer;
  TransferId sums = kNoTransfer;
};

// The transfers that belong to no single layer.
struct StepTransfers {
  TransferId labels = kNoTransfer, logits = kNoTransfer, loss_statistics = kNoTransfer;
  TransferId gradients = kNoTransfer, gradient_copies = kNoTransfer, weights = kNoTransfer;  // of the front
  TransferId averages = kNoTransfer;                                                         // of the front
  TransferId dense_gradients = kNoTransfer, norms = kNoTransfer, result = kNoTransfer;
};

constexpr int kEveryPlace = -1;

struct LayerPlan {
  std::string name, type;
  Columns columns;                 // how it can be split
  Shape in, out;                   // of one row, whole
  Layout layout = Layout::kBatch;  // of the output
  std::vector<Slice> parts;        // kFeature: the output columns, channels of images, of each rank of a model group
  // Split by input features (DenseSplit): those of each rank of a model group. The outputs are summands of kFeature
  // ones.
  std::vector<Slice> inputs;
  int place = kEveryPlace;          // of a pipeline: the rank of a model group whose stage the layer is in
  bool gather_before = false;       // the input is gathered: kFeature -> kReplicated
  bool in_place = false;            // the output takes the place of the input
  bool can_update_at_once = false;  // Layer::can_update_at_once()
  bool by_inputs() const { return !inputs.empty(); }
  bool is_at(int of_group) const { return place == kEveryPlace || place == of_group; }  // a place in a model group
  double flops_per_row = 0;                                                             // forward, the whole layer
  double backward_flops_per_row = 0;   // of the gradients that somebody wants
  bool wants_dx = false;               // somebody needs the gradient of its input: a layer before it learns
  std::vector<Shape> params;           // whole tensors
  std::vector<ParamRole> roles;        // of params
  std::vector<bool> cpu_reads_copy16;  // of params: Param's
  int64_t weight_bytes = 0;            // all parameters of the whole layer, f32
  int64_t parameters = 0;              // elements of them that are no running averages
  int64_t trained = 0;                 // and of those that are not frozen either
  int64_t scratch_bytes = 0;           // Layer::scratch_bytes() per row
  int64_t row_group = 1;               // Layer::row_group()
  std::vector<int64_t> forward_sums, backward_sums;  // Layer::step_sums(), of the whole layer
  std::vector<LayerPlan> inner;                      // what a composite layer is made of
  bool begins_branch = false;                        // of a composite layer
  LayerTransfers transfers;

  bool learns() const;                                         // a parameter does
  bool runs_backward() const { return wants_dx || learns(); }  // and so do all layers behind it
  int64_t most_elements(const Shape& param) const;             // of one of params, on the rank with the most
  int64_t weight_bytes_on_rank() const;                        // of all params, f32, on the rank with the most
  int64_t velocity_bytes_on_rank() const;                      // of those that are trained
  int64_t inner_elements() const;                              // per row, of the activations inside a composite
  int64_t kept_elements() const;                               // per row, of the output on the rank with the most
  Shape out_of(size_t place) const;  // a row of the output on the rank at this place of its model group
  double share() const;              // of the layer's work, on the rank with the most
  // Layer::step_sums() of the rank at this place of its model group.
  std::vector<int64_t> step_sums(Phase phase, int place) const;
  // Of a row of the output: its channels, or features where it is no image, and how often there are so many.
  int64_t columns_out() const { return out[out.rank() - 1]; }
  int64_t pixels_out() const { return out.elements() / columns_out(); }
};

// Per row, of the activations that a tape of these layers keeps (src/net/net.h), those inside composites too.
int64_t kept_elements(std::span<const LayerPlan> layers);

// One kind of collective in a step. A transfer with several calls (one a round) counts them all. kSend stands for a
// star: messages from the group's first rank to each of the others, a tensor each; kReceive for those the other way.
struct Transfer {
  std::string name;  // as in reports: "fc7 input"
  Collective collective;
  Group group;
  Layout from, to;
  int calls = 0;      // in a step that has it
  int64_t bytes = 0;  // sent by each rank in such a step
  // One of so many steps has it: 1: all; more: those that average; 0: the synchronous ones before those.
  int every = 1;
  // Of messages: places in a model group. Nobody else sends.
  int sender = kEveryPlace, receiver = kEveryPlace;
  std::vector<int64_t> by_place{};  // where places of a model group send different amounts; `bytes` is the most

  bool in(StepKind kind) const {
    return every == 1 || kind == (every == 0 ? StepKind::kSynchronous : StepKind::kAveraging);
  }
  bool is_between_places() const { return sender != kEveryPlace; }
  int64_t bytes_at(int place) const {
    if (sender != kEveryPlace) return place == sender ? bytes : 0;
    return by_place.empty() ? bytes : by_place[static_cast<size_t>(place)];
  }

  int64_t whole = 0;  // of the tensors in such a step
};

// What goes through a rank's link in a step.
struct Traffic {
  int64_t in = 0, out = 0;  // bytes
};

// Gradients that travel together: parameters of these layers, the last layer first, each from a multiple of 8 elements
// on, which is where kernels want them, in f32 as in bf16.
struct Bucket {
  std::vector<int64_t> layers{};
  int64_t elements = 0;  // where all ranks update shares so many more that every share is as long and begins there too
  // What it holds of its layers. Where gradients are rounded on their way, running averages have buckets of their own,
  // which are not.
  bool trained = true, averages = true;

  bool holds(ParamRole role) const {
    return role == ParamRole::kAverage ? averages : role == ParamRole::kTrained && trained;
  }
};
constexpr int64_t kAlignedElements = 8;
inline int64_t aligned_elements(int64_t elements, int64_t multiple = kAlignedElements) {
  return (elements + multiple - 1) / multiple * multiple;
}

// Squares are added up in chunks of so many values (gradient_norms.h).
constexpr int64_t kSquareChunk = 1 << 14;

// With at least so many parameters of dense layers a GPU updates them beside the backward pass of the layers before
// them: with fewer one launch for all parameters is faster.
constexpr int64_t kUpdateBesideFrom = 1 << 20;

struct PlanRequest {
  int ranks = 1;
  Strategy strategy = kDefaultStrategy;
  DenseUpdate dense_update = DenseUpdate::kStep;
  int64_t step_rows = 1;
  int64_t bucket_bytes = 8 << 20;  // a bucket leaves as soon as it holds this much
  Compute on{};                    // of every rank; activations travel in its element type
  bool half_wire = false;          // f32 activations and gradients travel as bf16 (comm/half_wire.h)
  LossSettings loss{};             // its gradient's settings
  // Ranks that share one copy of the split layers: consecutive ones, a divisor of ranks; the others are replicas of
  // them.
  // 0: all ranks. Where no dense layer is split (dp, say) every rank has a copy of its own, whatever stands here.
  int model_ranks = 0;
  // Local SGD (Stich 2019): with more than 1 each rank updates its copies of the weights before the boundary (under dp,
  // of all) by the mean gradient of its own rows, and only in one of so many steps are the copies averaged. Post-local
  // SGD (Lin et al. 2020): before this epoch all steps are synchronous all the same.
  int average_every = 1;
  double average_from = 0;
  // Steps from one update of the exponential averages of the weights to the next (EMA); 0: none are kept.
  int ema_every = 0;
  int optimizer_states = 1;  // tensors that the optimizer keeps for each trained parameter (OptimizerSettings::states)
  // Norms that updates wait for (gradient_norms.h): how many sums of squares there are of each trained parameter, none,
  // that of its gradient, or also its own. Then nothing is updated before all gradients of the step are complete.
  int norm_sums = 0;
  // kRows and kLess: a first dense layer to which the rows come in several rounds, whole, is split by columns.
  DenseSplit split = DenseSplit::kOfStrategy;
  int64_t beside_from = kUpdateBesideFrom;
  bool keeps_gradients = false;  // no weights are updated at once
  bool whole_logits = false;     // the loss sees whole rows of logits, whatever travels for that
  // One for each rank: rows of a step are dealt in proportion (StepRows); empty: as many for each.
  std::vector<double> shares{};
  // One for each rank, for predictions: how fast it computes, in units of what the layers' times are of; empty: all 1.
  std::vector<double> speeds{};
  PipelineRequest pipeline{};
  ConsistencyRules server{};      // where ranks serve weights (Updates::kServers)
  FilterSettings push_filters{};  // and what they leave out of gradients there, or round
  // Ranks that serve weights and have no rows, the last ones, whose `shares` a plan makes 0. 0: every rank serves, and
  // computes.
  int servers = 0;
  // Parts of a step that are computed one after the other, so that the activations of one at a time are in memory;
  // their gradients add up (gradient accumulation). No more than a rank has rows, and not in a pipeline.
  int slices = 1;
  // What a rank's batches take on a GPU beside the images of two of them (data/batch_memory.h): for each row of a full
  // step, and however many these are.
  int64_t batch_row_bytes = 0, batch_bytes = 0;
};

struct Plan {
  PlanRequest request;
  std::string model;
  std::vector<LayerPlan> layers;
  // The first layer behind the boundary: the first dense one, or, where channels are split, the first convolution from
  // which on all weights can be. Layers before it work on the rank's own rows; layers.size() where nothing is split
  // (dp, one rank, no dense layer).
  int64_t boundary = 0;
  std::vector<Bucket> buckets;  // of the front, summed over front_group(); in the order in which they are complete
  std::vector<Bucket>
      back_buckets;  // of the parts behind the boundary, summed over their replicas; as long as the largest part
  std::vector<Transfer> transfers;  // of a full step, in the model group with the most rows
  StepTransfers of_step;
  bool sharded_loss = false;  // the loss sees this rank's columns of the logits, which are not gathered
  int model_ranks = 1;        // that share one copy of the split layers; 1 where nothing is split
  std::vector<Slice> stages;  // of a pipeline: the layers of each place of a model group
  int micro_batches = 1;

  LayerPlan& layer(int64_t i) { return layers[static_cast<size_t>(i)]; }
  const LayerPlan& layer(int64_t i) const { return layers[static_cast<size_t>(i)]; }
  const Transfer& transfer(TransferId id) const { return transfers[static_cast<size_t>(id)]; }

  int ranks() const { return request.ranks; }
  int replicas() const { return ranks() / model_ranks; }
  int ranks_of(Group group) const;
  bool are_together(int rank, int other, Group group) const;  // in the same group of that kind
  StepRows rows(int64_t step_rows) const {
    return {rounds_strategy(),    ranks(),        step_rows,
            model_ranks,          request.shares, micro_batches_in(step_rows),
            slices_in(step_rows), row_group(0),   row_group(boundary)};
  }
  int slices_in(int64_t step_rows) const;  // a smaller step has fewer, so that they are about as large
  // Rows that the layers from this one on work on together: ranks get whole groups of those of all layers, rounds of
  // those behind the boundary.
  int64_t row_group(int64_t first_layer) const;
  bool in_stages() const { return !stages.empty(); }
  // Where each micro-batch is a mini-batch of its own a smaller step has fewer of them, not smaller ones.
  int micro_batches_in(int64_t step_rows) const;
  int places() const { return in_stages() ? model_ranks : 1; }  // of a model group, whose ranks do different things
  int place_of(int rank) const { return rank % model_ranks; }
  // The layers behind the boundary that a rank at this place has, whole or in parts.
  Slice layers_behind(int place) const;
  bool is_at(const Bucket& bucket, int place) const { return layer(bucket.layers.back()).is_at(place); }
  bool has_loss(int place) const { return !in_stages() || place + 1 == model_ranks; }
  // Rounds of the same number of rows whose activations are kept at the same time.
  int tapes(int place) const;
  // The rows of a step of `step_rows` that rank 0 works on in a layer: of all slices and rounds, and of the largest
  // one, since the activations of one at a time are in memory.
  struct LayerRows {
    int64_t total = 0, at_once = 0;
  };
  LayerRows layer_rows(int64_t layer, int64_t step_rows) const;
  // Whether a layer before the boundary learns, so that gradients must come back to it.
  bool front_learns() const { return boundary > 0 && layer(boundary - 1).runs_backward(); }
  // Whether the gradient of what comes into the layers behind the boundary at this place is wanted.
  bool wants_input_gradient(int place) const {
    const Slice here = layers_behind(place);
    return here.size() > 0 && layer(here.begin).wants_dx;
  }
  bool split() const { return boundary < static_cast<int64_t>(layers.size()); }
  // What the rounds follow: dp where nothing is split and rows are, else the strategy asked for.
  Strategy rounds_strategy() const;
  Layout front_layout() const;  // of activations before the boundary
  // Who updates the replicated weights. One rank updates all.
  Updates updates() const { return ranks() > 1 ? facts_of(request.strategy).updates : Updates::kAll; }
  // Not every rank updates all of them: each has a share, which may be nothing (sharded_update.h).
  bool shares_update() const { return updates() != Updates::kAll; }
  bool serves() const { return updates() == Updates::kServers; }
  bool has_servers_apart() const { return serves() && request.servers > 0; }
  int computing_ranks() const { return has_servers_apart() ? ranks() - request.servers : ranks(); }
  bool computes(int rank) const { return rank < computing_ranks(); }
  // The workers that others can go on without: where servers are apart all but rank 0, which writes and keeps watch.
  std::vector<int> dispensable_workers() const;
  // The ranks that have shares of the update, the last ones, where shares are even.
  int updating_ranks() const { return has_servers_apart() ? request.servers : ranks(); }
  bool updates_share(int rank) const { return rank >= ranks() - updating_ranks(); }
  // The elements of a bucket that a rank has, where shares are even.
  Slice even_share(const Bucket& bucket, int rank) const;
  bool shares_evenly() const { return updates() == Updates::kShares || serves(); }
  // Steps behind which a rank hears of the others' results, since they may be as many behind it (parameter_server.h).
  int64_t steps_apart() const;
  // Whether copies of the weights before the boundary differ between averages, and whether there are synchronous steps.
  bool averages() const { return request.average_every > 1 && ranks() > 1 && front_learns(); }
  bool has_norms() const { return request.norm_sums > 0; }
  bool synchronizes() const { return !averages() || request.average_from > 0; }
  // Of the step with this number, from 0, when only the number counts: one of average_every averages.
  StepKind kind_of(int64_t step) const;
  int local_period() const { return averages() ? request.average_every : 1; }
  int period() const;         // steps after which all are done again
  Group front_group() const;  // over which the gradients of the front are summed
  // The ranks that have rows of a step in a layer, and other ones each.
  Group rows_group(int64_t layer) const { return layer < boundary ? front_group() : Group::kReplicas; }
  // The ranks of a model group may compute the front's gradients from the same rows, but not to the last bit where
  // their hosts differ (processor, threads, algorithms), and copies of weights that learn from them would drift apart:
  // so the first rank's gradients are everybody's.
  bool copies_gradients() const { return front_layout() == Layout::kReplicated; }
  // Whether the gradients of a layer's parameters are sums of several ranks', slices' or rounds', or come from another
  // rank.
  bool sums_gradients(int64_t layer) const;
  // Whether a layer's first parameter is updated while its gradient is computed, which is not kept then: on the CPU,
  // where it is no such sum. Of large weights and small batches it saves most of the time of both.
  bool updates_at_once(int64_t layer) const;
  // The type of a parameter's gradient: in precision bf16 the weights of products have theirs in bf16 where it is no
  // such sum; all others are f32.
  DType gradient_type(int64_t layer, size_t param) const;
  bool has_copy16(int64_t layer, size_t param) const;  // Param::has_copy16()
  bool has_copies16(const Bucket& bucket) const;       // whether a parameter in it has one
  Layout loss_layout() const;                          // of the logits the loss sees: kBatch, kReplicated or kFeature
  // Each rank has the gradient of its logits from them alone: backward begins while the others' statistics travel, and
  // the loss of whole rows follows it.
  bool loss_follows() const { return sharded_loss && request.loss.type == LossType::kLogistic; }
  bool counts_rows(int rank) const;  // of ranks that see the same rows at the loss, one counts them
  // That of the gradient that comes out of the layers [first, next gather): a column-split layer leaves summands.
  Layout gradient_layout(int64_t first) const;
  // The layers behind the boundary run in stages, between moves of features or between ranks: whether this is the first
  // one of a stage, and the shape of a row of its input then, as the rank at this place of its model group gets it.
  bool begins_stage(int64_t layer) const;
  Shape input_of(int64_t layer, size_t place) const;
  std::vector<int64_t> round_rows(const StepRows& step) const;  // of every round, over all replicas
  int64_t gradient_size() const { return request.half_wire && ranks() > 1 ? 2 : 4; }  // bytes of one on the wire
  // Gradients are not what they were when they arrive; running averages, which must be, have buckets of their own then.
  bool rounds_gradients() const { return gradient_size() != 4 || filters_pushes(); }
  bool filters_pushes() const { return serves() && request.push_filters.any(); }
  int64_t wire_bytes(const Bucket& bucket) const;  // of the whole of it; where filters choose, what is usual
  int64_t trained_tensors(const Bucket& bucket) const;
  int64_t averaged_elements(const Bucket& bucket) const;  // values, and the optimizer's states where there are some
  int64_t bytes_in(StepKind kind) const;                  // sent by each rank, or the mean over all
  int64_t bytes_in(StepKind kind, int rank) const { return traffic(kind, rank).out; }  // as its communicator counts
  // Of this rank in such a step; its model group may have fewer rows than another. A broadcast and a reduce count as
  // their mean, as of bytes_sent().
  Traffic traffic(StepKind kind, int rank) const;
  int64_t busiest_link(StepKind kind) const;  // the most bytes that go one way through the link of a rank
  int64_t bytes_per_step() const;             // bytes_in() in the mean of steps; before average_from it is another
  int64_t busiest_link() const;               // the same
  std::string sent_text(int digits) const;    // of a rank in a step: "1.25 MB"; "0.08 MB (mean; the busiest 0.12 MB)"
  // Of the weights of a rank at this place of its model group, or of the rank with the most. Only the stages of a
  // pipeline tell places apart.
  int64_t weight_bytes_per_rank(int place = kEveryPlace) const;
  int64_t velocity_bytes_per_rank(int place = kEveryPlace) const;  // what momentum keeps, where no shares are updated
  int64_t gradient_bytes_per_rank(int place = kEveryPlace) const;
  int64_t copy16_bytes_per_rank(int place = kEveryPlace) const;  // their copies in bf16
  int64_t weight_copy_bytes(int place) const;  // of one copy of a stage's weights (Action::Kind::kCopyWeights)
  int64_t trained_params() const;              // of all layers
  int64_t most_step_sums() const;              // at a time, of any layer
  int64_t norm_chunks() const;                 // of the rank with the most
  int64_t norm_bytes() const;                  // that gradient_norms.h takes on every rank
  std::string boundary_name() const;           // the layer behind the boundary

  // "frozen: conv1, conv2; 0.20 M of 1.30 M parameters learn"; empty: no layer is frozen.
  std::string frozen_text() const;
  std::string table() const;  // `owt plan`

 private:
  // What the layers at a place of a model group come to, or the most of all places.
  int64_t at_place(int place, const std::function<int64_t(int64_t, const LayerPlan&)>& of_layer) const;
};

// What a rank sends in a step, in MB with so many digits: the mean, and what the busiest link carries where that is
// another number.
std::string sent_text(int64_t mean, int64_t busiest, int digits);

// A row of this shape with so many columns, channels of an image or features.
Shape with_columns(const Shape& row, int64_t columns);

// Whether strategies that split dense layers can run it: a layer with weights behind the first dense one (a residual,
// say) is not split.
bool can_split_dense(const Model& model);
// Whether a pipeline of the request's ranks has places for its cuts, as many stages as are named, where some are, and
// rows for its micro-batches.
bool can_be_staged(const Model& model, const PlanRequest& request);

// Throws Error for a model that cannot be split as the strategy wants, and for ranks that make no groups.
Plan make_plan(const Model& model, const PlanRequest& request);

}  // namespace owt
