#include "src/train/trainer.h"

#include "src/comm/on_host.h"
#include "src/comm/processes.h"
#include "src/comm/signals.h"
#include "src/comm/watch.h"
#include "src/core/threads.h"
#include "src/parallel/spread_weights.h"
#include "src/system/log.h"
#include "src/train/advice.h"
#include "src/train/equality.h"
#include "src/train/session.h"
#include "src/train/start_log.h"
#include "src/train/whitening.h"
#include "src/train/worker_files.h"

namespace owt {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char* in_words(Decoder decoder, const std::string& chosen) {
  return decoder == Decoder::kGpu || chosen == name_of(Decoder::kGpu) ? "GPU" : "CPU";
}

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
  } else if (job.resumes()) {
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
  const Decoder chosen = state_.decoder.empty() ? Decoder::kAuto : decoder_named(state_.decoder);
  on_all_hosts(worker_.comm,
               [&] { batches_ = training_batches(job, comm.rank(), state_.epoch, state_.images_in_epoch, chosen); });
  begin_decoder_trial();
  more_steps_ = state_.step - position();
  total_steps_ = schedule_.total_steps(batches_->steps_per_epoch(), more_steps_);
  if (!job.resumes() && schedule_.never_rises(batches_->steps_per_epoch(), more_steps_))
    fail("every step would have the learning rate 0: the run has ", total_steps_, " steps, and the warm-up lasts ",
         job.settings.schedule.warmup_epochs, " epochs of ", batches_->steps_per_epoch(),
         "; make schedule.warmup_epochs smaller");
  first_step_ = state_.step;
  first_position_ = static_cast<double>(position());
  prepare_steps();
  worker_.feed_from(*batches_);
}

// Prepares all sizes of steps in advance. On a GPU this reports a lack of memory at once, not at the end of an epoch
// with its smaller step. If the loss of workers is tolerated, later steps then need no collectives except the servers'.
void Trainer::prepare_steps() {
  const int64_t rows = job_.plan.request.step_rows;
  if (job_.plan.request.on.device == Device::kCpu && !job_.tolerates_loss()) return;
  const int64_t left_of_epoch = job_.train->size() - state_.images_in_epoch;
  for (const int64_t images : {job_.train->size(), left_of_epoch, evaluated().size()}) {
    if (images >= rows) worker_.prepare(rows);
    if (images % rows != 0) worker_.prepare(images % rows);
  }
}

// If one rank's GPU cannot decode, no GPU does: the same images must have the same pixels on all ranks.
void Trainer::begin_decoder_trial() {
  DecoderTrial* trial = batches_->decoder_trial();
  const DataSettings& data = job_.settings.data;
  if (writes() && !trial && data.decoder != Decoder::kCpu && job_.plan.request.on.device == Device::kCuda)
    log_info("the {} decodes the photographs of training, as {}", in_words(data.decoder, state_.decoder),
             data.decoder == Decoder::kAuto ? "in the checkpoint" : "the recipe says");
  if (!trial) return;
  for (const std::string& why : on_host::gather(worker_.comm, trial->why_not(), job_.plan.request.on.device)) {
    if (why.empty()) continue;
    trial->choose(Decoder::kCpu);
    if (writes()) log_info("the CPU decodes the photographs: {}", why);
    return;
  }
}

void Trainer::end_decoder_trial() {
  DecoderTrial* trial = batches_->decoder_trial();
  if (!trial || !trial->awaits_choice()) return;
  state_.decoder = of_rank_0(name_of(trial->faster()));  // a step takes all ranks the same time
  trial->choose(decoder_named(state_.decoder));
  if (writes())
    log_info("the {} decodes the photographs of training: {:.2f} ms a step on the CPU, {:.2f} ms on the GPU",
             in_words(Decoder::kAuto, state_.decoder), 1e3 * trial->step_s(Decoder::kCpu),
             1e3 * trial->step_s(Decoder::kGpu));
}

void Trainer::restore() {
  if (job_.from_memory)
    job_.memory->mirror.restore(mirrored());
  else
    load_worker(job_.resume_checkpoint, worker_);
  const RunState& loaded = job_.resume_state;
  worker_.step.resume_after({loaded.updates.front, loaded.updates.back});
  ConvChoices::process().preload(loaded.conv_choices);
  state_.step = loaded.step;
  state_.epoch = loaded.epoch;
  state_.images_in_epoch = loaded.images_in_epoch;
  state_.evaluated_step = loaded.evaluated_step;
  state_.conv_choices = loaded.conv_choices;
  state_.decoder = loaded.decoder;
  state_.plateau = loaded.plateau;
  state_.checksums = loaded.checksums;
  if (!job_.same_run) return;  // the best checkpoint is in the other folder
  if (!job_.from_memory) saved_step_ = loaded.step;
  state_.best_top1 = loaded.best_top1;
  state_.best_step = loaded.best_step;
  state_.since_best = loaded.since_best;
}

Mirrored Trainer::mirrored() { return {worker_.model, worker_.optimizer, worker_.step}; }

