// One training step, and the same pass for evaluation, on one rank: runs the actions that src/parallel/order.cpp lists.
//
// A step is started and its result asked for later: on a GPU the host only queues the work, so that it can prepare the
// next step meanwhile. On the CPU a step is over when start() returns.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "src/core/memory.h"
#include "src/parallel/dense_tape.h"
#include "src/parallel/gradient_norms.h"
#include "src/parallel/groups.h"
#include "src/parallel/order.h"
#include "src/parallel/parameter_server.h"
#include "src/parallel/rank_loss.h"
#include "src/parallel/rank_model.h"
#include "src/parallel/rank_sums.h"
#include "src/parallel/seam.h"
#include "src/parallel/stage_links.h"
#include "src/parallel/step_labels.h"
#include "src/parallel/step_result.h"
#include "src/parallel/weight_average.h"
#include "src/parallel/weight_sync.h"
#include "src/train/optimizer.h"
#include "src/train/step_recorder.h"
#include "src/train/weight_copies.h"
#include "src/train/weight_ema.h"

namespace owt {

// Values that are not finite: the loss, or weights. It names the step and the layer, and what to change.
class Diverged : public Error {
 public:
  using Error::Error;
};

class Step {
 public:
  struct Rates {
    double front = 0, back = 0;  // learning rates before and behind the boundary, schedule included
    double front_biases = front, back_biases = back;  // those of biases
    double sgd_share = 1;                             // OptimizerSettings::sgd_share()
    double kept = 1;  // of the exponential averages of the weights (EmaSettings::kept()); 1: they stay what they are
  };
  // The logits of the rows with these indexes in the step; valid for work queued on the stream in this call.
  using LogitsReceiver = std::function<void(const Tensor& logits, std::span<const int64_t> rows, const Stream& stream)>;
  struct Options {
    uint64_t seed = 0;
    NormSettings norms = {};          // where the plan has norms
    bool graphs = true;               // record steps as CUDA graphs, where the device and the communicator can
    bool record_collectives = false;  // and where the communicator could; see Communicator::could_record()
    // Called while an evaluation is queued, for each round, on the ranks that count its rows, so that over all ranks
    // and rounds every row of the step comes once. Wants a plan with whole_logits; nothing is recorded then.
    LogitsReceiver logits = {};
    std::string weights = {};  // the file they come from, where it is evaluated; empty: they are being trained
    bool updates = true;       // false: a step leaves the weights, and its gradients in the parameters, for the caller
  };

  // All but profiler must outlive this; profiler may be null. The model's parameters get their memory here. A
  // communicator that moves nothing may be another rank's from one step to the next (gradient_pool.h).
  Step(const Plan& plan, RankModel& model, Optimizer& optimizer, Communicator& comm, Profiler* profiler,
       const Options& options);

  // Makes what steps of so many rows need, which the first of them does otherwise: on all ranks at the same time.
  // Throws OutOfMemory with the number of rows that would fit.
  void prepare(int64_t step_rows, Mode mode = Mode::kTrain);

  // Where batches are to be ready: pass it to BatchSource::next().
  const Stream& stream() const { return stream_; }
  bool records() const;  // steps into graphs
  // How the first layer of a step of so many rows, which must have been prepared, likes its images best; none: plain.
  std::optional<ImageLayout> wanted_images(int64_t step_rows) const;
  // Lets the source make them so from now on, for steps that are prepared. This must live as long as the source is
  // used.
  void feed_from(BatchSource& batches) const;
  // Steps that may be started before the first result is asked for.
  int most_in_flight() const { return static_cast<int>(slots_.size()); }

  // Starts global step number `step` on this rank's rows. stop: this rank wishes the run to stop; any rank's wish comes
  // back in the result. kind: the same on all ranks; none: Plan::kind_of(step).
  void start_training(const Batch& batch, int64_t step, const Rates& rates, bool stop,
                      std::optional<StepKind> kind = {});
  void start_evaluation(const Batch& batch);
  // Waits for the oldest step whose result was not asked for, and returns that: over all rows of the step, the same on
  // every rank. Throws Error on all ranks, naming the step and the first layer with a bad value, when the loss is not
  // finite; the weights are spoilt then.
  StepResult finish();

  // Start and finish in one.
  StepResult train(const Batch& batch, int64_t step, const Rates& rates, bool stop, std::optional<StepKind> kind = {});
  // Makes the weights alike on all ranks where the last steps have left them different: averages them, or takes what
  // servers have. No step is under way, on any rank.
  void settle();
  // Collective, behind settle(): the weights were changed from outside, the same on all ranks, and servers take them.
  void take_changed_weights();
  StepResult evaluate(const Batch& batch);

