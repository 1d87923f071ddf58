#include "src/simulate/virtual_run.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/comm/signals.h"
#include "src/core/threads.h"
#include "src/plan/order.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/predict/memory_need.h"
#include "src/system/log.h"
#include "src/train/memory_check.h"
#include "src/train/start_facts.h"

namespace owt {
namespace {

std::vector<VirtualParam> params_of(const Plan& plan) {
  std::vector<VirtualParam> params;
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i) {
    const LayerPlan& layer = plan.layer(i);
    for (size_t p = 0; p < layer.params.size(); ++p) params.push_back({i, layer.roles[p], layer.params[p].elements()});
  }
  return params;
}

int64_t bytes_of(const std::vector<VirtualParam>& params) {
  return std::accumulate(params.begin(), params.end(), int64_t{0},
                         [](int64_t sum, const VirtualParam& each) { return sum + each.bytes(); });
}

std::future<WorkerGradient> at_once(WorkerGradient gradient) {
  std::promise<WorkerGradient> promise;
  promise.set_value(std::move(gradient));
  return promise.get_future();
}

// Zhang et al. 2016, "Staleness-aware Async-SGD for Distributed Deep Learning", equation 6.
void shrink(WorkerGradient& gradient, int64_t staleness) {
  if (staleness < 2) return;
  const float factor = 1 / static_cast<float>(staleness);
  for (Tensor& each : gradient.of_params)
    for (int64_t i = 0; each.defined() && i < each.elements(); ++i) each.data()[i] *= factor;
}

}  // namespace

int64_t bytes_of_simulation(const Plan& plan, int threads) {
  const int64_t weights = weight_bytes_per_rank(plan), batch = step_bytes(plan, {}, 0);
  const int64_t network =
      weights + gradient_bytes_per_rank(plan) + step_bytes(plan, training(plan, plan.request.step_rows), 0);
  const int64_t central = weights * (1 + plan.request.optimizer_states);
  return threads * network + plan.ranks() * (velocity_bytes_per_rank(plan) + kLoadedBatches * batch) + central;
}

VirtualRun::VirtualRun(const Job& job, const VirtualCluster& cluster, const ComputeModel& compute, int threads)
    : job_(job),
      cluster_(cluster),
      compute_(compute),
      workers_(workers_of(job, cluster)),
      learning_(job, cluster, per_epoch()),
      times_(job, cluster, compute),
      consistency_(job.plan.ranks(), cluster.rules_from > 0 ? ConsistencyRules() : cluster.rules),
      links_(clock_, cluster, job.plan.ranks()),
      params_(params_of(job.plan)),
      bytes_(bytes_of(params_)),
      update_seconds_(cluster.planned ? 0 : times_.of_update()),
      changed_at_(params_.size(), 1),
      changes_(1) {
  static_cast<void>(Consistency(job.plan.ranks(), cluster.rules));
  for (int64_t layer = 0; layer < std::ssize(job.plan.layers); ++layer)
    if (job.plan.layer(layer).learns()) blocks_.push_back(layer);
  if (!cluster.times_only) pool_.emplace(job, threads);
}

int64_t VirtualRun::per_epoch() const {
  return cluster_.times_only ? job_.settings.schedule.max_steps : workers_.front().batches->steps_per_epoch();
}

std::vector<VirtualRun::VirtualWorker> VirtualRun::workers_of(const Job& job, const VirtualCluster& cluster) {
  std::vector<VirtualWorker> workers(static_cast<size_t>(job.plan.ranks()));
  for (int w = 0; w < job.plan.ranks(); ++w) {
    if (!cluster.times_only) workers[static_cast<size_t>(w)].batches = training_batches(job, w, 0, 0);
    workers[static_cast<size_t>(w)].filter.emplace(cluster.filters, job.settings.run.seed, w);
  }
  return workers;
}

// The calling thread gets a team of one, since an idle team spins for a while on cores that compute gradients.
VirtualOutcome VirtualRun::run() {
  set_team_size(1);
  learning_.open_files();
  if (learning_.metrics()) write_start();
  start_who_may();
  const auto end = [&](const std::string& how) {
    if (learning_.metrics()) learning_.metrics()->write(EndRecord{learning_.step(), how, clock_.now()});
  };
  try {
    while (!learning_.is_over() && !stop_requested() && clock_.step()) {
    }
  } catch (const Diverged&) {
    end("diverged");
    throw;
  }
  VirtualOutcome outcome{learning_.is_over(), learning_.last_evaluation(), clock_.now(), summary()};
  if (learning_.metrics()) learning_.metrics()->write(outcome.record);
  end(outcome.finished ? "finished" : "stopped");
  learning_.check_that_all_is_written();
  return outcome;
}

