// One rank's training run: steps, log, evaluation, checkpoints. Every rank does the same; rank 0 also writes files.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "src/files/checkpoint_files.h"
#include "src/train/evaluate.h"
#include "src/train/job.h"
#include "src/train/metrics.h"
#include "src/train/progress.h"
#include "src/train/rank_times.h"
#include "src/train/weight_sizes.h"
#include "src/train/weights.h"
#include "src/train/worker.h"

namespace owt {

enum class TrainingEnd {
  kFinished,  // the schedule is complete
  kStopped,   // stopped by a signal, and a checkpoint is written
  kWithout,   // workers were lost; the other ranks continue with a new Trainer
  kChange,    // the roster has called the workers; the state of this step is in memory (Job::memory)
};

class Trainer {
 public:
  // Job and communicator must outlive this. Draws, loads or restores the weights, and writes nothing. before: the
  // Trainer of this rank, one of the remaining ones, whose run() has ended with kWithout. Its state is moved out, and
  // it may be freed.
  Trainer(const Job& job, Communicator& comm, Trainer* before = nullptr);

  bool is_over() const { return state_.step >= total_steps_; }  // no steps are left
  TrainingEnd run();
  // After kWithout: the ranks that the others must continue without, equal on all remaining ranks.
  const std::vector<int>& without() const { return without_; }

  // The times that all ranks measured in the first steps; empty if there were none. Collective, after run().
  const StepTimes& times();
  const std::optional<Evaluation>& last_evaluation() const { return last_evaluation_; }

 private:
  static constexpr int64_t kTimedFrom = 3, kTimedSteps = 100;  // the steps of this process whose times are kept

  TrainingEnd run_to_the_end();
  std::optional<TrainingEnd> look_around(bool stop);
  void log_losses();
  void take(Trainer& before);
  void open_files();
  std::string what_is_kept() const;   // if the run has to end early
  std::string how_to_resume() const;  // what is kept, and how to resume if the recipe is not at fault
  bool writes() const { return worker_.comm.rank() == 0; }
  const Dataset& evaluated() const { return *job_.images(job_.settings.data.evaluated()); }
  void restore();
  Mirrored mirrored();
  bool mirror_due() const;
  void renew_mirror();
  bool wants_end() const;  // this rank asks the others to end their steps here
  bool all_want_change();  // collective: no rank asks to end the run, and enough stay
  void prepare_steps();
  void begin_decoder_trial();  // collective, before the first step
  void end_decoder_trial();    // collective, once all blocks are timed
  void end_early();
  void start_step();
  Step::Rates rates_now() const;
  StepKind kind_of_step() const;      // kind of the step that ends at the current position
  double kept_of_ema(StepKind kind);  // Step::Rates::kept of that step
  void restore_ema();
  bool finish_step();                   // finishes the oldest step under way; true: a rank was asked to stop
  bool finish_steps();                  // leaves only steps that may be under way; true: a rank was asked to stop
  int64_t position() const;             // in the schedule: the number of steps of this size up to the current image
  bool must_settle() const;             // all steps must finish before the next one starts
  bool evaluation_comes_round() const;  // whether the recipe's intervals ask for one at this step
  bool evaluation_due() const;          // at the intervals or the end, if not done yet
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
  std::string of_rank_0(const std::string& text);  // collective; returns rank 0's text
  void note_no_room(const std::string& why);
  void check_that_all_is_written();

  struct Started {  // a step under way, for its record
    int64_t step, epoch;
    double lr;
  };
  bool is_logged(int64_t step) const;
  void record(const StepResult& result, const Started& started);
  void log_convolutions();
  void time_step();  // called before a step; switches the profiler on or off
  void gather_times();

  const Job& job_;
  Worker worker_;
  Schedule schedule_;
  std::unique_ptr<BatchSource> batches_, evaluated_batches_;
  RunState state_;  // after the latest step that was started
  std::deque<Started> started_;
  int64_t first_step_ = 0, total_steps_ = 0, saved_step_ = -1;
  int64_t more_steps_ = 0;                  // steps beyond position(), because they were smaller
  double first_position_ = 0, began_ = -1;  // position in the schedule; clock time, negative before the first step
  WeightSizes weight_sizes_;
  std::optional<Evaluation> last_evaluation_;
  double data_wait_ms_ = 0, data_wait_s_ = 0;  // since the last metrics line; in total
  int64_t waited_steps_ = 0;
  std::vector<int> without_;
  bool takes_over_ = false, stop_ = false;  // this Trainer continues another one; a rank was asked to stop
  size_t logged_losses_ = 0;
  LoaderTimes loader_before_;  // at the first timed step
  StepTimes times_;
  bool stopping_ = false;
  int64_t unsaved_step_ = -1;  // step whose checkpoint did not fit on the disk; -1: none
  std::string no_room_;        // the reason; on rank 0 also why the checkpoint of this step lacks its evaluation
  // Rank 0 only.
  std::string bottleneck_;  // a sentence about the timed steps
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<Progress> progress_;
  std::optional<CheckpointWriter> checkpoints_;
};

}  // namespace owt