  // Where servers are apart and the loss of workers is tolerated: those that all ranks go without from here on
  // (ParameterServer::meet). No step is under way, on any rank.
  std::vector<int> meet() { return server_->meet(); }
  // What `before` has learnt, where it went on without workers that were lost, and this is of those that are left:
  // weights and updates. Before the first step; collective.
  void take(Step& before);

  const Groups& groups() const { return groups_; }
  WeightEma* ema() { return ema_ ? &*ema_ : nullptr; }  // null: none are kept (PlanRequest::ema_every)
  // The elements of this parameter whose states this rank keeps: all, but for a share of the update.
  Slice updated(const Param& param) const;
  // Updates that the parameters before and behind the boundary have had; the same on all ranks. A run that goes on from
  // a checkpoint says it: what the optimizer does depends on it.
  struct Updates {
    int64_t front = 0, back = 0;
  };
  const Updates& updates() const { return updates_; }
  void go_on_after(const Updates& updates);

 private:
  // What the host tells the device at the start of a step, and hears at its end.
  struct Block {
    int64_t step;
    StepRates front, back;
    double share;  // of this rank in the average of the weights
    double kept;   // Rates::kept
    double gradient_norm;
    double sums[kStepSums];
    int32_t bad_layer;  // the first in the plan with a value that is not finite
  };
  struct Slot {
    Tensor host;  // a Block the device can copy from and to
    Event done;
    Tensor images;  // of the batch, for what forward has forgotten of them
    Pass pass;
    StepKind kind;
    bool averages;  // over time, which take in the weights in this step
    Block& block() { return *reinterpret_cast<Block*>(host.raw()); }
    const Block& block() const { return *reinterpret_cast<const Block*>(host.raw()); }
  };
  struct Dense {  // behind the boundary, for one number of rows
    Dense(Step& step, int64_t rows, const Dense* lender);
    DenseTape tape;
    std::optional<RankLoss> loss;  // not in the stages of a pipeline before the last one
  };
  struct RowIndexes {  // indexes in the step, on the host and, for kernels, on the device
    std::vector<int64_t> host;
    Tensor device;
    void give_to(Pass& pass) const;
  };
  struct SliceOfStep {                     // of the rows of every rank (StepRows)
    Slice mine{};                          // among those that this rank has of the step
    std::shared_ptr<Tape> front{};         // of slices with as many of them
    std::shared_ptr<Seam> seam{};          // of slices alike; null where nothing is split
    std::shared_ptr<StepLabels> labels{};  // the same, where they travel
    RowIndexes front_rows{};               // of this rank
    std::vector<RowIndexes> dense_rows{};  // of every round
    std::vector<int64_t> round_rows{};     // of every round, over all replicas
    Tensor aligned_images{};               // as kernels want them, where those of the batch are not
  };
  struct Bound {  // everything that depends on the number of rows of a step
    Bound(Step& step, int64_t step_rows);
    std::map<StepKind, std::vector<Action>> training;
    std::vector<Action> evaluation;
    std::vector<SliceOfStep> slices;
    std::optional<StageLinks> links;  // of a pipeline
    int64_t own_rows;                 // of this rank
    bool learns = false;              // prepared for backward
  };
  // What the step that is being queued has come to.
  struct Running {
    const Batch& batch;
    const Slot& slot;
    Bound& bound;
    SliceOfStep* slice;  // whose turn it is
    bool learns;
    Pass front_pass, dense_pass;
    Tensor images;                       // of the rank's rows of the slice
    Tensor dense_batch, dense_gradient;  // of the round: the dense layers' input, and where its gradient goes
    Tensor labels;                       // of the round, or of the rank's own rows of the slice
    Tensor gradient;                     // at the front's output
    bool beside;                         // something runs beside
  };
  // How a transfer of the plan is done here.
  struct Move {
    std::function<void(const Action&action, Running&now, const Stream&stream)> start, wait;
  };

  void start(const Batch& batch, Pass pass, StepKind kind, const Rates& rates, bool stop);
  void count_rows(int64_t step_rows, StepKind kind);
  double take_share();  // of this rank in the average, by the rows counted since the last one
  void queue(const Batch& batch, const Pass& pass, const Slot& slot);
  void queue_all(const Batch& batch, const Pass& pass, Slot& slot);
  void begin_slice(int slice, Running& now);
  Tensor images_of(SliceOfStep& slice, const Tensor& of_batch) const;
  void run(const Action& action, Running& now);
  void forward(int64_t layer, int round, Running& now);
  void begin_sums(int64_t layer, Phase phase, const Running& now);
  void loss(const Action& action, Running& now);
  void tell_servers(const Running& now);
  void take_gradient_of_loss(int round, bool prepares, Running& now);
  void backward_data(int64_t layer, int round, Running& now);
  void backward_weights(const Action& action, Running& now);
  int64_t rows_behind(const Action& action, const Running& now) const;
  double gradient_scale(const Action& action, const Running& now) const;
  void update(const Action& action, Running& now);
  void copy_weights(const Action& action);
  void average_weights(const Running& now);
  void find_norms(const Action& action, const Running& now);
  void transfer(const Action& action, Running& now);
  std::vector<Move> moves();
  void add_moves_of_gradients(std::vector<Move>& moves);
  void add_moves_of_rounds(std::vector<Move>& moves);
  void add_moves_of_stages(std::vector<Move>& moves);

