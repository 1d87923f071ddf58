// The plan: where every layer is computed, and what travels. It is printable data, made without weights or devices.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "layers/base/param.h"
#include "layers/softmax_loss.h"
#include "src/comm/communicator.h"
#include "src/net/model.h"
#include "src/plan/consistency.h"
#include "src/plan/filter_settings.h"
#include "src/plan/pipeline.h"
#include "src/plan/rounds.h"

namespace owt {

enum class Layout {
  kBatch,       // rows are split over the ranks
  kReplicated,  // every rank holds the same
  kFeature,     // columns are split over the ranks
  kPartial,     // every rank holds a summand
};
const char* name_of(Layout layout);

// When the dense weights are updated by a strategy of several rounds.
enum class DenseUpdate {
  kStep,   // once, with the gradients of all rounds: exact synchronous SGD
  kRound,  // after every round, with that round's gradient: the paper's variable batch size
};

// What a training step does with the weights of the front part, of which every rank has a copy (local SGD,
// PlanRequest::average_every).
enum class StepKind {
  kSynchronous,  // every rank updates with the sum of all gradients
  kLocal,        // every rank updates with the gradient of its own rows, so the copies diverge
  kAveraging     // a local step, after which weights and optimizer state are averaged
};

// Which part of a split dense layer's work a rank does.
enum class DenseSplit {
  kOfStrategy,  // what the strategy does: kLess under owt-d, kColumns under all others
  kColumns,     // some of the outputs, from all inputs
  kRows,        // partial sums of all outputs, from some of the inputs
  kLess,        // for each layer, whichever of kColumns and kRows sends less
};
const char* name_of(DenseSplit split);  // the value of parallel.split

// The ranks that take part in a transfer.
enum class Group {
  kWorld,     // all ranks
  kModel,     // the ranks that share one copy of the split layers
  kReplicas,  // the ranks that hold the same parts, one of each model group
};
const char* name_of(Group group);

// A transfer, as an index into Plan::transfers. The transfer's name is a label for people.
using TransferId = int;
constexpr TransferId kNoTransfer = -1;

// The transfers of a layer in the back part: its input, its output, and the gradients of both. `sums`, which any layer
// may have, adds up its sums over all rows of the step.
struct LayerTransfers {
  TransferId input = kNoTransfer, input_gradient = kNoTransfer, output = kNoTransfer, output_gradient = kNoTransfer;
  TransferId sums = kNoTransfer;
};

// The transfers that belong to no single layer.
struct StepTransfers {
  TransferId labels = kNoTransfer, logits = kNoTransfer, loss_statistics = kNoTransfer;
  TransferId gradients = kNoTransfer, gradient_copies = kNoTransfer, weights = kNoTransfer;  // for the front part
  TransferId averages = kNoTransfer;                                                         // for the front part
  TransferId dense_gradients = kNoTransfer, norms = kNoTransfer, result = kNoTransfer;
};

constexpr int kEveryPlace = -1;

struct LayerPlan {
  std::string name, type;
  Columns columns;                 // how it can be split
  Shape in, out;                   // shapes of one row, before any split
  Layout layout = Layout::kBatch;  // layout of the output
  std::vector<Slice> parts;        // kFeature: the output columns (channels of images) of each rank of a model group
  // Layers split by input features (DenseSplit): the input columns of each rank of a model group. The outputs are then
  // partial sums of the kFeature outputs.
  std::vector<Slice> inputs;
  int place = kEveryPlace;          // pipeline: the place in a model group whose stage has the layer
  bool gather_before = false;       // the input is all-gathered: kFeature -> kReplicated
  bool in_place = false;            // the output overwrites the input
  bool can_update_at_once = false;  // Layer::can_update_at_once()
  bool by_inputs() const { return !inputs.empty(); }
  // of_group: place in a model group
  bool is_at(int of_group) const { return place == kEveryPlace || place == of_group; }
  double flops_per_row = 0;            // forward pass, the whole layer
  double backward_flops_per_row = 0;   // backward pass, only gradients that are used
  bool wants_dx = false;               // the gradient of the layer's input is used: an earlier layer learns
  std::vector<Shape> params;           // full shapes, before any split
  std::vector<ParamRole> roles;        // one for each of params
  std::vector<bool> cpu_reads_copy16;  // one for each of params: Param::cpu_reads_copy16
  int64_t weight_bytes = 0;            // all parameters of the whole layer, in f32
  int64_t parameters = 0;              // elements of all parameters except running averages
  int64_t trained = 0;                 // elements of the parameters that are trained
  int64_t scratch_bytes = 0;           // Layer::scratch_bytes(), per row
  int64_t row_group = 1;               // Layer::row_group()
  std::vector<int64_t> forward_sums, backward_sums;  // Layer::step_sums() of the whole layer
  std::vector<LayerPlan> inner;                      // composite layers: the layers inside
  bool begins_branch = false;                        // first layer of a branch of a composite layer
  LayerTransfers transfers;