void VirtualRun::start_who_may() {
  for (int w = 0; w < std::ssize(workers_); ++w)
    if (at(w).waits && consistency_.may_start(w)) pull(w);
}

void VirtualRun::pull(int worker) {
  VirtualWorker& its = at(worker);
  its.waits = false;
  its.since = clock_.now();
  if (cluster_.planned) {
    read(its, worker);
    return compute(worker);
  }
  if (goes_alone() && its.tasks % cluster_.pull_every != 0) {
    its.push.task = consistency_.start(worker);
    return compute(worker);
  }
  links_.ask([=, this] { clock_.at(std::max(clock_.now(), servers_free_at_), [=, this] { answer(worker); }); });
}

void VirtualRun::read(VirtualWorker& its, int worker) {
  its.weights = learning_.weights_of(worker);
  its.has = changes_;
  its.push = {worker, consistency_.start(worker), consistency_.updates()};
}

void VirtualRun::answer(int worker) {
  const int64_t bytes = news(at(worker));
  read(at(worker), worker);
  links_.pull(worker, bytes, [=, this] { compute(worker); });
}

void VirtualRun::compute(int worker) {
  VirtualWorker& its = at(worker);
  its.on_the_way += clock_.now() - its.since;
  const int64_t task = its.push.task, rows = begin(its, worker);
  its.since = clock_.now();
  its.seconds = cluster_.planned ? times_.of_planned_task(worker, task)
                                 : times_.of_task(worker, task, rows, block_of(task)) +
                                       times_.of_messages(worker, task, links_.take_handled(worker));
  clock_.after(cluster_.planned ? times_.of_planned_step(task) : its.seconds, [=, this] { computed(worker); });
}

// Starts to compute the gradient of its task, and returns the task's rows.
int64_t VirtualRun::begin(VirtualWorker& its, int worker) {
  const int64_t task = its.push.task;
  if (!pool_) {
    WorkerGradient nothing;
    nothing.step_rows = job_.plan.request.step_rows;
    nothing.rows = nothing.result.sums.rows = rows_of(job_.plan, nothing.step_rows).of(worker).size();
    nothing.share = static_cast<double>(nothing.rows) / static_cast<double>(nothing.step_rows);
    its.gradient = at_once(nothing);
    return nothing.rows;
  }
  const Batch* batch = nullptr;
  while (its.batch <= task) batch = &its.batches->next(host_), ++its.batch;
  its.gradient = pool_->compute(worker, its.weights, *batch, task);
  return batch->labels.shape().rows();
}

bool VirtualRun::goes_alone() const {
  return !consistency_.rules().by_task() && (cluster_.pull_every > 1 || cluster_.push_every > 1);
}

void VirtualRun::computed(int worker) {
  VirtualWorker& its = at(worker);
  its.computing += std::exchange(its.seconds, 0);
  ++its.tasks;
  if (!goes_alone()) return push(worker);
  const WorkerGradient gradient = its.gradient.get();
  if (cluster_.pull_every > 1) {
    if (pool_) its.weights = learning_.moved(its.weights, gradient, consistency_.rules());
    its.has = 0;
  }
  its.kept ? its.kept->add(gradient) : void(its.kept = gradient);
  if (its.tasks % cluster_.push_every == 0) return push(worker);
  its.waits = true;
  start_who_may();
}

void VirtualRun::push(int worker) {
  VirtualWorker& its = at(worker);
  its.since = clock_.now();
  if (cluster_.planned) {
    its.on_the_way += cluster_.planned->exposed_s;
    return arrive(worker);
  }
  links_.push(worker, filter(its), [=, this] { arrive(worker); });
}

