// One rank's training run: steps, log, evaluation, checkpoints. Every rank does the same; rank 0 also writes.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "src/train/evaluate.h"
#include "src/train/files/checkpoint_files.h"
#include "src/train/job.h"
#include "src/train/metrics.h"
#include "src/train/progress.h"
#include "src/train/rank_times.h"
#include "src/train/weight_sizes.h"
#include "src/train/weights.h"
#include "src/train/worker.h"

namespace owt {

enum class TrainingEnd {
  kFinished,  // the schedule is over
  kStopped,   // a signal asked for it, and a checkpoint is written
  kWithout,   // workers were lost, and the others go on as a Trainer of their own
};

class Trainer {
 public:
  // Both must outlive this. Draws, loads or restores the weights, and writes nothing. before: where its run() has ended
  // kWithout, on a rank of those that are left; it may be freed then, and has nothing any more.
  Trainer(const Job& job, Communicator& comm, Trainer* before = nullptr);

  bool is_over() const { return state_.step >= total_steps_; }  // no steps are left
  TrainingEnd run();
  // The ranks that the others go on without, after kWithout: the same on all of these.
  const std::vector<int>& without() const { return without_; }

  // What all ranks measured in the first steps; empty where there were none. Collective, behind run().
  const StepTimes& times();
  const std::optional<Evaluation>& last_evaluation() const { return last_evaluation_; }

 private:
  static constexpr int64_t kTimedFrom = 3, kTimedSteps = 100;  // steps of this process whose times are kept

  TrainingEnd run_to_the_end();
  std::optional<TrainingEnd> look_around(bool stop);
  void tell_of_losses();
  void take(Trainer& before);
  void open_files();
  std::string what_is_kept() const;  // where the run has to end
  std::string how_to_go_on() const;  // the same, where the recipe is good
  bool writes() const { return worker_.comm.rank() == 0; }
  const Dataset& evaluated() const { return *job_.images(job_.settings.data.evaluated()); }
  void restore();
  void prepare_steps();
  void end_early();
  void start_step();
  Step::Rates rates_now() const;
  StepKind kind_of_step() const;      // of the one that leads to this point
  double kept_of_ema(StepKind kind);  // Step::Rates::kept of that step
  void restore_ema();
  bool finish_step();                   // the oldest one under way; true: a rank was asked to stop
  bool finish_steps(int left);          // until no more than so many are under way; true as above
  int64_t position() const;             // in the schedule: steps of this size up to here, were all of it
  bool must_settle() const;             // before the next step starts, the results of all are wanted
  bool evaluation_comes_round() const;  // by the recipe's numbers of epochs and steps, at this point
  bool evaluation_due() const;          // by those, or at the end; and it was not done yet
  bool checkpoint_due() const;
  bool out_of_patience() const;
  bool equality_due() const;
  Evaluation evaluate_now();
  double seconds() const;  // since the first step began
  void write_start();
  void write_end(const std::string& state);
  void write_weight_sizes(int64_t epoch);
  bool run_evaluation();  // true: the best so far
  void check_weights();
  void save();
  std::string of_rank_0(const std::string& text);  // collective
  void note_no_room(const std::string& why);
  void check_that_all_is_written();

  struct Started {  // a step under way, for its record
    int64_t step, epoch;
    double lr;
  };
  bool is_logged(int64_t step) const;
  void record(const StepResult& result, const Started& started);
  void log_convolutions();
  void time_step();  // the one that is about to start, if it is one of those that are timed
  void gather_times();

  const Job& job_;
  Worker worker_;
  Schedule schedule_;
  std::unique_ptr<BatchSource> batches_, evaluated_batches_;
  RunState state_;  // after the newest step that was started
  std::deque<Started> started_;
  int64_t first_step_ = 0, total_steps_ = 0, saved_step_ = -1;
  int64_t more_steps_ = 0;                  // that were taken beyond position(), being smaller
  double first_position_ = 0, began_ = -1;  // in the schedule; on the clock, below 0: no step yet
  WeightSizes weight_sizes_;
  std::optional<Evaluation> last_evaluation_;
  double data_wait_ms_ = 0, data_wait_s_ = 0;  // since the last metrics line; in all
  int64_t waited_steps_ = 0;
  std::vector<int> without_;
  bool takes_over_ = false, stop_ = false;  // from another Trainer, when a rank was asked to stop
  size_t told_losses_ = 0;
  LoaderTimes loader_before_;  // the steps that are timed
  StepTimes times_;
  bool stopping_ = false;
  int64_t unsaved_step_ = -1;  // whose checkpoint the disk had no room for; -1: none
  std::string no_room_;        // why; on rank 0 also why that of this step does not know its evaluation
  // Rank 0 only.
  std::string bottleneck_;  // of the steps that were timed, a sentence
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<Progress> progress_;
  std::optional<CheckpointWriter> checkpoints_;
};

}  // namespace owt
