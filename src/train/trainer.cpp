#include "src/train/trainer.h"

#include <filesystem>
#include <iostream>

#include "src/core/log.h"
#include "src/core/threads.h"
#include "src/train/signals.h"
#include "src/train/weights.h"

namespace owt {
namespace {

constexpr const char* kWeightsFile = "weights.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double fraction(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Trainer::Trainer(const Job& job, Communicator& comm)
    : job_(job),
      comm_(comm, &profiler_),
      model_(job.settings.model, job.plan, comm.rank()),
      sgd_(job.settings.optimizer),
      step_(job.plan, model_, sgd_, comm_, &profiler_, job.settings.run.seed),
      schedule_(job.settings.schedule) {
  state_.seed = job.settings.run.seed;
  state_.workers = job.plan.ranks();
  state_.strategy = name_of(job.plan.request.strategy);
  if (!job.resume_checkpoint.empty()) {
    restore();
  } else {
    model_.initialize(job.settings.run.seed);
    if (!job.weights.empty())
      for (const std::string& name : load_weights(job.weights, model_))
        if (writes()) log_warn("{}: nothing in the model takes '{}'", job.weights, name);
  }
  batches_ = training_batches(job, comm.rank(), state_.epoch, state_.step_in_epoch);
  total_steps_ = schedule_.total_steps(batches_->steps_per_epoch());
  first_step_ = state_.step;
  if (!writes()) return;
  const std::string metrics = job.run_folder + "/metrics.jsonl";
  drop_metrics_after(metrics, state_.step);
  metrics_.emplace(metrics);
  progress_.emplace(std::cerr, progress_style());
  checkpoints_.emplace(job.run_folder, job.settings.run.keep_checkpoints);
  log_start();
}

void Trainer::restore() {
  const RunState loaded = load_checkpoint_state(job_.resume_checkpoint);
  const auto folder = std::filesystem::path(job_.resume_checkpoint);
  load_weights((folder / kWeightsFile).string(), model_);
  load_tensors((folder / kOptimizerFile).string(), model_, [this](Param& param) {
    return param.role == ParamRole::kTrained ? sgd_.velocity(param) : Tensor();
  });
  ConvChoices::process().preload(loaded.conv_choices);
  state_.step = loaded.step;
  state_.epoch = loaded.epoch;
  state_.step_in_epoch = loaded.step_in_epoch;
  state_.best_top1 = loaded.best_top1;
  state_.best_step = loaded.best_step;
}

void Trainer::log_start() const {
  const Plan& plan = job_.plan;
  const Settings& s = job_.settings;
  int64_t weights = 0;
  for (const LayerPlan& layer : plan.layers) weights += layer.weight_bytes / 4;
  log_info("model {}: {} layers, {:.2f} M parameters; {} training and {} test images", s.model.name,
           plan.layers.size(), static_cast<double>(weights) / 1e6, job_.train->size(), job_.test->size());
  log_info("{} worker{} x {} thread{}, strategy {}, dense update every {}; {} images per step, {} per worker",
           plan.ranks(), plan.ranks() == 1 ? "" : "s", team_size(), team_size() == 1 ? "" : "s",
           name_of(plan.request.strategy), plan.request.dense_update == DenseUpdate::kStep ? "step" : "round",
           plan.request.step_rows,
           StepRows(plan.rounds_strategy(), plan.ranks(), plan.request.step_rows).most());
  if (!plan.split() && plan.ranks() > 1 && plan.request.strategy != Strategy::kDataParallel)
    log_info("the model has no dense layer to split");
  log_info(
      "learning rate {:g} x {:g} (dense layers x {:g}), scale_lr = {}; {} steps; each worker sends {:.2f} MB "
      "a step",
      s.optimizer.learning_rate, s.front_rate_scale(plan),
      plan.split() ? s.back_rate_scale(plan) : s.front_rate_scale(plan), s.parallel.scale_lr, total_steps_,
      static_cast<double>(plan.bytes_per_step()) / 1e6);
  if (!job_.resume_checkpoint.empty())
    log_info("resumed from {} at step {} of {}", job_.resume_checkpoint, state_.step, total_steps_);
}

bool Trainer::run() {
  while (state_.step < total_steps_) {
    const StepResult result = train_step();
    const bool epoch_ends = state_.step_in_epoch == batches_->steps_per_epoch();
    if (epoch_ends) ++state_.epoch, state_.step_in_epoch = 0;
    if (result.stop && state_.step < total_steps_) {
      save();
      if (writes()) log_info("stopped on a signal after step {}; go on with --resume auto", state_.step);
      return false;
    }
    if (epoch_ends) end_epoch();
    const int64_t every = job_.settings.run.checkpoint_every_steps;
    if (every > 0 && state_.step % every == 0) save();
  }
  if (writes()) progress_->end_epoch();
  run_evaluation();
  save();
  return true;
}

StepResult Trainer::train_step() {
  const int64_t timed = state_.step - first_step_ - std::min(kTimedFrom, (total_steps_ - first_step_) / 2);
  profiler_.enable(timed >= 0 && timed < kTimedSteps);
  profiler_.begin_step();
  const double before = seconds_now();
  const Batch* batch = nullptr;
  {
    const Profiler::Scope scope(&profiler_, "data wait", Phase::kData);
    batch = &batches_->next();
  }
  data_wait_ms_ += (seconds_now() - before) * 1e3;
  ++waited_steps_;
  const double rate =
      job_.settings.optimizer.learning_rate * schedule_.rate(state_.step, batches_->steps_per_epoch());
  const Step::Rates rates{rate * job_.settings.front_rate_scale(job_.plan),
                          rate * job_.settings.back_rate_scale(job_.plan)};
  const StepResult result = step_.train(*batch, state_.step, rates, stop_requested());
  profiler_.end_step();
  ++state_.step;
  ++state_.step_in_epoch;
  if (writes()) record(result, rates.front, data_wait_ms_ / static_cast<double>(waited_steps_));
  return result;
}

void Trainer::record(const StepResult& result, double lr, double data_wait_ms) {
  const double loss = result.sums.loss / static_cast<double>(result.sums.rows);
  const double top1 = fraction(result.sums.top1, result.sums.rows);
  const int64_t epochs = (total_steps_ + batches_->steps_per_epoch() - 1) / batches_->steps_per_epoch();
  progress_->update({state_.step, total_steps_, state_.epoch, epochs, loss, top1, lr}, result.sums.rows);
  if (state_.step == first_step_ + 1)
    for (const std::string& line : ConvChoices::process().report()) {
      progress_->clear();
      log_info("convolution {}", line);
    }
  if (state_.step % job_.settings.run.log_every != 0 && state_.step != 1 && state_.step != total_steps_)
    return;
  metrics_->write(
      TrainRecord{state_.step, state_.epoch, loss, top1, lr, progress_->images_per_second(), data_wait_ms});
  data_wait_ms_ = 0;
  waited_steps_ = 0;
}

void Trainer::end_epoch() {
  const RunSettings& run = job_.settings.run;
  if (writes()) progress_->end_epoch();
  if (state_.step == total_steps_) return;  // run() does the rest
  if (run.eval_every_epochs > 0 && state_.epoch % run.eval_every_epochs == 0) run_evaluation();
  if (run.checkpoint_every_epochs > 0 && state_.epoch % run.checkpoint_every_epochs == 0) save();
}

void Trainer::run_evaluation() {
  if (evaluated_step_ == state_.step) return;
  if (writes()) progress_->clear();
  const double begin = seconds_now();
  last_evaluation_ = evaluate(step_, job_, comm_.rank());
  evaluated_step_ = state_.step;
  const Evaluation& e = *last_evaluation_;
  if (e.top1 > state_.best_top1 || state_.best_step < 0)
    state_.best_top1 = e.top1, state_.best_step = state_.step;
  if (!writes()) return;
  const int64_t epoch = state_.step_in_epoch == 0 ? state_.epoch - 1 : state_.epoch;
  log_info("epoch {}, step {}: test loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % ({} images, {:.1f} s)",
           epoch + 1, state_.step, e.loss, 100 * e.top1, 100 * e.top5, e.images, seconds_now() - begin);
  metrics_->write(EvalRecord{state_.step, epoch, e.loss, e.top1, e.top5, e.images});
  progress_->skip_time();
}

void Trainer::save() {
  if (saved_step_ == state_.step) return;
  if (writes()) progress_->clear();
  const std::string folder = writes() ? checkpoints_->begin(state_.step) : "";
  const uint64_t weights = save_tensors(
      folder + "/" + kWeightsFile, job_.plan, model_, [](Param& param) { return param.value; }, comm_);
  const uint64_t optimizer = save_tensors(
      folder + "/" + kOptimizerFile, job_.plan, model_,
      [this](Param& param) { return param.role == ParamRole::kTrained ? sgd_.velocity(param) : Tensor(); },
      comm_);
  saved_step_ = state_.step;
  if (!writes()) return;
  state_.conv_choices = ConvChoices::process().exported();
  state_.checksums = {{kWeightsFile, weights}, {kOptimizerFile, optimizer}};
  checkpoints_->commit(state_);
  progress_->skip_time();
}

}  // namespace owt