void VirtualRun::arrive(int worker) {
  VirtualWorker& its = at(worker);
  its.on_the_way += clock_.now() - its.since;
  its.waits = true;
  WorkerGradient gradient = its.kept ? *std::exchange(its.kept, {}) : its.gradient.get();
  if (!consistency_.is_late(its.push)) arrived_[{worker, its.push.task}] = std::move(gradient);
  const std::vector<Push> with = consistency_.take(its.push);
  if (!with.empty()) {
    servers_free_at_ = std::max(clock_.now(), servers_free_at_) + update_seconds_;
    clock_.at(servers_free_at_, [=, this] { update(with); });
  }
  start_who_may();
}

void VirtualRun::update(const std::vector<Push>& with) {
  std::vector<WorkerGradient> gradients;
  for (const Push& push : with) gradients.push_back(std::move(arrived_.extract({push.worker, push.task}).mapped()));
  int64_t tasks = 0;
  for (size_t i = 0; i < with.size(); ++i) {
    const int64_t staleness = consistency_.staleness(with[i]);
    ++staleness_[staleness];
    tasks += gradients[i].tasks;
    if (cluster_.rate_by_staleness) shrink(gradients[i], staleness);
  }
  learning_.update(with, gradients, consistency_.rules());
  note_change(with.front().task, gradients);
  counted_ += consistency_.rules().by_task() ? std::ssize(workers_) : tasks;
  consistency_.updated(with);
  while (learning_.step() < counted_ / std::ssize(workers_) && !learning_.is_over()) {
    learning_.finish_step(clock_.now(), pool_ ? &*pool_ : nullptr);
    change_rules();
  }
  if (!learning_.is_over()) start_who_may();
}

// All gradients of a block belong to one task; gradients without rows change nothing.
void VirtualRun::note_change(int64_t task, const std::vector<WorkerGradient>& by) {
  if (std::ranges::none_of(by, [](const WorkerGradient& each) { return each.rows > 0; })) return;
  ++changes_;
  for (size_t p = 0; p < params_.size(); ++p)
    if (is_of_block(p, task)) changed_at_[p] = changes_;
}

void VirtualRun::change_rules() {
  if (learning_.epochs() < cluster_.rules_from || consistency_.rules() == cluster_.rules) return;
  log_info("simulated: from step {} on, {}", learning_.step(), cluster_.rules.text());
  consistency_.change(cluster_.rules);
}

void VirtualRun::write_start() {
  std::vector<std::pair<std::string, std::string>> facts = facts_of_start(job_);
  std::erase_if(facts, [](const auto& fact) {
    return fact.first == "strategy" || fact.first == "threads of each" || fact.first.starts_with("sent by");
  });
  const auto add = [&](const std::string& name, const std::string& value) { facts.emplace_back(name, value); };
  add("simulated", "times are those of a model, not measured");
  if (cluster_.times_only) add("learnt", "nothing, only times were wanted");
  add("strategy", cluster_.planned ? cluster_.planned->strategy : concat("ps, ", cluster_.rules.text()));
  if (cluster_.filters.any()) add("filters", cluster_.filters.text());
  if (!cluster_.planned)
    add("servers", cluster_.servers == kOnWorkers ? "the workers" : std::to_string(cluster_.servers));
  add("compute times", compute_.text());
  add("links", format("{:g} MB/s, {:g} us", cluster_.link.bytes_per_s / 1e6, cluster_.link.latency_s * 1e6));
  if (cluster_.message_work > 0) add("work for messages", format("{:g} ms/MB", cluster_.message_work * 1e9));
  learning_.metrics()->write(StartRecord{0, 0, per_epoch(), std::move(facts)});
}

SimulationRecord VirtualRun::summary() {
  SimulationRecord record{
      .step = learning_.step(), .updates = consistency_.updates(), .dropped = consistency_.dropped()};
  for (int w = 0; w < std::ssize(workers_); ++w) {
    const VirtualWorker& each = at(w);
    const double all = std::max(clock_.now(), 1e-300);
    const double under_way = std::min(each.seconds, clock_.now() - each.since);
    record.workers.push_back(
        {each.tasks, (each.computing + under_way) / all, each.on_the_way / all, links_.of_worker(w)});
  }
  record.staleness = {staleness_.begin(), staleness_.end()};
  record.bytes_to_servers = links_.bytes_to_servers();
  record.bytes_to_workers = links_.bytes_to_workers();
  if (cluster_.planned) record.bytes_between_workers = cluster_.planned->bytes * learning_.step();
  if (!cluster_.planned) record.each_server = links_.of_each_server();
  record.seconds = clock_.now();
  return record;
}

}  // namespace owt