  bool learns() const;                                         // at least one parameter learns
  bool runs_backward() const { return wants_dx || learns(); }  // all later layers then do too
  int64_t most_elements(const Shape& param) const;  // elements of a parameter on the rank with the largest part
  int64_t weight_bytes_on_rank() const;             // all params in f32, on the rank with the largest part
  int64_t velocity_bytes_on_rank() const;           // trained params in f32, on the rank with the largest part
  int64_t inner_elements() const;                   // activation elements per row inside a composite layer
  int64_t kept_elements() const;                    // output elements per row, on the rank with the largest part
  Shape out_of(size_t place) const;                 // shape of an output row on the rank at this place
  double share() const;  // the fraction of the layer's work on the rank with the largest part
  // Layer::step_sums() on the rank at this place of its model group.
  std::vector<int64_t> step_sums(Phase phase, int place) const;
  // An output row is pixels_out() groups of columns_out() values: the channels of each pixel, or all features once.
  int64_t columns_out() const { return out[out.rank() - 1]; }
  int64_t pixels_out() const { return out.elements() / columns_out(); }
};

// Activation elements per row that a tape of these layers keeps (src/net/net.h), including those inside composites.
int64_t kept_elements(std::span<const LayerPlan> layers);

// One kind of collective in a step. A transfer with several calls (one a round) counts them all. For a central server,
// kSend stands for messages from the group's first rank to each other rank, one tensor each; kReceive stands for
// messages in the other direction.
struct Transfer {
  std::string name;  // for reports: "fc7 input"
  Collective collective;
  Group group;
  Layout from, to;
  int calls = 0;      // calls in a step that has the transfer
  int64_t bytes = 0;  // bytes sent by each rank in such a step
  // Which steps have it. 1: every step; n > 1: averaging steps, one in n; 0: synchronous steps before average_from.
  int every = 1;
  // Messages only: places in a model group. No other rank sends.
  int sender = kEveryPlace, receiver = kEveryPlace;
  std::vector<int64_t> by_place{};  // bytes by place in a model group, if they differ; `bytes` is then the largest

  bool in(StepKind kind) const {
    return every == 1 || kind == (every == 0 ? StepKind::kSynchronous : StepKind::kAveraging);
  }
  bool is_between_places() const { return sender != kEveryPlace; }
  int64_t bytes_at(int place) const {
    if (sender != kEveryPlace) return place == sender ? bytes : 0;
    return by_place.empty() ? bytes : by_place[static_cast<size_t>(place)];
  }

