// One training step, or one evaluation pass, on one rank: runs the actions of its schedule (src/plan/order.h).
//
// A step is started, and its result is requested later. On a GPU the host only queues the work, so it can prepare the
// next step at the same time. On the CPU start() returns when the step is done.
//
// A batch comes through Step, which has the steps that are under way, and StepRunner, which runs the actions, to the
// tapes. StepProgram has what depends on the number of rows of a step, StepWeights what happens to weights.
#pragma once

#include <optional>
#include <vector>

#include "data/batch.h"
#include "src/core/memory.h"
#include "src/parallel/step_program.h"
#include "src/parallel/step_recorder.h"
#include "src/parallel/step_runner.h"
#include "src/parallel/step_weights.h"
#include "src/plan/beside_trial.h"
#include "src/plan/groups.h"
#include "src/plan/rank_model.h"
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
  using Options = StepOptions;

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
  // Whether full training steps are being timed to choose their order (StepOptions::choose_beside).
  bool chooses() const { return trial_ && !trial_->over(); }
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
  StepResult evaluate(const Batch& batch);

  // Takes the weights of servers, after which every gradient is in them; nothing without servers. No step may be under
  // way on any rank.
  void settle();
  // Averages the weights if local steps have left them different on the ranks. No step may be under way on any rank.
  void average();
  // Collective, after settle(): servers take weights that the caller has changed in the same way on all ranks.
  void take_changed_weights() { weights_.front().take_values(); }

  // If servers are separate ranks and the loss of workers is tolerated: the workers that all ranks must continue
  // without (WeightSync::meet). No step may be under way on any rank.
  std::vector<int> meet() { return weights_.front().meet(); }
  // After workers were lost, this is the step of the remaining ranks: takes weights and update counts of `before`. Call
  // before the first step; collective.
  void take(Step& before);

  const Groups& groups() const { return groups_; }
  WeightEma* ema() { return weights_.ema(); }  // null: no averages are kept (PlanRequest::ema_every)
  // The elements of this parameter whose optimizer state this rank keeps: all, unless updates are sharded.
  Slice updated(const Param& param) const { return weights_.updated(param); }
  // The number of updates of the front part's and the back part's parameters, equal on all ranks. A resumed run takes
  // it from its checkpoint, since the optimizer depends on it.
  struct Updates {
    int64_t front = 0, back = 0;
  };
  const Updates& updates() const { return updates_; }
  void resume_after(const Updates& updates);

 private:
  struct Tried {  // a step of the trial that was replayed
    bool beside;
    Event begin, end;
  };
  struct Slot {
    StepBlock host;
    Event done;
    Tensor images;  // the batch's images, to recompute activations that forward has dropped
    Pass pass;
    std::optional<Tried> tried;
  };

  void start(const Batch& batch, Pass pass, StepKind kind, const Rates& rates, bool stop);
  void queue(const Batch& batch, const Pass& pass, const StepRecorder::Weights& weights, Slot& slot);
  void count_updates(const StepProgram& program);
  [[noreturn]] void report_out_of_memory(const OutOfMemory& e, int64_t step_rows) const;
  [[noreturn]] void report_bad_loss(const StepResult& result, const Pass& pass, int32_t bad_layer);

  Communicator& comm() const { return groups_.world(); }
  bool under_way() const { return finished_ < started_; }

  const Plan& plan_;
  Options options_;
  Stream stream_;
  Groups groups_;
  StepWeights weights_;
  StepPrograms programs_;
  StepRunner runner_;
  std::vector<Slot> slots_;            // step number n, counted by started_, has slot n % slots_.size()
  size_t started_ = 0, finished_ = 0;  // numbers of steps
  StepRecorder recorder_;
  std::optional<BesideTrial> trial_;
  Updates updates_;  // including the latest step that was started
};

}  // namespace owt
