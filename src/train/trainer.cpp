#include "src/train/trainer.h"

#include <algorithm>
#include <map>

#include "data/steps.h"
#include "src/comm/on_host.h"
#include "src/comm/processes.h"
#include "src/comm/watch.h"
#include "src/core/log.h"
#include "src/core/no_room.h"
#include "src/core/threads.h"
#include "src/parallel/spread_weights.h"
#include "src/plan/plan_updates.h"
#include "src/train/advice.h"
#include "src/train/equality.h"
#include "src/train/session.h"
#include "src/train/signals.h"
#include "src/train/start_facts.h"
#include "src/train/start_log.h"
#include "src/train/weights.h"
#include "src/train/whitening.h"
#include "src/train/worker_files.h"

namespace owt {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double fraction(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

}  // namespace

Trainer::Trainer(const Job& job, Communicator& comm, Trainer* before)
    : job_(job),
      worker_(job.settings, job.plan, comm),
      schedule_(job.settings.schedule),
      weight_sizes_(worker_.model.params()) {
  state_.seed = job.settings.run.seed;
  state_.workers = job.plan.ranks();
  state_.strategy = name_of(job.plan.request.strategy);
  state_.step_rows = job.plan.request.step_rows;
  state_.images = job.train->size();
  state_.data = job.train_checksum;
  state_.optimizer = job.settings.optimizer.name();
  if (job.settings.parallel.measure_shares) state_.measured_shares = job.plan.request.shares;
  if (before) {
    take(*before);
  } else if (!job.resume_checkpoint.empty()) {
    restore();
  } else {
    worker_.model.initialize(job.settings.run.seed);
    on_all_hosts(worker_.comm, [&] { whiten(job, worker_.model); });
    if (!job.start.file.empty()) {
      const StartedFrom from = start_from(job.start, worker_.model, worker_.step.groups());
      if (writes()) log_start_weights(job.start.file, from);
    }
  }
  if (!before) spread_weights(worker_.model, worker_.step.groups());
  if (worker_.step.ema()) restore_ema();
  on_all_hosts(worker_.comm,
               [&] { batches_ = training_batches(job, comm.rank(), state_.epoch, state_.images_in_epoch); });
  more_steps_ = state_.step - position();
  total_steps_ = schedule_.total_steps(batches_->steps_per_epoch(), more_steps_);
  first_step_ = state_.step;
  first_position_ = static_cast<double>(position());
  prepare_steps();
  worker_.step.feed_from(*batches_);
}

void Trainer::open_files() {
  checkpoints_.emplace(job_.run_folder, job_.settings.run.keep_checkpoints);
  // First, since a run that stops before its next checkpoint resumes from this one, and metrics must end there.
  if (job_.same_run) checkpoints_->go_on_from(job_.resume_checkpoint);
  const std::string metrics = job_.run_folder + "/metrics.jsonl";
  drop_metrics_after(metrics, state_.step, state_.evaluated_step);
  auto events = job_.settings.run.tensorboard
                    ? std::make_unique<EventFile>(job_.run_folder, metrics, job_.settings.recipe.to_toml())
                    : nullptr;
  metrics_ = std::make_unique<MetricsLog>(metrics, std::move(events));
  progress_ = std::make_unique<Progress>();
}

// Prepares all sizes of steps in advance. On a GPU this reports a lack of memory at once, not at the end of an epoch
// with its smaller step. If the loss of workers is tolerated, later steps then need no collectives except the servers'.
void Trainer::prepare_steps() {
  const int64_t rows = job_.plan.request.step_rows;
  if (job_.plan.request.on.device == Device::kCpu && !job_.tolerates_loss()) return;
  const int64_t left_of_epoch = job_.train->size() - state_.images_in_epoch;
  for (const int64_t images : {job_.train->size(), left_of_epoch, evaluated().size()}) {
    if (images >= rows) worker_.step.prepare(rows);
    if (images % rows != 0) worker_.step.prepare(images % rows);
  }
}

void Trainer::restore() {
  load_worker(job_.resume_checkpoint, worker_);
  const RunState& loaded = job_.resume_state;
  worker_.step.go_on_after({loaded.updates.front, loaded.updates.back});
  ConvChoices::process().preload(loaded.conv_choices);
  state_.step = loaded.step;
  state_.epoch = loaded.epoch;
  state_.images_in_epoch = loaded.images_in_epoch;
  state_.evaluated_step = loaded.evaluated_step;
  state_.conv_choices = loaded.conv_choices;
  state_.plateau = loaded.plateau;
  state_.checksums = loaded.checksums;
  if (!job_.same_run) return;  // the best checkpoint is in the other folder
  saved_step_ = loaded.step;
  state_.best_top1 = loaded.best_top1;
  state_.best_step = loaded.best_step;
  state_.since_best = loaded.since_best;
}

// Images of steps under way on lost workers are not seen again in this epoch.
void Trainer::take(Trainer& before) {
  worker_.take(before.worker_);
  const RunState mine = state_;
  state_ = before.state_;
  state_.workers = mine.workers;
  saved_step_ = before.saved_step_;
  unsaved_step_ = before.unsaved_step_;
  no_room_ = before.no_room_;
  began_ = before.began_;
  last_evaluation_ = before.last_evaluation_;
  stop_ = before.stop_;
  told_losses_ = before.told_losses_;
  takes_over_ = true;
  metrics_ = std::move(before.metrics_);
  progress_ = std::move(before.progress_);
  checkpoints_ = std::move(before.checkpoints_);
}

// Without averages in the checkpoint they start with the weights.
void Trainer::restore_ema() {
  WeightEma& ema = *worker_.step.ema();
  state_.ema_step = job_.resume_checkpoint.empty() ? -1 : job_.resume_state.ema_step;
  if (state_.ema_step < 0) {
    state_.ema_step = state_.step;
    ema.begin(worker_.step.stream());
    return;
  }
  load_ema(job_.resume_checkpoint, worker_);
}

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

bool Trainer::must_settle() const {
  return equality_due() || state_.images_in_epoch == 0 || is_over() || checkpoint_due() || evaluation_due() ||
         (worker_.profiler.enabled() && steps_apart(job_.plan) == 0);
}

TrainingEnd Trainer::run() {
  if (writes()) {
    if (!takes_over_) open_files();
    log_start(job_, worker_.step.records(), state_.step, total_steps_);
  }
  try {
    const TrainingEnd end = run_to_the_end();
    if (end == TrainingEnd::kWithout) return end;
    write_end(end == TrainingEnd::kFinished ? "finished" : "stopped");
    check_that_all_is_written();
    return end;
  } catch (const Diverged& e) {
    write_end("diverged");
    throw Diverged(concat(e.what(), "; ", what_is_kept()));
  }
}

std::string Trainer::what_is_kept() const {
  if (saved_step_ >= 0) return concat("the last checkpoint is kept (step ", saved_step_, ")");
  return job_.resume_checkpoint.empty() ? "there is no checkpoint yet" : "there is no checkpoint since the resume";
}

std::string Trainer::how_to_go_on() const {
  return concat(what_is_kept(), saved_step_ >= 0 ? "; resume with --resume auto" : "; start the command again");
}

TrainingEnd Trainer::run_to_the_end() {
  if (!takes_over_) note_kept_step(std::max(saved_step_, first_step_));
  if (takes_over_) {
    if (const auto end = look_around(stop_)) return *end;
  } else if (evaluation_due() && run_evaluation()) {  // the run was stopped before this evaluation
    save();
  }
  while (!is_over() && !out_of_patience()) {
    start_step();
    if (const auto end = look_around(finish_steps())) return *end;
  }
  if (!is_over()) end_early();
  if (!last_evaluation_) last_evaluation_ = evaluate_now();  // no steps were left
  return TrainingEnd::kFinished;
}

// Called between two steps, and after the last one. All ranks then have equal weights if anything reads them.
std::optional<TrainingEnd> Trainer::look_around(bool stop) {
  if (!without_.empty()) {
    tell_of_losses();
    stop_ = stop;
    return TrainingEnd::kWithout;
  }
  if (job_.tolerates_loss()) share_corrupt_records(job_);
  if (stop && !is_over()) {
    stopping_ = true;
    worker_.step.average();
    save();
    if (writes() && saved_step_ == state_.step)
      log_info("stopped on a signal after step {}; resume with --resume auto", state_.step);
    return TrainingEnd::kStopped;
  }
  if (writes() && (state_.images_in_epoch == 0 || is_over())) progress_->end_epoch();
  if (equality_due()) check_equality(job_.plan, worker_.model, worker_.step.groups(), state_.step, how_to_go_on());
  if (checkpoint_due()) save();  // first, since evaluation images may be damaged
  if (evaluation_due() && run_evaluation()) save();
  return {};
}

void Trainer::tell_of_losses() {
  if (!writes() || !job_.tolerates_loss()) return;
  const std::vector<std::string> losses = tolerated_losses();
  for (; told_losses_ < losses.size(); ++told_losses_)
    log_warn(
        "{}; training continues without it, and its rows are redistributed at the next epoch, checkpoint or evaluation",
        losses[told_losses_]);
}

// Called after an evaluation, so weights that ranks update independently have been averaged.
void Trainer::end_early() {
  if (state_.evaluated_step == state_.step) save();
  if (writes())
    log_info(
        "ended after step {} of {}: none of the last {} evaluations was better than that of step {} (run.patience)",
        state_.step, total_steps_, state_.since_best, state_.best_step);
}

void Trainer::start_step() {
  note_step(state_.step + 1);
  time_step();
  worker_.profiler.begin_step();
  const double before = seconds_now();
  if (began_ < 0) began_ = before;
  const Batch* batch = nullptr;
  {
    const Profiler::Scope scope(&worker_.profiler, "data wait", Phase::kData);
    batch = &batches_->next(worker_.step.stream());
  }
  const double waited = seconds_now() - before;
  data_wait_ms_ += waited * 1e3;
  data_wait_s_ += waited;
  ++waited_steps_;
  Step::Rates rates = rates_now();
  started_.push_back({state_.step + 1, state_.epoch, rates.front});
  ++state_.step;
  state_.images_in_epoch += batch->step_rows;
  if (state_.images_in_epoch == job_.train->size()) ++state_.epoch, state_.images_in_epoch = 0;
  const StepKind kind = kind_of_step();
  rates.kept = kept_of_ema(kind);
  if (evaluation_due()) weight_sizes_.note(worker_.step.stream());
  worker_.step.start_training(*batch, state_.step - 1, rates, stop_requested(), kind);
  worker_.profiler.end_step();
}

void Trainer::time_step() {
  const int64_t left = total_steps_ - state_.step, done = state_.step - first_step_;
  if (job_.tolerates_loss()) return;  // gathering the times would need a collective between steps
  const int64_t timed = done - std::min(kTimedFrom, (left + done) / 2);
  worker_.profiler.enable(timed >= 0 && timed < kTimedSteps);
  if (timed == 0) loader_before_ = batches_->times();
  if (timed != kTimedSteps) return;
  gather_times();
  if (writes()) log_info("{}", bottleneck_);
}

void Trainer::gather_times() {
  const LoaderTimes now = batches_->times();
  const auto steps = static_cast<double>(worker_.profiler.step_ms().size());
  times_ =
      owt::gather_times(worker_.comm, worker_.profiler, period_of(job_.plan), job_.plan.request.on.device,
                        {(now.work_s - loader_before_.work_s) / steps, (now.wait_s - loader_before_.wait_s) / steps});
  if (!writes()) return;
  bottleneck_ = explain_step(job_.settings.model, job_.plan, times_, job_.links).text();
  metrics_->write(BottleneckRecord{state_.step, bottleneck_, seconds()});
}

const StepTimes& Trainer::times() {
  worker_.profiler.enable(false);
  if (times_.empty() && !worker_.profiler.step_ms().empty()) gather_times();
  return times_;
}

Step::Rates Trainer::rates_now() const {
  const Settings& s = job_.settings;
  const int64_t at = position(), per_epoch = batches_->steps_per_epoch();
  const double weights = s.optimizer.learning_rate * schedule_.rate(at, per_epoch, state_.plateau, more_steps_);
  const double biases = s.optimizer.learning_rate * schedule_.bias_rate(at, per_epoch, state_.plateau, more_steps_);
  const double front = s.front_rate_scale(job_.plan), back = s.back_rate_scale(job_.plan);
  return {weights * front, weights * back, biases * front, biases * back,
          s.optimizer.sgd_share(fraction(at, per_epoch))};
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
  return ema.kept(std::exchange(state_.ema_step, state_.step), state_.step);
}

bool Trainer::finish_step() {
  const Started started = started_.front();
  started_.pop_front();
  const StepResult result = worker_.step.finish();
  if (is_logged(started.step) && !job_.tolerates_loss()) share_corrupt_records(job_);
  tell_of_losses();
  if (writes()) record(result, started);
  return result.stop;
}

// Weights that are evaluated, saved or compared have all gradients.
bool Trainer::finish_steps() {
  const bool settles = must_settle();
  bool stop = false;
  const auto leave = [&](int steps) {
    while (static_cast<int>(started_.size()) > steps) stop = finish_step() || stop;
  };
  leave(settles ? 0 : worker_.step.most_in_flight() - 1);
  if (stop) leave(0);
  if (!stop && !settles) return false;
  if (job_.tolerates_loss()) without_ = worker_.step.meet();
  if (without_.empty()) worker_.step.settle();
  return stop;
}

bool Trainer::is_logged(int64_t step) const {
  return step % job_.settings.run.log_every == 0 || step == 1 || step == total_steps_;
}

void Trainer::record(const StepResult& result, const Started& started) {
  const double loss = result.sums.loss / static_cast<double>(result.sums.rows);
  const double top1 = fraction(result.sums.top1, result.sums.rows);
  const int64_t epochs = steps_per_epoch(total_steps_ - more_steps_, batches_->steps_per_epoch());
  progress_->update({started.step, total_steps_, started.epoch, epochs, loss, top1, started.lr, data_wait_s_},
                    result.sums.rows);
  if (started.step == first_step_ + 1) log_convolutions(), write_start();
  if (!is_logged(started.step)) return;
  const double data_wait_ms = waited_steps_ > 0 ? data_wait_ms_ / static_cast<double>(waited_steps_) : 0;
  metrics_->write(TrainRecord{started.step, started.epoch, loss, top1, started.lr, progress_->images_per_second(),
                              data_wait_ms, job_.corrupt ? job_.corrupt->count() : 0,
                              job_.plan.has_norms() ? std::optional(result.gradient_norm) : std::nullopt, seconds()});
  data_wait_ms_ = 0;
  waited_steps_ = 0;
}

double Trainer::seconds() const { return began_ < 0 ? 0 : seconds_now() - began_; }

void Trainer::write_start() {
  const auto steps = static_cast<double>(batches_->steps_per_epoch());
  metrics_->write(StartRecord{first_step_, first_position_ / steps, batches_->steps_per_epoch(), facts_of_start(job_)});
}

// A process without any step writes none.
void Trainer::write_end(const std::string& state) {
  if (writes() && began_ >= 0) metrics_->write(EndRecord{state_.step, state, seconds()});
}

// Collective. Writes the sizes of the learning weights, not of their averages.
void Trainer::write_weight_sizes(int64_t epoch) {
  std::vector<WeightSize> sizes = weight_sizes_.measure(worker_.comm, worker_.step.stream());
  if (writes()) metrics_->write(WeightsRecord{state_.step, epoch, std::move(sizes), seconds()});
}

void Trainer::log_convolutions() {
  for (const std::string& line : ConvChoices::process().report()) log_to_file_only("convolution " + line);
  for (const std::string& line : ConvChoices::process().warnings()) log_warn("{}", line);
}

Evaluation Trainer::evaluate_now() {
  // Kept for the next evaluation: recorded steps read its memory.
  if (!evaluated_batches_) {
    on_all_hosts(worker_.comm, [&] {
      evaluated_batches_ = evaluation_batches(job_, worker_.comm.rank(), job_.settings.data.evaluated());
      worker_.step.feed_from(*evaluated_batches_);
    });
  }
  WeightEma* ema = worker_.step.ema();
  if (ema) ema->swap(worker_.step.stream());
  const Evaluation evaluation = evaluate(worker_.step, *evaluated_batches_);
  if (ema) ema->swap(worker_.step.stream());
  return evaluation;
}

// Patience and plateau count only evaluations that a longer run would have too. A run that ended early can then resume
// as if it had not ended.
bool Trainer::run_evaluation() {
  const double begin = seconds_now();
  const int64_t epoch = state_.images_in_epoch == 0 ? state_.epoch - 1 : state_.epoch;
  write_weight_sizes(epoch);
  last_evaluation_ = evaluate_now();
  state_.evaluated_step = state_.step;
  const Evaluation& e = *last_evaluation_;
  const bool best = e.top1 > state_.best_top1 || state_.best_step < 0;
  const bool counts = evaluation_comes_round();
  state_.since_best = best ? 0 : state_.since_best + (counts ? 1 : 0);
  if (best) state_.best_top1 = e.top1, state_.best_step = state_.step;
  const bool falls = counts && schedule_.note_evaluation(e.loss, e.top1, state_.plateau);
  if (!writes()) return best;
  const Split split = job_.settings.data.evaluated();
  const bool ema = worker_.step.ema();
  log_info("epoch {}, step {}: {} loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % ({} images, {:.1f} s{})", epoch + 1,
           state_.step, kind_of(split), e.loss, 100 * e.top1, 100 * e.top5, e.images, seconds_now() - begin,
           ema ? ", averaged weights" : "");
  if (falls) log_info("no improvement: learning rate multiplied by {:g}", job_.settings.schedule.factor);
  metrics_->write(EvalRecord{split, state_.step, epoch, e.loss, e.top1, e.top5, e.images, ema, seconds()});
  if (saved_step_ == state_.step) no_room_ = checkpoints_->note_evaluation(state_);
  progress_->skip_time();
  return best;
}

// A step can have a finite loss and a bad update; such weights must not become the latest checkpoint.
void Trainer::check_weights() {
  std::string name;
  for (const Param* param : worker_.model.params())
    if (name.empty() && !all_finite(param->value)) name = param->name;
  const double bad = on_host::sum(worker_.comm, {name.empty() ? 0.0 : 1.0}, job_.plan.request.on.device).front();
  if (!name.empty())
    throw Diverged(concat("step ", state_.step, ": '", name, "' holds a value that is not finite, so no checkpoint is ",
                          "written. Lower the learning rate or add warmup_epochs"));
  if (bad > 0) throw Aborted("another rank's weights are not finite");
}

std::string Trainer::of_rank_0(const std::string& text) {
  return on_host::gather(worker_.comm, writes() ? text : "", job_.plan.request.on.device).front();
}

// If the disk has no room for the checkpoint, the run continues and tries the next one.
void Trainer::save() {
  if (saved_step_ == state_.step || unsaved_step_ == state_.step) return;
  check_weights();
  std::string folder, no_room;
  const auto unless_full = [&](const auto& work) {
    try {
      work();
    } catch (const NoRoom& e) {
      no_room = e.what();
    }
  };
  if (writes()) unless_full([&] { folder = checkpoints_->begin(state_.step); });
  if (no_room = of_rank_0(no_room); !no_room.empty()) return note_no_room(no_room);
  std::map<std::string, uint64_t> checksums;
  // on_all_hosts, because replicas with nothing to write arrive earlier than the ranks that free gathered tensors.
  on_all_hosts(worker_.comm, [&] { unless_full([&] { checksums = save_worker(folder, job_.plan, worker_); }); });
  if (writes() && no_room.empty()) {
    state_.updates = {worker_.step.updates().front, worker_.step.updates().back};
    state_.conv_choices = ConvChoices::process().exported();
    state_.checksums = checksums;
    unless_full([&] { checkpoints_->commit(state_); });
  }
  if (no_room = of_rank_0(no_room); !no_room.empty()) return note_no_room(no_room);
  saved_step_ = state_.step;
  no_room_.clear();
  note_kept_step(saved_step_);
  if (writes()) progress_->skip_time();
}

void Trainer::note_no_room(const std::string& why) {
  unsaved_step_ = state_.step;
  no_room_ = why;
  if (!writes()) return;
  checkpoints_->give_up(state_.step, why, !stopping_ && !is_over());
  progress_->skip_time();
}

// Called at the end of the run, or when it was stopped.
void Trainer::check_that_all_is_written() {
  if (unsaved_step_ == state_.step) {
    // A rank that ends earlier would end rank 0 in its last evaluation.
    on_host::sum(worker_.comm, {0.0}, job_.plan.request.on.device);
    const std::string what = concat("the last checkpoint, of step ", state_.step, ", could not be written: ", no_room_,
                                    "; ", how_to_go_on());
    if (writes()) throw NoRoom(what);
    throw Aborted(what);
  }
  if (!writes()) return;
  if (!no_room_.empty()) throw NoRoom(concat("the evaluation could not be added to the last checkpoint: ", no_room_));
  if (!metrics_->is_complete())
    throw NoRoom(concat("there was no room for the last lines of ", metrics_->path(), "; the checkpoint is whole"));
}

}  // namespace owt
