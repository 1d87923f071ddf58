// One training step, or one evaluation pass, on one rank: runs the actions of src/plan/order.cpp.
//
// A step is started, and its result is requested later. On a GPU the host only queues the work, so it can prepare the
// next step at the same time. On the CPU start() returns when the step is done.
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
#include "src/parallel/optimizer.h"
#include "src/parallel/rank_loss.h"
#include "src/parallel/rank_sums.h"
#include "src/parallel/seam.h"
#include "src/parallel/stage_links.h"
#include "src/parallel/step_labels.h"
#include "src/parallel/step_recorder.h"
#include "src/parallel/weight_average.h"
#include "src/parallel/weight_copies.h"
#include "src/parallel/weight_ema.h"
#include "src/parallel/weight_sync.h"
#include "src/plan/groups.h"
#include "src/plan/order.h"
#include "src/plan/rank_model.h"
#include "src/plan/rounds.h"
#include "src/plan/step_result.h"

namespace owt {

// A loss or weights that are not finite. The message has the step, the layer and what to change.
class Diverged : public Error {
 public:
  using Error::Error;
};

class Step {
 public:
  struct Rates {
    double front = 0, back = 0;  // learning rates of the front part and the back part, including the schedule
    double front_biases = front, back_biases = back;  // learning rates of biases
    double sgd_share = 1;                             // OptimizerSettings::sgd_share()
    double kept = 1;  // decay of the weights' moving averages (EmaSettings::kept()); 1: the averages do not change
  };
  // logits: of the rows with these indexes in the step, valid for work queued on the stream during the call.
  using LogitsReceiver = std::function<void(const Tensor& logits, std::span<const int64_t> rows, const Stream& stream)>;
  using MakeServed = std::function<std::unique_ptr<WeightSync>(
      const Plan& plan, const WeightSync::LayerOf& layer_of, Communicator& comm, Optimizer& optimizer, uint64_t seed)>;
  struct Options {
    uint64_t seed = 0;
    NormSettings norms = {};          // used if the plan has norms
    bool graphs = true;               // record steps as CUDA graphs, if the device and the communicator can
    bool record_collectives = false;  // also if the communicator only could; see Communicator::could_record()
    // Called for each round of an evaluation while it is queued, on the ranks that count its rows. Over all ranks and
    // rounds every row of the step is passed once. Requires a plan with whole_logits, and disables recording.
    LogitsReceiver logits = {};
    std::string weights = {};  // evaluation: the file of the weights; empty: training
    // false: a step does not update the weights, and leaves the gradients in the parameters for the caller
    bool updates = true;
    MakeServed make_served = {};  // required if servers update the weights
    // For the error if the memory does not suffice: what would fit into this much.
    std::function<std::string(const Plan& plan, int64_t memory_bytes, int64_t step_rows)> what_fits = {};
  };

  // All arguments but profiler must outlive this; profiler may be null. Allocates the memory of the model's parameters.
  // A communicator that moves nothing may have the number of another rank in each step (gradient_pool.h).
  Step(const Plan& plan, RankModel& model, Optimizer& optimizer, Communicator& comm, Profiler* profiler,
       const Options& options);

  // Prepares steps of `step_rows` rows; otherwise the first such step does it. Collective. Throws OutOfMemory with the
  // number of rows that would fit.
  void prepare(int64_t step_rows, Mode mode = Mode::kTrain);

  // The stream on which batches must be ready: pass it to BatchSource::next().
  const Stream& stream() const { return stream_; }
  bool records() const;  // whether steps are recorded as graphs
  // The image layout that the first layer prefers for a step of `step_rows` rows; nullopt: plain. Requires
  // prepare(step_rows).
  std::optional<ImageLayout> wanted_images(int64_t step_rows) const;
  // Makes the source use these layouts for steps that are prepared. This object must outlive the use of the source.
  void feed_from(BatchSource& batches) const;
  // The number of steps that may be started before the first result is requested.
  int most_in_flight() const { return static_cast<int>(slots_.size()); }