void Trainer::renew_mirror() {
  RunState state = state_;
  state.updates = {worker_.step.updates().front, worker_.step.updates().back};
  job_.memory->mirror.renew(mirrored(), state);
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
  logged_losses_ = before.logged_losses_;
  takes_over_ = true;
  metrics_ = std::move(before.metrics_);
  progress_ = std::move(before.progress_);
  checkpoints_ = std::move(before.checkpoints_);
}

// Without averages in the checkpoint they start with the weights.
void Trainer::restore_ema() {
  WeightEma& ema = *worker_.step.ema();
  state_.ema_step = job_.resumes() ? job_.resume_state.ema_step : -1;
  if (state_.ema_step < 0) {
    state_.ema_step = state_.step;
    ema.begin(worker_.step.stream());
    return;
  }
  if (!job_.from_memory) load_ema(job_.resume_checkpoint, worker_);
}

TrainingEnd Trainer::run() {
  if (writes()) {
    if (!takes_over_) open_files();
    log_start(job_, worker_.step.records(), state_.step, total_steps_);
  }
  try {
    const TrainingEnd end = run_to_the_end();
    if (job_.memory) job_.memory->mirror.complete();  // a rank may leave now
    if (end == TrainingEnd::kWithout || end == TrainingEnd::kChange) return end;
    write_end(end == TrainingEnd::kFinished ? "finished" : "stopped");
    check_that_all_is_written();
    return end;
  } catch (const Diverged& e) {
    write_end("diverged");
    throw Diverged(concat(e.what(), "; ", what_is_kept()));
  }
}

TrainingEnd Trainer::run_to_the_end() {
  if (!takes_over_) note_kept_step(std::max(saved_step_, first_step_));
  if (takes_over_) {
    if (const auto end = look_around(stop_)) return *end;
  } else if (evaluation_due() && run_evaluation()) {  // the run was stopped before this evaluation
    save();
  }
  if (job_.memory) {
    renew_mirror();
    if (writes()) log_mirror(job_.memory->mirror, job_.settings.elastic.mirror_every);
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
    log_losses();
    stop_ = stop;
    return TrainingEnd::kWithout;
  }
  if (job_.tolerates_loss()) share_corrupt_records(job_);
  const bool change = stop && !is_over() && job_.memory && all_want_change();
  if (stop && !is_over() && !change) {
    stopping_ = true;
    worker_.step.average();
    save();
    if (writes() && saved_step_ == state_.step)
      log_info("stopped on a signal after step {}; resume with --resume auto", state_.step);
    return TrainingEnd::kStopped;
  }
  if (writes() && (state_.images_in_epoch == 0 || is_over())) progress_->end_epoch();
  if (equality_due()) check_equality(job_.plan, worker_.model, worker_.step.groups(), state_.step, how_to_resume());
  if (checkpoint_due()) save();  // first, since evaluation images may be damaged
  if (evaluation_due() && run_evaluation()) save();
  if (change || mirror_due()) renew_mirror();
  if (change) return TrainingEnd::kChange;
  return {};
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
  end_decoder_trial();
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
  if (job_.memory) job_.memory->step = state_.step;
  worker_.start_training(*batch, state_.step - 1, rates, wants_end(), kind);
  worker_.profiler.end_step();
}

bool Trainer::finish_step() {
  const Started started = started_.front();
  started_.pop_front();
  const StepResult result = worker_.step.finish();
  if (is_logged(started.step) && !job_.tolerates_loss()) share_corrupt_records(job_);
  log_losses();
  if (job_.memory) job_.memory->did_steps = true;
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

Evaluation Trainer::evaluate_now() {
  // Kept for the next evaluation: recorded steps read its memory.
  if (!evaluated_batches_) {
    on_all_hosts(worker_.comm, [&] {
      evaluated_batches_ = evaluation_batches(job_, worker_.comm.rank(), job_.settings.data.evaluated());
      worker_.feed_from(*evaluated_batches_);
    });
  }
  WeightEma* ema = worker_.step.ema();
  if (ema) ema->swap(worker_.step.stream());
  const Evaluation evaluation = evaluate(worker_, *evaluated_batches_);
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
  log_info("epoch {}, step {}: {} loss {:.4f}, {} ({} images, {:.1f} s{})", epoch + 1, state_.step, kind_of(split),
           e.loss, accuracy_text(e, job_.settings.model.classes), e.images, seconds_now() - begin,
           ema ? ", averaged weights" : "");
  if (falls) log_info("no improvement: learning rate multiplied by {:g}", job_.settings.schedule.factor);
  metrics_->write(EvalRecord{split, state_.step, epoch, e.loss, e.top1, e.top5, e.images, ema, seconds()});
  if (saved_step_ == state_.step) no_room_ = checkpoints_->note_evaluation(state_);
  progress_->skip_time();
  return best;
}

double Trainer::seconds() const { return began_ < 0 ? 0 : seconds_now() - began_; }

}  // namespace owt
