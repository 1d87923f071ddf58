#include "src/simulate/virtual_learning.h"

#include <numeric>
#include <utility>

#include "src/system/log.h"
#include "src/system/no_room.h"

namespace owt {
namespace {

double ratio(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

}  // namespace

VirtualLearning::VirtualLearning(const Job& job, const VirtualCluster& cluster, int64_t steps_per_epoch)
    : job_(job),
      cluster_(cluster),
      per_epoch_(steps_per_epoch),
      central_job_(job_of_one(job)),
      central_(cluster.times_only ? nullptr : std::make_unique<CentralWeights>(central_job_)),
      schedule_(job.settings.schedule),
      total_steps_(schedule_.total_steps(steps_per_epoch)) {
  state_.seed = job.settings.run.seed;
  state_.workers = job.plan.ranks();
  state_.strategy = cluster.planned ? cluster.planned->strategy : "ps";
  state_.step_rows = job.plan.request.step_rows;
  state_.images = job.train ? job.train->size() : 0;
  state_.data = job.train_checksum;
  state_.optimizer = job.settings.optimizer.name();
}

void VirtualLearning::open_files() {
  if (job_.run_folder.empty()) return;
  metrics_ = std::make_unique<MetricsLog>(job_.run_folder + "/metrics.jsonl");
  checkpoints_.emplace(job_.run_folder, job_.settings.run.keep_checkpoints);
}

double VirtualLearning::epochs() const { return ratio(state_.step, per_epoch_); }

WeightSnapshot VirtualLearning::weights_of(int worker) {
  if (!central_) return nullptr;
  return local_.empty() ? central_->snapshot() : local_[static_cast<size_t>(worker)]->snapshot();
}

WeightSnapshot VirtualLearning::moved(const WeightSnapshot& weights, const WorkerGradient& gradient,
                                      const ConsistencyRules& rules) const {
  const double times = cluster_.full_rate && gradient.rows > 0 ? ratio(gradient.step_rows, gradient.rows) : 1;
  return central_->moved(weights, gradient, rates(rules), times);
}

void VirtualLearning::update(const std::vector<Push>& with, std::vector<WorkerGradient>& gradients,
                             const ConsistencyRules& rules) {
  double share = 0;
  int64_t tasks = 0;
  for (const WorkerGradient& gradient : gradients) {
    sums_ += gradient.result.sums;
    share += gradient.share;
    tasks += gradient.tasks;
  }
  if (rules.by_task() || cluster_.full_rate) share = ratio(tasks, std::ssize(with));
  if (!central_) return;
  const Step::Rates now = rates(rules);
  rate_ = now.front;
  if (learns_locally(with.front().task))
    learn_locally(with, gradients, now);
  else
    central_->update(gradients, now, share);
}

bool VirtualLearning::learns_locally(int64_t task) const {
  return cluster_.planned && job_.settings.parallel.average_every > 1 &&
         ratio(task, per_epoch_) >= job_.settings.parallel.average_from;
}

// Weights are averaged before anything reads them, as in Trainer.
bool VirtualLearning::averages_after(int64_t task) const {
  return (task + 1) % job_.settings.parallel.average_every == 0 || evaluates_after(task + 1) || saves_after(task + 1);
}

// Updates each worker with its own gradient, at the full rate.
void VirtualLearning::learn_locally(const std::vector<Push>& with, std::vector<WorkerGradient>& gradients,
                                    const Step::Rates& rates) {
  const auto workers = static_cast<size_t>(job_.plan.ranks());
  if (local_.empty()) {
    for (size_t w = 0; w < workers; ++w)
      local_.emplace_back(std::make_unique<CentralWeights>(central_job_))->take(*central_);
    local_rows_.assign(workers, 0);
  }
  for (size_t i = 0; i < with.size(); ++i) {
    const auto worker = static_cast<size_t>(with[i].worker);
    local_rows_[worker] += gradients[i].rows;
    local_[worker]->update({&gradients[i], 1}, rates, 1);
  }
  if (!averages_after(with.front().task)) return;
  std::vector<double> shares;
  const int64_t rows = std::accumulate(local_rows_.begin(), local_rows_.end(), int64_t{0});
  for (const int64_t of_worker : local_rows_) shares.push_back(ratio(of_worker, rows));
  central_->average(local_, shares);
  for (auto& each : local_) each->take(*central_);
  local_rows_.assign(workers, 0);
}

// An evaluation comes after the checkpoint, as in a real run, since evaluation images may be damaged.
void VirtualLearning::finish_step(double now, GradientPool* evaluator) {
  ++state_.step;
  state_.epoch = state_.step / per_epoch_;
  state_.images_in_epoch = state_.step % per_epoch_ * state_.step_rows;
  record(now);
  if (!central_) return;
  if (saves_after(state_.step)) save();
  if (evaluates_after(state_.step)) evaluate(now, *evaluator);
}

bool VirtualLearning::comes_round(int64_t step, int64_t every_epochs, int64_t every_steps) const {
  const bool at_epoch = every_epochs > 0 && step % (per_epoch_ * every_epochs) == 0;
  return at_epoch || (every_steps > 0 && step % every_steps == 0);
}

bool VirtualLearning::evaluates_after(int64_t step) const {
  const RunSettings& run = job_.settings.run;
  return step >= total_steps_ || comes_round(step, run.eval_every_epochs, run.eval_every_steps);
}

bool VirtualLearning::saves_after(int64_t step) const {
  const RunSettings& run = job_.settings.run;
  return step >= total_steps_ || comes_round(step, run.checkpoint_every_epochs, run.checkpoint_every_steps);
}

bool VirtualLearning::out_of_patience() const {
  const int64_t most = job_.settings.run.patience;
  return most > 0 && state_.since_best >= most;
}

void VirtualLearning::record(double now) {
  const LossSums sums = std::exchange(sums_, {});
  if (sums.rows == 0) return;
  images_ += sums.rows;
  const double loss = central_ ? sums.loss / static_cast<double>(sums.rows) : NAN;
  const double top1 = central_ ? ratio(sums.top1, sums.rows) : NAN;
  const int64_t epoch = (state_.step - 1) / per_epoch_;
  if (central_) {
    progress_.update(
        {state_.step, total_steps_, epoch, (total_steps_ + per_epoch_ - 1) / per_epoch_, loss, top1, rate_, 0},
        sums.rows);
    if (state_.images_in_epoch == 0 || state_.step == total_steps_) progress_.end_epoch();
  }
  if (state_.step % job_.settings.run.log_every != 0 && state_.step != 1 && state_.step != total_steps_) return;
  const double passed = now - recorded_at_;
  if (metrics_)
    metrics_->write(TrainRecord{.step = state_.step,
                                .epoch = epoch,
                                .loss = loss,
                                .top1 = top1,
                                .lr = rate_,
                                .images_per_second = static_cast<double>(std::exchange(images_, 0)) / passed,
                                .seconds = now});
  recorded_at_ = now;
}

void VirtualLearning::evaluate(double now, GradientPool& evaluator) {
  last_evaluation_ = evaluator.evaluate(central_->snapshot());
  const Evaluation& e = last_evaluation_;
  const bool best = e.top1 > state_.best_top1 || state_.best_step < 0;
  state_.since_best = best ? 0 : state_.since_best + 1;
  if (best) state_.best_top1 = e.top1, state_.best_step = state_.step;
  state_.evaluated_step = state_.step;
  const RunSettings& run = job_.settings.run;
  if (comes_round(state_.step, run.eval_every_epochs, run.eval_every_steps))
    schedule_.note_evaluation(e.loss, e.top1, state_.plateau);
  const int64_t epoch = state_.images_in_epoch == 0 ? state_.epoch - 1 : state_.epoch;
  const Split split = job_.settings.data.evaluated();
  log_info("simulated {:.3f} s, epoch {}, step {}: {} loss {:.4f}, {}", now, epoch + 1, state_.step, kind_of(split),
           e.loss, accuracy_text(e, job_.settings.model.classes));
  EvalRecord record{split, state_.step, epoch, e.loss, e.top1, e.top5, e.images, false, now};
  if (job_.settings.optimizer.l1 > 0) {
    record.penalty = central_->penalty();
    log_info("simulated: the L1 penalty is {:.4f}, and {:.1f} % of the weights that it is on are 0",
             record.penalty->loss, 100 * record.penalty->zeros);
  }
  metrics_->write(record);
  // Without room, the next checkpoint has the evaluation.
  if (saved_step_ == state_.step && !checkpoints_->note_evaluation(state_).empty()) unnoted_step_ = state_.step;
  if (best) save();
  progress_.skip_time();
}

void VirtualLearning::save() {
  if (saved_step_ == state_.step || unsaved_step_ == state_.step) return;
  try {
    const std::string folder = checkpoints_->begin(state_.step);
    state_.conv_choices = ConvChoices::process().exported();
    central_->save(folder, state_);
    checkpoints_->commit(state_);
    saved_step_ = state_.step;
  } catch (const NoRoom& e) {
    unsaved_step_ = state_.step;
    checkpoints_->give_up(state_.step, e.what(), true);
  }
  progress_.skip_time();
}

void VirtualLearning::check_that_all_is_written() const {
  if (unsaved_step_ == state_.step)
    throw NoRoom(concat("there was no room for the last checkpoint, of step ", state_.step));
  if (unnoted_step_ >= 0 && unnoted_step_ == saved_step_)
    throw NoRoom(concat("there was no room for the last evaluation in the checkpoint of step ", saved_step_));
  if (metrics_ && !metrics_->is_complete())
    throw NoRoom(concat("there was no room for the last lines of ", metrics_->path()));
}

Step::Rates VirtualLearning::rates(const ConsistencyRules& rules) const {
  const Settings& s = job_.settings;
  const int64_t per = per_epoch_;
  const double delay = cluster_.rate_by_delay * static_cast<double>(rules.delay);
  const double scale = s.front_rate_scale(job_.plan) / (1 + delay);
  const double weights = s.optimizer.learning_rate * schedule_.rate(state_.step, per, state_.plateau) * scale;
  const double biases = s.optimizer.learning_rate * schedule_.bias_rate(state_.step, per, state_.plateau) * scale;
  return {weights, weights, biases, biases, s.optimizer.sgd_share(ratio(state_.step, per))};
}

}  // namespace owt