  int64_t whole = 0;  // bytes of the whole tensors in such a step
};

// Bytes through a rank's link in a step.
struct Traffic {
  int64_t in = 0, out = 0;
};

// Gradients that travel together: the parameters of these layers, the last layer first. Each parameter starts at a
// multiple of 8 elements, the alignment that kernels need in f32 and in bf16.
struct Bucket {
  std::vector<int64_t> layers{};
  int64_t elements = 0;  // padded, where updates are sharded, so that all shards have the same aligned size
  // Which parameters of its layers it holds. If gradients are rounded for transport, running averages have buckets of
  // their own, which are not rounded.
  bool trained = true, averages = true;

  bool holds(ParamRole role) const {
    return role == ParamRole::kAverage ? averages : role == ParamRole::kTrained && trained;
  }
};
constexpr int64_t kAlignedElements = 8;
inline int64_t aligned_elements(int64_t elements, int64_t multiple = kAlignedElements) {
  return (elements + multiple - 1) / multiple * multiple;
}

// Squares are added up in chunks of this many values (gradient_norms.h).
constexpr int64_t kSquareChunk = 1 << 14;

// A GPU updates dense layers beside the backward pass of the layers before them if they have at least this many
// parameters. With fewer, one launch for all parameters is faster.
constexpr int64_t kUpdateBesideFrom = 1 << 20;

struct PlanRequest {
  int ranks = 1;
  Strategy strategy = kDefaultStrategy;
  DenseUpdate dense_update = DenseUpdate::kStep;
  int64_t step_rows = 1;
  int64_t bucket_bytes = 8 << 20;  // a bucket is sent as soon as it holds this much
  Compute on{};                    // equal on all ranks; activations travel in its element type
  bool half_wire = false;          // bf16 transport: f32 activations and gradients travel as bf16 (comm/half_wire.h)
  LossSettings loss{};             // settings of the loss's gradient
  // The number of consecutive ranks that share one copy of the split layers, a divisor of ranks; 0: all ranks. The
  // other groups are replicas. If no dense layer is split (e.g. dp), every rank has a copy of its own, whatever the
  // value.
  int model_ranks = 0;
  // Local SGD (Stich 2019): with n > 1, each rank updates its weights of the front part (under dp, all weights) with
  // the mean gradient of its own rows. The copies are averaged in one of n steps. Post-local SGD (Lin et al. 2020):
  // steps before epoch average_from are synchronous.
  int average_every = 1;
  double average_from = 0;
  // Steps between updates of the exponential moving average of the weights (EMA); 0: no average is kept.
  int ema_every = 0;
  int optimizer_states = 1;  // tensors that the optimizer keeps per trained parameter (OptimizerSettings::states)
  // Norms that updates wait for (gradient_norms.h), as sums of squares per trained parameter. 0: none; 1: of its
  // gradient; 2: of its gradient and of its values. With norms no update starts before all gradients of the step are
  // complete.
  int norm_sums = 0;
  // kRows and kLess: a first dense layer whose rows arrive whole, in several rounds, is still split by columns.
  DenseSplit split = DenseSplit::kOfStrategy;
  int64_t beside_from = kUpdateBesideFrom;
  bool keeps_gradients = false;  // no weights are updated while their gradients are computed
  bool whole_logits = false;     // the loss sees whole rows of logits, whatever must travel for it
  // One share per rank: the rows of a step are dealt in proportion (StepRows). Empty: equal shares.
  std::vector<double> shares{};
  // One speed per rank, for predictions, relative to the measured times of the layers. Empty: all 1.
  std::vector<double> speeds{};
  PipelineRequest pipeline{};
  ConsistencyRules server{};      // used if ranks serve weights (Updates::kServers)
  FilterSettings push_filters{};  // what workers filter out of pushed gradients, or round
  // Ranks that only serve weights: the last ones, whose `shares` the plan sets to 0. 0: every rank serves and computes.
  int servers = 0;
  // Gradient accumulation: the micro-batches of a step. One at a time is in memory, and their gradients add up. At most
  // the number of rows of a rank; not available in a pipeline.
  int slices = 1;
  // GPU memory of a rank's batches, besides the images of two of them (data/batch_memory.h): per row of a full step,
  // and independent of the rows.
  int64_t batch_row_bytes = 0, batch_bytes = 0;
};

struct Plan {
  PlanRequest request;
  std::string model;
  std::vector<LayerPlan> layers;
  // The first layer of the back part: the first dense layer, or, if channels are split, the first convolution from
  // which on all weights can be split. Earlier layers work on the rank's own rows. layers.size() if nothing is split
  // (dp, one rank, no dense layer).
  int64_t boundary = 0;
  std::vector<Bucket> buckets;  // gradients of the front, summed over front_group(), in the order of completion
  // The shards of the back part, summed over their replicas; sized for the largest shard.
  std::vector<Bucket> back_buckets;
  std::vector<Transfer> transfers;  // transfers of a full step, in the model group with the most rows
  StepTransfers of_step;
  bool sharded_loss = false;  // the loss sees this rank's columns of the logits, which are not gathered
  int model_ranks = 1;        // ranks that share one copy of the split layers; 1 if nothing is split
  std::vector<Slice> stages;  // pipeline: the layers of each place of a model group
  int micro_batches = 1;