  // Starts global step number `step` on this rank's rows. stop: this rank asks the run to stop; the result is true if
  // any rank asks. kind: the same on all ranks; nullopt: kind_of(plan, step).
  void start_training(const Batch& batch, int64_t step, const Rates& rates, bool stop,
                      std::optional<StepKind> kind = {});
  void start_evaluation(const Batch& batch);
  // Waits for the oldest unfinished step and returns its result, over all rows of the step and equal on every rank. If
  // the loss is not finite, throws Error on all ranks with the step and the first layer with a bad value; the weights
  // are then unusable.
  StepResult finish();

  // Start and finish in one call.
  StepResult train(const Batch& batch, int64_t step, const Rates& rates, bool stop, std::optional<StepKind> kind = {});
  // Takes the weights of servers, after which every gradient is in them; nothing without servers. No step may be under
  // way on any rank.
  void settle();
  // Averages the weights if local steps have left them different on the ranks. No step may be under way on any rank.
  void average();
  // Collective, after settle(): servers take weights that the caller has changed in the same way on all ranks.
  void take_changed_weights() { front_sync_->take_values(); }
  StepResult evaluate(const Batch& batch);

  // If servers are separate ranks and the loss of workers is tolerated: the workers that all ranks must continue
  // without (WeightSync::meet). No step may be under way on any rank.
  std::vector<int> meet() { return front_sync_->meet(); }
  // After workers were lost, this is the step of the remaining ranks: takes weights and update counts of `before`. Call
  // before the first step; collective.
  void take(Step& before);

  const Groups& groups() const { return groups_; }
  WeightEma* ema() { return ema_ ? &*ema_ : nullptr; }  // null: no averages are kept (PlanRequest::ema_every)
  // The elements of this parameter whose optimizer state this rank keeps: all, unless updates are sharded.
  Slice updated(const Param& param) const;
  // The number of updates of the front part's and the back part's parameters, equal on all ranks. A resumed run takes
  // it from its checkpoint, since the optimizer depends on it.
  struct Updates {
    int64_t front = 0, back = 0;
  };
  const Updates& updates() const { return updates_; }
  void go_on_after(const Updates& updates);

 private:
  // Values that the host sends to the device at the start of a step, and reads back at its end.
  struct Block {
    int64_t step;
    StepRates front, back;
    double share;  // weight of this rank in the average of the weights
    double kept;   // Rates::kept
    double gradient_norm;
    ResultSums sums;
    int32_t bad_layer;  // the first layer in the plan with a value that is not finite
  };
  struct Slot {
    Tensor host;  // a Block that the device can copy from and to
    Event done;
    Tensor images;  // the batch's images, to recompute activations that forward has dropped
    Pass pass;
    StepKind kind;
    bool averages;  // the moving averages of the weights are updated in this step
    Block& block() { return *reinterpret_cast<Block*>(host.raw()); }
    const Block& block() const { return *reinterpret_cast<const Block*>(host.raw()); }
  };
  struct Dense {  // the back part, for one number of rows
    Dense(Step& step, int64_t rows, const Dense* lender);
    DenseTape tape;
    std::optional<RankLoss> loss;  // unset in all stages of a pipeline but the last
  };
  struct RowIndexes {  // row indexes in the step, on the host and, for kernels, on the device
    std::vector<int64_t> host;
    Tensor device;
    void give_to(Pass& pass) const;
  };
  struct SliceOfStep {              // one micro-batch (StepRows::slice)
    Slice mine{};                   // relative to this rank's rows of the step
    std::shared_ptr<Tape> front{};  // shared by micro-batches with the same number of rows
    std::shared_ptr<Seam> seam{};   // shared by micro-batches with the same rows on all ranks; null if nothing is split
    std::shared_ptr<StepLabels> labels{};  // shared likewise; null if labels do not travel
    RowIndexes front_rows{};               // row indexes of this rank
    std::vector<RowIndexes> dense_rows{};  // row indexes of every round
    std::vector<int64_t> round_rows{};     // rows of every round, over all replicas
    Tensor aligned_images{};               // copies that kernels can read, if the batch's images are not aligned
  };
  struct Bound {  // everything that depends on the number of rows of a step
    Bound(Step& step, int64_t step_rows);
    std::map<StepKind, std::vector<Action>> training;
    std::vector<Action> evaluation;
    std::vector<SliceOfStep> slices;
    std::optional<StageLinks> links;  // pipelines only
    int64_t own_rows;                 // rows of this rank
    bool learns = false;              // prepared for backward
  };
  // The state of the step that is being queued.
  struct Running {
    const Batch& batch;
    const Slot& slot;
    Bound& bound;
    SliceOfStep* slice;  // the current micro-batch
    bool learns;
    Pass front_pass, dense_pass;
    Tensor images;                       // images of the rank's rows of the micro-batch
    Tensor dense_batch, dense_gradient;  // the round's dense input, and the memory for its gradient
    Tensor labels;                       // labels of the round, or of the rank's own rows of the micro-batch
    Tensor gradient;                     // gradient of the front part's output
    bool beside;                         // some action runs on the second stream
  };
  // Functions that start and wait for a transfer of the plan.
  struct Move {
    std::function<void(const Action&action, Running&now, const Stream&stream)> start, wait;
  };

