// When things are due: evaluations, checkpoints, averages, and the learning rates of a step.
#include "data/steps.h"
#include "src/comm/on_host.h"
#include "src/comm/signals.h"
#include "src/plan/plan_updates.h"
#include "src/roster/membership.h"
#include "src/train/trainer.h"

namespace owt {

// If steps of another size were taken in this epoch, fewer steps of the current size are left.
int64_t Trainer::position() const {
  const int64_t left = steps_per_epoch(job_.train->size() - state_.images_in_epoch, job_.plan.request.step_rows);
  return (state_.epoch + 1) * batches_->steps_per_epoch() - left;
}

bool Trainer::evaluation_comes_round() const {
  const RunSettings& run = job_.settings.run;
  const bool at_epoch = run.eval_every_epochs > 0 && state_.step > 0 && state_.images_in_epoch == 0 &&
                        state_.epoch % run.eval_every_epochs == 0;
  const bool at_step = run.eval_every_steps > 0 && state_.step > 0 && state_.step % run.eval_every_steps == 0;
  return at_epoch || at_step;
}

bool Trainer::evaluation_due() const {
  return state_.evaluated_step != state_.step && (evaluation_comes_round() || is_over());
}

bool Trainer::checkpoint_due() const {
  const RunSettings& run = job_.settings.run;
  const bool at_epoch =
      run.checkpoint_every_epochs > 0 && state_.images_in_epoch == 0 && state_.epoch % run.checkpoint_every_epochs == 0;
  const bool at_step = run.checkpoint_every_steps > 0 && state_.step % run.checkpoint_every_steps == 0;
  return at_epoch || at_step || is_over();
}

bool Trainer::out_of_patience() const {
  const int64_t most = job_.settings.run.patience;
  return most > 0 && state_.since_best >= most;
}

bool Trainer::equality_due() const {
  const int64_t every = job_.settings.run.equality_every;
  return worker_.comm.ranks() > 1 && every > 0 && state_.step % every == 0;
}

bool Trainer::mirror_due() const { return job_.memory && state_.step % job_.settings.elastic.mirror_every == 0; }

bool Trainer::wants_end() const { return stop_requested() || (job_.memory && (leave_requested() || roster_calls())); }

// If too few workers would be left, or the roster is gone, the run stops with a checkpoint. If several want to leave,
// the last one does, since two neighbours have the only copies of a part of the state. The others leave after it.
bool Trainer::all_want_change() {
  const int ranks = worker_.comm.ranks();
  std::vector<double> wishes(static_cast<size_t>(ranks) + 1);
  wishes.front() = stop_requested() || roster_is_gone() ? 1 : 0;
  wishes[static_cast<size_t>(worker_.comm.rank()) + 1] = leave_requested() ? 1 : 0;
  const std::vector<double> of_all = on_host::sum(worker_.comm, wishes, job_.plan.request.on.device);
  int leave = 0, last = -1;
  for (int rank = 0; rank < ranks; ++rank)
    if (of_all[static_cast<size_t>(rank) + 1] > 0) ++leave, last = rank;
  job_.memory->leaves = worker_.comm.rank() == last;
  return of_all[0] == 0 && ranks - leave >= run_world().least;
}

bool Trainer::must_settle() const {
  return mirror_due() || equality_due() || state_.images_in_epoch == 0 || is_over() || checkpoint_due() ||
         evaluation_due() || (worker_.profiler.enabled() && steps_apart(job_.plan) == 0);
}

Step::Rates Trainer::rates_now() const {
  const Settings& s = job_.settings;
  const int64_t at = position(), per_epoch = batches_->steps_per_epoch();
  const double weights = s.optimizer.learning_rate * schedule_.rate(at, per_epoch, state_.plateau, more_steps_);
  const double biases = s.optimizer.learning_rate * schedule_.bias_rate(at, per_epoch, state_.plateau, more_steps_);
  const double front = s.front_rate_scale(job_.plan), back = s.back_rate_scale(job_.plan);
  return {weights * front, weights * back, biases * front, biases * back,
          s.optimizer.sgd_share(static_cast<double>(at) / static_cast<double>(per_epoch))};
}

// Evaluations, checkpoints and comparisons must find equal weights on all ranks, so the step before them averages. The
// kind depends only on the recipe and the position, so a resumed run does the same as one that was not stopped.
StepKind Trainer::kind_of_step() const {
  const Plan& plan = job_.plan;
  const double synchronous = plan.request.average_from * static_cast<double>(batches_->steps_per_epoch());
  const StepKind kind = kind_of(plan, state_.step - 1);
  if (kind == StepKind::kSynchronous || static_cast<double>(position() - 1) < synchronous)
    return StepKind::kSynchronous;
  return evaluation_due() || checkpoint_due() || equality_due() ? StepKind::kAveraging : kind;
}

// Weights that differ between ranks do not enter the average.
double Trainer::kept_of_ema(StepKind kind) {
  const EmaSettings& ema = job_.settings.ema;
  if (!ema.on() || kind == StepKind::kLocal || state_.step - state_.ema_step < ema.every) return 1;
  const double progress = schedule_.progress(static_cast<double>(position()), batches_->steps_per_epoch(), more_steps_);
  return ema.kept(std::exchange(state_.ema_step, state_.step), state_.step, progress);
}

bool Trainer::is_logged(int64_t step) const {
  return step % job_.settings.run.log_every == 0 || step == 1 || step == total_steps_;
}

}  // namespace owt