  LayerPlan& layer(int64_t i) { return layers[static_cast<size_t>(i)]; }
  const LayerPlan& layer(int64_t i) const { return layers[static_cast<size_t>(i)]; }
  const Transfer& transfer(TransferId id) const { return transfers[static_cast<size_t>(id)]; }

  int ranks() const { return request.ranks; }
  int replicas() const { return ranks() / model_ranks; }
  int ranks_of(Group group) const;
  bool are_together(int rank, int other, Group group) const;  // whether both are in the same group of that kind
  StepRows rows(int64_t step_rows) const {
    return {rounds_strategy(),    ranks(),        step_rows,
            model_ranks,          request.shares, micro_batches_in(step_rows),
            slices_in(step_rows), row_group(0),   row_group(boundary)};
  }
  int slices_in(int64_t step_rows) const;  // micro-batches of a step; smaller steps have fewer of about the same size
  // The number of rows that the layers from this one on process together. Ranks get whole groups of all layers' size;
  // rounds get whole groups of the back part's size.
  int64_t row_group(int64_t first_layer) const;
  bool in_stages() const { return !stages.empty(); }
  // Micro-batches of a step. If each is a mini-batch with an update of its own, smaller steps have fewer micro-batches
  // of the same size.
  int micro_batches_in(int64_t step_rows) const;
  // Places of a model group whose ranks do different things.
  int places() const { return in_stages() ? model_ranks : 1; }
  int place_of(int rank) const { return rank % model_ranks; }
  // The layers of the back part that the rank at this place has, whole or as shards.
  Slice layers_behind(int place) const;
  bool is_at(const Bucket& bucket, int place) const { return layer(bucket.layers.back()).is_at(place); }
  bool has_loss(int place) const { return !in_stages() || place + 1 == model_ranks; }
  // The number of rounds whose activations are kept at the same time.
  int tapes(int place) const;
  // The rows that rank 0 processes in a layer in a step of `step_rows`. total: of all micro-batches and rounds.
  // at_once: of the largest one, since only one at a time is in memory.
  struct LayerRows {
    int64_t total = 0, at_once = 0;
  };
  LayerRows layer_rows(int64_t layer, int64_t step_rows) const;
  // Whether a layer of the front part learns, so that gradients must return to it.
  bool front_learns() const { return boundary > 0 && layer(boundary - 1).runs_backward(); }
  // Whether the gradient of the input of this place's back part is used.
  bool wants_input_gradient(int place) const {
    const Slice here = layers_behind(place);
    return here.size() > 0 && layer(here.begin).wants_dx;
  }
  bool split() const { return boundary < static_cast<int64_t>(layers.size()); }
  // The strategy whose rounds are used: dp if nothing is split but rows are, else the strategy asked for.
  Strategy rounds_strategy() const;
  Layout front_layout() const;  // layout of the activations in the front part
  // The ranks that update the replicated weights. A single rank updates all of them.
  Updates updates() const { return ranks() > 1 ? facts_of(request.strategy).updates : Updates::kAll; }
  // Whether updates are sharded: each rank updates a shard, which may be empty (sharded_update.h).
  bool shares_update() const { return updates() != Updates::kAll; }
  bool serves() const { return updates() == Updates::kServers; }
  bool has_servers_apart() const { return serves() && request.servers > 0; }
  int computing_ranks() const { return has_servers_apart() ? ranks() - request.servers : ranks(); }
  bool computes(int rank) const { return rank < computing_ranks(); }
  // The workers that training can continue without. If servers are ranks of their own, these are all workers except
  // rank 0, which writes files and watches the others.
  std::vector<int> dispensable_workers() const;
  // The number of ranks that have shards of the update: the last ones, if the shards are equal.
  int updating_ranks() const { return has_servers_apart() ? request.servers : ranks(); }
  bool updates_share(int rank) const { return rank >= ranks() - updating_ranks(); }
  // The elements of a bucket in a rank's shard, if the shards are equal.
  Slice even_share(const Bucket& bucket, int rank) const;
  bool shares_evenly() const { return updates() == Updates::kShares || serves(); }
  // The number of steps after which a rank receives the others' results; other ranks may be this many steps behind
  // (parameter_server.h).
  int64_t steps_apart() const;
  // averages(): the copies of the front part's weights differ between averages. synchronizes(): the run has synchronous
  // steps.
  bool averages() const { return request.average_every > 1 && ranks() > 1 && front_learns(); }
  bool has_norms() const { return request.norm_sums > 0; }
  bool synchronizes() const { return !averages() || request.average_from > 0; }
  // The kind of a step with this number (from 0), not considering average_from: one of average_every steps averages.
  StepKind kind_of(int64_t step) const;
  int local_period() const { return averages() ? request.average_every : 1; }
  int period() const;         // steps after which the kinds of step repeat
  Group front_group() const;  // the group that sums the gradients of the front
  // The ranks that share the rows of a step in a layer, each with different rows.
  Group rows_group(int64_t layer) const { return layer < boundary ? front_group() : Group::kReplicas; }
  // The ranks of a model group may compute the front's gradients from the same rows. The results differ in the last
  // bits if their hosts differ (processor, threads, algorithms), and copies of the weights would drift apart. All ranks
  // therefore use the gradients of the group's first rank.
  bool copies_gradients() const { return front_layout() == Layout::kReplicated; }
  // Whether the gradients of a layer's parameters are sums over ranks, micro-batches or rounds, or come from another
  // rank.
  bool sums_gradients(int64_t layer) const;
  // Whether a layer's first parameter is updated while its gradient is computed, so that the gradient is not stored.
  // Only on the CPU, and only if the gradient is not such a sum. With large weights and small batches this saves most
  // of the time of both.
  bool updates_at_once(int64_t layer) const;
  // The type of a parameter's gradient. In precision bf16, weights of matrix products have bf16 gradients if these are
  // not such sums; all others are f32.
  DType gradient_type(int64_t layer, size_t param) const;
  bool has_copy16(int64_t layer, size_t param) const;  // Param::has_copy16()
  bool has_copies16(const Bucket& bucket) const;       // whether one of its parameters has a bf16 copy
  Layout loss_layout() const;  // layout of the logits that the loss sees: kBatch, kReplicated or kFeature
  // Each rank computes the gradient of its logits from them alone. Backward begins while the other ranks' statistics
  // travel, and the loss of whole rows is computed after it.
  bool loss_follows() const { return sharded_loss && request.loss.type == LossType::kLogistic; }
  bool counts_rows(int rank) const;  // among ranks whose loss sees the same rows, one counts them
  // The layout of the gradient of the input of the layers [first, next gather). A column-split layer gives partial
  // sums.
  Layout gradient_layout(int64_t first) const;
  // The layers of the back part run in stages between transfers of features, or between ranks. begins_stage(): whether
  // this is the first layer of a stage. input_of(): the shape of an input row of that layer on the rank at this place
  // of its model group.
  bool begins_stage(int64_t layer) const;
  Shape input_of(int64_t layer, size_t place) const;
  std::vector<int64_t> round_rows(const StepRows& step) const;  // rows of every round, over all replicas
  // Bytes of one gradient element in transport.
  int64_t gradient_size() const { return request.half_wire && ranks() > 1 ? 2 : 4; }
  // Whether transport changes the values of gradients. Running averages must stay exact, so they have their own
  // buckets.
  bool rounds_gradients() const { return gradient_size() != 4 || filters_pushes(); }
  bool filters_pushes() const { return serves() && request.push_filters.any(); }
  int64_t wire_bytes(const Bucket& bucket) const;  // bytes of the whole bucket; with filters, the usual number
  int64_t trained_tensors(const Bucket& bucket) const;
  int64_t averaged_elements(const Bucket& bucket) const;  // its values, and the optimizer state if there is any
  int64_t bytes_in(StepKind kind) const;                  // bytes sent by each rank, or the mean over all ranks
  // What the communicator of the rank counts.
  int64_t bytes_in(StepKind kind, int rank) const { return traffic(kind, rank).out; }
  // The traffic of this rank in a step of that kind. Its model group may have fewer rows than another. A broadcast and
  // a reduce count as their mean, as in bytes_sent().
  Traffic traffic(StepKind kind, int rank) const;
  int64_t busiest_link(StepKind kind) const;  // the most bytes in one direction of any rank's link
  int64_t bytes_per_step() const;             // bytes_in(), averaged over the steps from average_from on
  int64_t busiest_link() const;               // averaged in the same way
  std::string sent_text(int digits) const;  // sent by a rank per step: "1.25 MB"; "0.08 MB (mean; the busiest 0.12 MB)"
  // Bytes of the weights of a rank at this place of its model group, or of the rank with the most. Places differ only
  // in a pipeline.
  int64_t weight_bytes_per_rank(int place = kEveryPlace) const;
  int64_t velocity_bytes_per_rank(int place = kEveryPlace) const;  // optimizer momentum, if updates are not sharded
  int64_t gradient_bytes_per_rank(int place = kEveryPlace) const;
  int64_t copy16_bytes_per_rank(int place = kEveryPlace) const;  // bf16 copies of weights
  int64_t weight_copy_bytes(int place) const;  // one stash of a stage's weights (Action::Kind::kCopyWeights)
  int64_t trained_params() const;              // trained parameter tensors of all layers
  int64_t most_step_sums() const;              // the most sums in one call of any layer
  int64_t norm_chunks() const;                 // on the rank with the most
  int64_t norm_bytes() const;                  // memory of gradient_norms.h on every rank
  std::string boundary_name() const;           // name of the first layer of the back part

  // "frozen: conv1, conv2; 0.20 M of 1.30 M parameters learn"; empty: no layer is frozen.
  std::string frozen_text() const;
  std::string table() const;  // printed by `owt plan`

 private:
  // The sum of a quantity over the layers at a place of a model group, or the largest sum of all places.
  int64_t at_place(int place, const std::function<int64_t(int64_t, const LayerPlan&)>& of_layer) const;
};

// The bytes that a rank sends in a step, as MB with this many digits: the mean, and the busiest link if it differs.
std::string sent_text(int64_t mean, int64_t busiest, int digits);

// The shape of a row with another number of columns (channels of an image, or features).
Shape with_columns(const Shape& row, int64_t columns);

// Throws Error if the strategy cannot split the model, or if the ranks cannot be divided into groups.
Plan make_plan(const Model& model, const PlanRequest& request);

}  // namespace owt
