#include "src/train/start_log.h"

#include "src/core/threads.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_table.h"
#include "src/roster/membership.h"
#include "src/system/log.h"
#include "src/train/session.h"

namespace owt {
namespace {

// Logs how a step is dealt if workers have different numbers of images without shares.
void log_uneven_rows(const Plan& plan, const Settings& settings) {
  const StepRows rows = rows_of(plan, plan.request.step_rows);
  const int workers = plan.computing_ranks();
  if (!settings.parallel.shares.empty() || rows.least(workers) == rows.most()) return;
  const int64_t group = row_group(plan, 0);
  log_info("a step's images are dealt as evenly as possible{}: {}",
           group > 1 ? format(" in groups of {} (batch_norm's 'rows')", group) : "", rows.text());
  int idle = 0;
  for (int rank = 0; rank < workers; ++rank) idle += rows.of(rank).size() == 0 ? 1 : 0;
  if (idle > 0)
    log_warn("{} of {} workers {} no images in any step; use fewer workers, or a larger batch (data.batch)", idle,
             workers, idle == 1 ? "has" : "have");
}

void log_classes(const Job& job) {
  const Settings& s = job.settings;
  const Split evaluated = s.data.evaluated();
  const std::string untrained = untrained_text(*job.train, *job.images(evaluated), kind_of(evaluated));
  if (!untrained.empty()) log_warn("{}", untrained);
  if (s.data.sampling != Sampling::kBalanced) return;
  const std::string balance = balance_text(*job.train);
  log_info("balanced sampling{}", balance.empty() ? "; all classes have equally many images" : " shows " + balance);
}

// How the learning rate grows with the workers; empty: it does not.
std::string rate_scale_text(const Plan& plan, const Settings& settings) {
  const double front = settings.front_rate_scale(plan), back = settings.back_rate_scale(plan);
  if (front == 1 && back == 1) return "";
  return format(" x {:g} (dense layers x {:g}), scale_lr = {}", front, back, settings.parallel.scale_lr);
}

}  // namespace

void log_start(const Job& job, bool records, int64_t step, int64_t total_steps) {
  const Plan& plan = job.plan;
  const Settings& s = job.settings;
  int64_t weights = 0;
  for (const LayerPlan& layer : plan.layers) weights += layer.parameters;
  log_info("model {}: {} layers, {:.2f} M parameters; {} training and {} {} images", s.model.name, plan.layers.size(),
           static_cast<double>(weights) / 1e6, job.train->size(), job.images(s.data.evaluated())->size(),
           kind_of(s.data.evaluated()));
  log_classes(job);
  if (const std::string frozen = frozen_text(plan); !frozen.empty()) log_info("{}", frozen);
  const std::string threads = format("{} thread{}", team_size(), team_size() == 1 ? "" : "s");
  if (plan.ranks() == 1)
    log_info("1 worker x {}; {} images per step", threads, plan.request.step_rows);
  else
    log_info("{} workers x {}, strategy {}, dense update every {}; {} images per step, {} per worker", plan.ranks(),
             threads, name_of(plan.request.strategy),
             plan.request.dense_update == DenseUpdate::kStep ? "step" : "round", plan.request.step_rows,
             rows_of(plan, plan.request.step_rows).text());
  log_uneven_rows(plan, s);
  if (plan.request.slices > 1)
    log_info("gradient accumulation: {} micro-batches per step, up to {} images per worker at a time",
             plan.request.slices, rows_of(plan, plan.request.step_rows).slice(0).most());
  if (plan.request.on.device == Device::kCuda)
    log_info("on the GPU in {}, {}", name_of(plan.request.on.precision),
             records ? "steps recorded as CUDA graphs" : "without CUDA graphs");
  log_device(s);
  for (const std::string& note : plan_notes(plan)) log_info("{}", note);
  if (s.optimizer.type != OptimizerSettings::Type::kSgd) log_info("optimizer {}", s.optimizer.name());
  const std::string steps = format("{} step{}", total_steps, total_steps == 1 ? "" : "s");
  log_info("learning rate {:g}{}; {}{}", s.optimizer.learning_rate, rate_scale_text(plan, s), steps,
           plan.ranks() == 1 ? "" : format("; each worker sends {} a step", sent_text(plan, 2)));
  if (s.parallel.scale_lr != "none" && s.data.batch > 0 && plan.ranks() > 1)
    log_warn("scale_lr = {} raises the rate with the workers, but data.batch keeps the step at {} images",
             s.parallel.scale_lr, s.data.batch);
  if (job.from_memory)
    log_info("{}; {} worker{} from step {} of {}, by the state in memory", run_world().change, plan.ranks(),
             plan.ranks() == 1 ? " continues" : "s continue", step, total_steps);
  if (!job.resume_checkpoint.empty())
    log_info("resumed from {} at step {} of {}{}", job.resume_checkpoint, step, total_steps,
             step < total_steps ? "" : ": already finished; give more --steps or --epochs to continue");
}

void log_mirror(const Mirror& mirror, int64_t every) {
  const int64_t sent = mirror.bytes_per_renewal();
  log_info("every {} step{} the state is copied to memory{}", every, every == 1 ? "" : "s",
           sent == 0 ? "" : format(", and worker 0 sends {:.3g} MB of it", static_cast<double>(sent) / 1e6));
}

}  // namespace owt