  void start(const Batch& batch, Pass pass, StepKind kind, const Rates& rates, bool stop);
  void count_rows(int64_t step_rows, StepKind kind);
  double take_share();  // weight of this rank in the average, by the rows counted since the last average
  void queue(const Batch& batch, const Pass& pass, const Slot& slot);
  void queue_all(const Batch& batch, const Pass& pass, Slot& slot);
  void begin_slice(int slice, Running& now);
  Tensor images_of(SliceOfStep& slice, const Tensor& of_batch) const;
  void run(const Action& action, Running& now);
  void forward(int64_t layer, int round, Running& now);
  void begin_sums(int64_t layer, Phase phase, const Running& now);
  void loss(const Action& action, Running& now);
  void start_result(const Running& now, const Stream& stream);
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

  std::unique_ptr<WeightSync> make_front();
  bool wants_copies(Mode mode) const;
  void make_copies();
  Bound& bound(int64_t step_rows);
  const Bound* made(int64_t step_rows) const;  // null: not bound yet
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
  int updates_before(int round, const Running& now) const;  // number of updates before this round of the step
  Optimizer::Rates rates_of(const Action& action, const Running& now) const;
  void count_updates(const Bound& bound);
  [[noreturn]] void report_out_of_memory(const OutOfMemory& e, int64_t step_rows) const;
  bool forgets(const Pass& pass) const { return pass.mode == Mode::kEval && stream_.device() == Device::kCpu; }
  int32_t bad_layer(Slot& slot);  // for the oldest step, whose loss is not finite
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
  int place_;                                            // the rank's place in its model group
  std::unique_ptr<WeightSync> front_sync_, dense_sync_;  // for the front part and the back part
  std::optional<WeightAverage> average_;                 // averages the front part, under local SGD
  std::optional<WeightCopies> copies_;                   // weight stashes of a pipeline stage
  std::optional<WeightEma> ema_;                         // averages of all weights on this rank
  std::optional<GradientNorms> norms_;                   // norms that updates wait for
  // Sums over all rows of a step, in the front part and the back part.
  std::optional<RankSums> front_sums_, dense_sums_;
  int64_t own_rows_ = 0, all_rows_ = 0;     // rows of local steps since the last average: of this rank, of all ranks
  Stream beside_;                           // for actions that others need not wait for
  std::vector<Move> moves_;                 // index: TransferId
  Tensor block_;                            // a Block on the device
  Tensor sums_, bad_layer_, share_, kept_;  // parts of block_
  Tensor others_sums_;                      // receives the sums of rows that another rank counts
  Event result_shared_, norms_shared_;
  std::vector<Slot> slots_;      // used in rotation
  std::deque<Slot*> in_flight_;  // oldest first
  size_t next_slot_ = 0;
  Updates updates_;                                 // including the latest step that was started
  std::map<std::pair<int64_t, int>, Bound> bound_;  // key: rows of a step, and the rank whose part is computed
  // A tape of fewer rows uses the memory of the largest tape made before it.
  std::map<int64_t, std::shared_ptr<Tape>> front_;  // the front part; key: rows
  // [tape index][rows]; the tape index is the round (micro-batch) modulo the number of tapes
  std::map<int, std::map<int64_t, Dense>> dense_;
  StepRecorder recorder_;
};

}  // namespace owt