  void serve();
  bool wants_copies(Mode mode) const;
  void make_copies();
  Bound& bound(int64_t step_rows);
  const Bound* made(int64_t step_rows) const;  // null: it has not been asked for
  SliceOfStep slice_of(const StepRows& rows);
  void prepare(Bound& bound, bool backward);
  std::shared_ptr<Tape> front(int64_t rows);
  Dense& dense(int64_t rows, int tape);
  Dense& dense_of(int round, const SliceOfStep& slice);
  Dense& dense_of(int round, const Running& now) { return dense_of(round, *now.slice); }
  RowIndexes rows(std::vector<int64_t> indexes) const;
  void begin_round(int round, Running& now);
  void begin_micro_batch(int batch, Running& now);
  void begin_backward(int round, Running& now);
  void begin_backward_of_stage(int batch, Running& now);
  const Tensor& logits(int round, Running& now);
  Tensor& my_sums();
  bool alone() const { return comm_.ranks() == 1; }
  LossFollowUp after_loss(const Running& now, const Dense& dense) const;
  void hand_out(const Tensor& logits, const RowIndexes& rows) const;
  const Stream& stream_of(const Action& action) const;
  void leave(const Slice& layers);
  TakeGradient leave_in_pieces(Param& weight);
  void update(const Slice& layers, const Optimizer::Rates& rates, double gradient_scale, const Stream& stream);
  void update(std::span<Param* const> params, const std::string& name, const Optimizer::Rates& rates,
              double gradient_scale, const Stream& stream);
  int updates_before(int round, const Running& now) const;  // in the step
  Optimizer::Rates rates_of(const Action& action, const Running& now) const;
  void count_updates(const Bound& bound);
  [[noreturn]] void report_out_of_memory(const OutOfMemory& e, int64_t step_rows) const;
  bool forgets(const Pass& pass) const { return pass.mode == Mode::kEval && stream_.device() == Device::kCpu; }
  int32_t bad_layer(Slot& slot);  // of an oldest step whose loss is not finite
  [[noreturn]] void report_bad_loss(const StepResult& result, const Pass& pass, int32_t bad_layer);
  static Tensor part_of(const Tensor& block, size_t offset, DType dtype, int64_t elements);
  Tensor block_part(size_t offset, DType dtype, int64_t elements) const {
    return part_of(block_, offset, dtype, elements);
  }

  const Plan& plan_;
  RankModel& model_;
  Optimizer& optimizer_;
  Communicator& comm_;
  Profiler* profiler_;
  Options options_;
  Stream stream_;
  Groups groups_;
  int place_;                                            // of this rank in its model group
  std::unique_ptr<WeightSync> front_sync_, dense_sync_;  // of the layers before and behind the boundary
  ParameterServer* server_ = nullptr;                    // the former of them, where ranks serve weights
  std::optional<WeightAverage> average_;                 // of those before it, under local SGD
  std::optional<WeightCopies> copies_;                   // of a stage that runs with others than the newest weights
  std::optional<WeightEma> ema_;                         // of all weights here
  std::optional<GradientNorms> norms_;                   // that updates wait for
  std::optional<RankSums> front_sums_, dense_sums_;      // over all rows of a step, before and behind the boundary
  int64_t own_rows_ = 0, all_rows_ = 0;                  // of local steps since the last average: here, on all ranks
  Stream beside_;                                        // of actions that others need not wait for
  std::vector<Move> moves_;                              // by transfer of the plan
  Tensor block_;                                         // on the device
  Tensor sums_, bad_layer_, share_, kept_;               // parts of it
  Tensor others_sums_;                                   // where ranks that see rows another rank counts add theirs
  Event result_shared_, norms_shared_;
  std::vector<Slot> slots_;      // in turn
  std::deque<Slot*> in_flight_;  // oldest first
  size_t next_slot_ = 0;
  Updates updates_;                                 // up to the newest step that was started
  std::map<std::pair<int64_t, int>, Bound> bound_;  // by the rows of a step, and whose part of them it computes
  // Those of fewer rows have the memory of the largest one made before them.
  std::map<int64_t, std::shared_ptr<Tape>> front_;  // before the boundary, by rows
  std::map<int, std::map<int64_t, Dense>> dense_;   // by which of those under way, and rows
  StepRecorder recorder_;
};

}  // namespace owt
