// What a run writes: metrics, log lines and checkpoints.
#include <map>

#include "data/steps.h"
#include "src/comm/on_host.h"
#include "src/comm/processes.h"
#include "src/comm/signals.h"
#include "src/comm/watch.h"
#include "src/plan/plan_updates.h"
#include "src/roster/membership.h"
#include "src/system/log.h"
#include "src/system/no_room.h"
#include "src/train/advice.h"
#include "src/train/bottleneck.h"
#include "src/train/start_facts.h"
#include "src/train/trainer.h"
#include "src/train/worker_files.h"

namespace owt {

void Trainer::open_files() {
  checkpoints_.emplace(job_.run_folder, job_.settings.run.keep_checkpoints);
  // First, since a run that stops before its next checkpoint resumes from this one, and metrics must end there.
  if (job_.same_run && !job_.from_memory) checkpoints_->resume_from(job_.resume_checkpoint);
  const std::string metrics = job_.run_folder + "/metrics.jsonl";
  drop_metrics_after(metrics, state_.step, state_.evaluated_step);
  auto events = job_.settings.run.tensorboard
                    ? std::make_unique<EventFile>(job_.run_folder, metrics, job_.settings.recipe.to_toml())
                    : nullptr;
  metrics_ = std::make_unique<MetricsLog>(metrics, std::move(events));
  if (job_.continues)
    metrics_->write(WorldRecord{state_.step, job_.plan.ranks(), run_world().change, job_.repeated_steps, seconds()});
  progress_ = std::make_unique<Progress>();
}

std::string Trainer::what_is_kept() const {
  if (saved_step_ >= 0) return concat("the last checkpoint is kept (step ", saved_step_, ")");
  return job_.resumes() ? "there is no checkpoint since the resume" : "there is no checkpoint yet";
}

std::string Trainer::how_to_resume() const {
  return concat(what_is_kept(), saved_step_ >= 0 ? "; resume with --resume auto" : "; start the command again");
}

void Trainer::log_losses() {
  if (!writes() || !job_.tolerates_loss()) return;
  const std::vector<std::string> losses = tolerated_losses();
  for (; logged_losses_ < losses.size(); ++logged_losses_)
    log_warn(
        "{}; training continues without it, and its rows are redistributed at the next epoch, checkpoint or evaluation",
        losses[logged_losses_]);
}

void Trainer::record(const StepResult& result, const Started& started) {
  const double loss = result.sums.loss / static_cast<double>(result.sums.rows);
  const double top1 = static_cast<double>(result.sums.top1) / static_cast<double>(result.sums.rows);
  const int64_t epochs = steps_per_epoch(total_steps_ - more_steps_, batches_->steps_per_epoch());
  progress_->update({started.step, total_steps_, started.epoch, epochs, loss, top1, started.lr, data_wait_s_},
                    result.sums.rows);
  if (started.step == first_step_ + 1) log_convolutions(), write_start();
  if (!is_logged(started.step)) return;
  const double data_wait_ms = waited_steps_ > 0 ? data_wait_ms_ / static_cast<double>(waited_steps_) : 0;
  metrics_->write(TrainRecord{started.step, started.epoch, loss, top1, started.lr, progress_->images_per_second(),
                              data_wait_ms, job_.corrupt ? job_.corrupt->count() : 0,
                              job_.plan.has_norms() ? std::optional(result.gradient_norm) : std::nullopt,
                              job_.plan.request.loss.samples() ? std::optional(result.sampled_classes) : std::nullopt,
                              seconds()});
  data_wait_ms_ = 0;
  waited_steps_ = 0;
}

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
                                    "; ", how_to_resume());
    if (writes()) throw NoRoom(what);
    throw Aborted(what);
  }
  if (!writes()) return;
  if (!no_room_.empty()) throw NoRoom(concat("the evaluation could not be added to the last checkpoint: ", no_room_));
  if (!metrics_->is_complete())
    throw NoRoom(concat("there was no room for the last lines of ", metrics_->path(), "; the checkpoint is whole"));
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

}  // namespace owt
