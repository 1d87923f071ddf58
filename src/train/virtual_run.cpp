#include "src/train/virtual_run.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "data/order.h"
#include "src/core/log.h"
#include "src/core/philox.h"
#include "src/core/threads.h"
#include "src/train/signals.h"
#include "src/train/start_facts.h"

namespace owt {
namespace {

double ratio(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

// f32, of the parameters that learn.
int64_t bytes_that_travel(const Plan& plan) {
  int64_t bytes = 0;
  for (const LayerPlan& layer : plan.layers)
    for (size_t p = 0; p < layer.params.size(); ++p)
      if (learns(layer.roles[p])) bytes += layer.params[p].elements() * size_of(DType::kF32);
  return bytes;
}

int servers_of(const VirtualCluster& cluster, int workers) {
  return cluster.servers == kOnWorkers ? workers : cluster.servers;
}

// Of every worker the way out and the way in, and those of all servers together that are not workers.
std::vector<double> links_of(const VirtualCluster& cluster, int workers) {
  std::vector<double> links(2 * static_cast<size_t>(workers), cluster.link.bytes_per_s);
  if (cluster.servers != kOnWorkers) links.insert(links.end(), 2, cluster.link.bytes_per_s * cluster.servers);
  return links;
}

// Every server updates its part at the same time.
double seconds_of_update(const Plan& plan, const ComputeModel& compute, int servers) {
  double seconds = 0;
  for (size_t layer = 0; layer < plan.layers.size(); ++layer)
    if (plan.layers[layer].learns()) seconds += compute.update(layer, 1.0 / servers);
  return seconds;
}

// Zhang et al. 2016, "Staleness-aware Async-SGD for Distributed Deep Learning", equation 6.
void shrink(WorkerGradient& gradient, int64_t staleness) {
  if (staleness < 2) return;
  const float factor = 1 / static_cast<float>(staleness);
  for (Tensor& each : gradient.of_params)
    for (int64_t i = 0; each.defined() && i < each.elements(); ++i) each.data()[i] *= factor;
}

}  // namespace

VirtualRun::VirtualRun(const Job& job, const VirtualCluster& cluster, const ComputeModel& compute, int threads)
    : job_(job),
      cluster_(cluster),
      threads_(threads),
      compute_(compute),
      central_job_(job_of_one(job)),
      central_(central_job_),
      schedule_(job.settings.schedule),
      consistency_(job.plan.ranks(), cluster.rules_from > 0 ? ConsistencyRules() : cluster.rules),
      links_(clock_, links_of(cluster, job.plan.ranks())),
      bytes_(bytes_that_travel(job.plan)),
      update_seconds_(cluster.planned ? 0
                                      : seconds_of_update(job.plan, compute, servers_of(cluster, job.plan.ranks()))),
      workers_(static_cast<size_t>(job.plan.ranks())),
      metrics_(job.run_folder + "/metrics.jsonl"),
      checkpoints_(job.run_folder, job.settings.run.keep_checkpoints),
      pool_(job, threads) {
  static_cast<void>(Consistency(job.plan.ranks(), cluster.rules));
  for (int64_t layer = 0; layer < std::ssize(job.plan.layers); ++layer) {
    const LayerPlan& of = job.plan.layers[static_cast<size_t>(layer)];
    layer_of_.insert(layer_of_.end(), of.params.size(), layer);
    if (of.learns()) blocks_.push_back(layer);
  }
  for (int w = 0; w < job.plan.ranks(); ++w) {
    at(w).batches = training_batches(job, w, 0, 0);
    at(w).filter.emplace(cluster.filters, job.settings.run.seed, w);
  }
  total_steps_ = schedule_.total_steps(per_epoch());
  state_.seed = job.settings.run.seed;
  state_.workers = job.plan.ranks();
  state_.strategy = cluster.planned ? cluster.planned->strategy : "ps";
  state_.step_rows = job.plan.request.step_rows;
  state_.images = job.train->size();
  state_.optimizer = job.settings.optimizer.name();
}

// A team that has worked spins for a while, on the cores that gradients are computed on.
VirtualOutcome VirtualRun::run() {
  set_team_size(1);
  write_start();
  start_who_may();
  const auto end = [&](const std::string& how) { metrics_.write(EndRecord{state_.step, how, clock_.now()}); };
  try {
    while (!is_over() && !stop_requested() && clock_.step()) {
    }
  } catch (const Diverged&) {
    end("diverged");
    throw;
  }
  VirtualOutcome outcome{is_over(), last_evaluation_, clock_.now(), summary()};
  metrics_.write(outcome.record);
  end(outcome.finished ? "finished" : "stopped");
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
  clock_.after(cluster_.link.latency_s,
               [=, this] { clock_.at(std::max(clock_.now(), servers_free_at_), [=, this] { answer(worker); }); });
}

int64_t VirtualRun::that_travel(int64_t bytes) const {
  const auto workers = std::ssize(workers_);
  return workers_serve() ? bytes * (workers - 1) / workers : bytes;
}

// All of it passes through the worker's own link; and through those of the servers.
SharedLinks::Way VirtualRun::way(int worker, bool to_servers) const {
  const auto out = [](size_t of) { return 2 * of; };
  const auto in = [](size_t of) { return 2 * of + 1; };
  const auto own = static_cast<size_t>(worker);
  SharedLinks::Way way{{to_servers ? out(own) : in(own)}};
  if (!workers_serve()) way.push_back({to_servers ? in(workers_.size()) : out(workers_.size())});
  for (size_t other = 0; workers_serve() && other < workers_.size(); ++other)
    if (other != own)
      way.push_back({to_servers ? in(other) : out(other), 1 / static_cast<double>(workers_.size() - 1)});
  return way;
}

void VirtualRun::read(VirtualWorker& its, int worker) {
  its.weights = local_.empty() ? central_.snapshot() : local_[static_cast<size_t>(worker)]->snapshot();
  its.push = {worker, consistency_.start(worker), consistency_.updates()};
}

void VirtualRun::answer(int worker) {
  const int64_t bytes = that_travel(news(at(worker), central_.snapshot()));
  read(at(worker), worker);
  to_workers_ += bytes;
  links_.send(bytes, way(worker, false),
              [=, this] { clock_.after(cluster_.link.latency_s, [=, this] { compute(worker); }); });
}

void VirtualRun::compute(int worker) {
  VirtualWorker& its = at(worker);
  its.on_the_way += clock_.now() - its.since;
  const Batch* batch = nullptr;
  while (its.batch <= its.push.task) batch = &its.batches->next(host_), ++its.batch;
  its.gradient = pool_.compute(worker, its.weights, *batch, its.push.task);
  const double alone = cluster_.planned ? cluster_.planned->compute_s
                                        : compute_seconds(batch->labels.shape().rows(), block_of(its.push.task));
  its.since = clock_.now();
  its.seconds = alone * slowness(worker, its.push.task);
  clock_.after(cluster_.planned ? seconds_of_step(its.push.task) : its.seconds, [=, this] { computed(worker); });
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
  const double times = cluster_.full_rate && gradient.rows > 0 ? ratio(gradient.step_rows, gradient.rows) : 1;
  if (cluster_.pull_every > 1) its.weights = central_.moved(its.weights, gradient, rates(), times);
  its.kept ? its.kept->add(gradient) : void(its.kept = gradient);
  if (its.tasks % cluster_.push_every == 0) return push(worker);
  its.waits = true;
  start_who_may();
}

// The bytes that travel.
int64_t VirtualRun::filter(VirtualWorker& its) {
  const bool blocks = cluster_.blocks != BlockOrder::kNone;
  if (!cluster_.filters.any() && !blocks) return bytes_;
  if (!its.kept) its.kept = its.gradient.get();
  if (blocks) drop_other_blocks(*its.kept, its.push.task);
  int64_t bytes = 0;
  for (size_t p = 0; p < its.kept->of_params.size(); ++p) {
    Tensor& tensor = its.kept->of_params[p];
    if (!tensor.defined() || its.kept->rows == 0) continue;
    const std::span values(tensor.data(), static_cast<size_t>(tensor.elements()));
    if (central_.role(p) != ParamRole::kTrained) {
      bytes += tensor.bytes();
      continue;
    }
    const int64_t sent = its.filter->apply(p, values, its.push.task, penalised(its, p)).count();
    bytes += cluster_.filters.message_bytes(tensor.elements(), sent);
  }
  return bytes;
}

// The gradient is that of the worker's rows, by which the step's penalty is divided.
Penalised VirtualRun::penalised(const VirtualWorker& its, size_t param) const {
  const Tensor& weights = (*its.weights)[param];
  return {{weights.data(), static_cast<size_t>(weights.elements())}, central_.l1(param) * its.kept->share};
}

int64_t VirtualRun::block_of(int64_t task) const {
  if (cluster_.blocks == BlockOrder::kNone) return 0;
  const int64_t blocks = std::ssize(blocks_), pass = task / blocks;
  if (cluster_.blocks == BlockOrder::kGiven) return blocks_[static_cast<size_t>(task % blocks)];
  const Philox random(job_.settings.run.seed, RandomStream::kVirtual, static_cast<uint64_t>(pass), "blocks");
  return blocks_[static_cast<size_t>(permutation(random, blocks)[static_cast<size_t>(task % blocks)])];
}

void VirtualRun::drop_other_blocks(WorkerGradient& gradient, int64_t task) const {
  const int64_t block = block_of(task);
  for (size_t p = 0; p < gradient.of_params.size(); ++p)
    if (layer_of_[p] != block) gradient.of_params[p] = {};
}

// A snapshot's tensors that have not changed are the same memory.
int64_t VirtualRun::news(const VirtualWorker& its, const WeightSnapshot& now) const {
  int64_t bytes = 0;
  for (size_t p = 0; p < now->size(); ++p)
    if (learns(central_.role(p)) && !(its.weights && (*its.weights)[p].raw() == (*now)[p].raw()))
      bytes += (*now)[p].bytes();
  return bytes;
}

void VirtualRun::push(int worker) {
  VirtualWorker& its = at(worker);
  its.since = clock_.now();
  if (cluster_.planned) {
    its.on_the_way += cluster_.planned->exposed_s;
    return arrive(worker);
  }
  const int64_t bytes = that_travel(filter(its));
  to_servers_ += bytes;
  clock_.after(cluster_.link.latency_s,
               [=, this] { links_.send(bytes, way(worker, true), [=, this] { arrive(worker); }); });
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
  count(with);
  double share = 0;
  int64_t tasks = 0;
  for (size_t i = 0; i < with.size(); ++i) {
    sums_ += gradients[i].result.sums;
    share += gradients[i].share;
    tasks += gradients[i].tasks;
    if (cluster_.rate_by_staleness) shrink(gradients[i], consistency_.staleness(with[i]));
  }
  const bool by_task = consistency_.rules().by_task();
  if (by_task || cluster_.full_rate) share = ratio(tasks, std::ssize(with));
  const Step::Rates now = rates();
  rate_ = now.front;
  if (learns_locally(with.front().task))
    learn_locally(with, gradients);
  else
    central_.update(gradients, now, share);
  consistency_.updated(with);
  counted_ += by_task ? std::ssize(workers_) : tasks;
  while (state_.step < counted_ / std::ssize(workers_) && !is_over()) finish_step();
  if (!is_over()) start_who_may();
}

void VirtualRun::count(const std::vector<Push>& with) {
  for (const Push& push : with) ++staleness_[consistency_.staleness(push)];
}

bool VirtualRun::learns_locally(int64_t task) const {
  return cluster_.planned && job_.settings.parallel.average_every > 1 &&
         ratio(task, per_epoch()) >= job_.settings.parallel.average_from;
}

// As Trainer has it: weights that are looked at are averaged before.
bool VirtualRun::averages_after(int64_t task) const {
  return (task + 1) % job_.settings.parallel.average_every == 0 || evaluates_after(task + 1) || saves_after(task + 1);
}

// Each worker by its own gradient, with all of the rate.
void VirtualRun::learn_locally(const std::vector<Push>& with, std::vector<WorkerGradient>& gradients) {
  if (local_.empty()) {
    for (size_t w = 0; w < workers_.size(); ++w)
      local_.emplace_back(std::make_unique<CentralWeights>(central_job_))->take(central_);
    local_rows_.assign(workers_.size(), 0);
  }
  for (size_t i = 0; i < with.size(); ++i) {
    const auto worker = static_cast<size_t>(with[i].worker);
    local_rows_[worker] += gradients[i].rows;
    local_[worker]->update({&gradients[i], 1}, rates(), 1);
  }
  if (!averages_after(with.front().task)) return;
  std::vector<double> shares;
  const int64_t rows = std::accumulate(local_rows_.begin(), local_rows_.end(), int64_t{0});
  for (const int64_t of_worker : local_rows_) shares.push_back(ratio(of_worker, rows));
  central_.average(local_, shares);
  for (auto& each : local_) each->take(central_);
  local_rows_.assign(workers_.size(), 0);
}

// As many gradients as there are workers are a step, whoever computed them.
void VirtualRun::finish_step() {
  ++state_.step;
  state_.epoch = state_.step / per_epoch();
  state_.step_in_epoch = state_.step % per_epoch();
  record();
  evaluate_and_save();
  change_rules();
}

void VirtualRun::change_rules() {
  const bool due = ratio(state_.step, per_epoch()) >= cluster_.rules_from;
  if (!due || consistency_.rules() == cluster_.rules) return;
  log_info("simulated: from step {} on, {}", state_.step, cluster_.rules.text());
  consistency_.change(cluster_.rules);
}

bool VirtualRun::comes_round(int64_t step, int64_t every_epochs, int64_t every_steps) const {
  const bool at_epoch = every_epochs > 0 && step % (per_epoch() * every_epochs) == 0;
  return at_epoch || (every_steps > 0 && step % every_steps == 0);
}

bool VirtualRun::evaluates_after(int64_t step) const {
  const RunSettings& run = job_.settings.run;
  return step >= total_steps_ || comes_round(step, run.eval_every_epochs, run.eval_every_steps);
}

bool VirtualRun::saves_after(int64_t step) const {
  const RunSettings& run = job_.settings.run;
  return step >= total_steps_ || comes_round(step, run.checkpoint_every_epochs, run.checkpoint_every_steps);
}

bool VirtualRun::out_of_patience() const {
  const int64_t most = job_.settings.run.patience;
  return most > 0 && state_.since_best >= most;
}

// An evaluation comes second, as in a run in earnest: the images to evaluate on may be damaged.
void VirtualRun::evaluate_and_save() {
  if (saves_after(state_.step)) save();
  if (evaluates_after(state_.step)) evaluate();
}

void VirtualRun::evaluate() {
  set_team_size(threads_);
  last_evaluation_ = central_.evaluate();
  set_team_size(1);
  const Evaluation& e = last_evaluation_;
  const bool best = e.top1 > state_.best_top1 || state_.best_step < 0;
  state_.since_best = best ? 0 : state_.since_best + 1;
  if (best) state_.best_top1 = e.top1, state_.best_step = state_.step;
  state_.evaluated_step = state_.step;
  const RunSettings& run = job_.settings.run;
  if (comes_round(state_.step, run.eval_every_epochs, run.eval_every_steps))
    schedule_.note_evaluation(e.loss, e.top1, state_.plateau);
  const int64_t epoch = state_.step_in_epoch == 0 ? state_.epoch - 1 : state_.epoch;
  const Split split = job_.settings.data.evaluated();
  log_info("simulated {:.3f} s, epoch {}, step {}: {} loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} %", clock_.now(),
           epoch + 1, state_.step, kind_of(split), e.loss, 100 * e.top1, 100 * e.top5);
  EvalRecord record{split, state_.step, epoch, e.loss, e.top1, e.top5, e.images, false, clock_.now()};
  if (job_.settings.optimizer.l1 > 0) {
    record.penalty = central_.penalty();
    log_info("simulated: the L1 penalty is {:.4f}, and {:.1f} % of the weights that it is on are 0",
             record.penalty->loss, 100 * record.penalty->zeros);
  }
  metrics_.write(record);
  if (saved_step_ == state_.step) checkpoints_.replace_state(state_);
  if (best) save();
  progress_.skip_time();
}

void VirtualRun::save() {
  if (std::exchange(saved_step_, state_.step) == state_.step) return;
  const std::string folder = checkpoints_.begin(state_.step);
  state_.conv_choices = ConvChoices::process().exported();
  central_.save(folder, state_);
  checkpoints_.commit(state_);
  progress_.skip_time();
}

void VirtualRun::record() {
  const LossSums sums = std::exchange(sums_, {});
  if (sums.rows == 0) return;
  images_ += sums.rows;
  const double loss = sums.loss / static_cast<double>(sums.rows), top1 = ratio(sums.top1, sums.rows);
  const int64_t epoch = (state_.step - 1) / per_epoch();
  progress_.update(
      {state_.step, total_steps_, epoch, (total_steps_ + per_epoch() - 1) / per_epoch(), loss, top1, rate_, 0},
      sums.rows);
  if (state_.step_in_epoch == 0 || state_.step == total_steps_) progress_.end_epoch();
  if (state_.step % job_.settings.run.log_every != 0 && state_.step != 1 && state_.step != total_steps_) return;
  const double passed = clock_.now() - recorded_at_;
  metrics_.write(TrainRecord{.step = state_.step,
                             .epoch = epoch,
                             .loss = loss,
                             .top1 = top1,
                             .lr = rate_,
                             .images_per_second = static_cast<double>(std::exchange(images_, 0)) / passed,
                             .seconds = clock_.now()});
  recorded_at_ = clock_.now();
}

void VirtualRun::write_start() {
  std::vector<std::pair<std::string, std::string>> facts = facts_of_start(job_);
  std::erase_if(facts, [](const auto& fact) {
    return fact.first == "strategy" || fact.first == "threads of each" || fact.first.starts_with("sent by");
  });
  const auto add = [&](const std::string& name, const std::string& value) { facts.emplace_back(name, value); };
  add("simulated", "times are those of a model, not measured");
  add("strategy", cluster_.planned ? cluster_.planned->strategy : concat("ps, ", cluster_.rules.text()));
  if (cluster_.filters.any()) add("filters", cluster_.filters.text());
  if (!cluster_.planned) add("servers", workers_serve() ? "the workers" : std::to_string(cluster_.servers));
  add("compute times", compute_.text());
  add("links", format("{:g} MB/s, {:g} us", cluster_.link.bytes_per_s / 1e6, cluster_.link.latency_s * 1e6));
  metrics_.write(StartRecord{0, 0, per_epoch(), std::move(facts)});
}

SimulationRecord VirtualRun::summary() const {
  SimulationRecord record{.step = state_.step, .updates = consistency_.updates(), .dropped = consistency_.dropped()};
  for (const VirtualWorker& each : workers_) {
    const double all = std::max(clock_.now(), 1e-300);
    const double under_way = std::min(each.seconds, clock_.now() - each.since);
    record.workers.push_back({each.tasks, (each.computing + under_way) / all, each.on_the_way / all});
  }
  record.staleness = {staleness_.begin(), staleness_.end()};
  record.bytes_to_servers = to_servers_;
  record.bytes_to_workers = to_workers_;
  if (cluster_.planned) record.bytes_between_workers = cluster_.planned->bytes * state_.step;
  record.seconds = clock_.now();
  return record;
}

// Forward, and backward down to a layer; of those behind it with the gradients of their weights, which are not wanted.
double VirtualRun::compute_seconds(int64_t rows, int64_t from_layer) {
  const auto known = seconds_.find({rows, from_layer});
  if (known != seconds_.end() || rows == 0) return rows == 0 ? 0 : known->second;
  const auto of = static_cast<double>(rows);
  double seconds = compute_.loss(of) + compute_.rest();
  for (size_t layer = 0; layer < job_.plan.layers.size(); ++layer) {
    seconds += compute_.forward(layer, of, 1);
    if (job_.plan.layers[layer].runs_backward() && static_cast<int64_t>(layer) >= from_layer)
      seconds += compute_.backward(layer, of, 1);
  }
  return seconds_[{rows, from_layer}] = seconds;
}

double VirtualRun::slowness(int worker, int64_t task) const {
  double slowness = 1;
  for (size_t i = 0; i < cluster_.stragglers.size(); ++i) {
    const Straggler& each = cluster_.stragglers[i];
    const Philox random(job_.settings.run.seed, RandomStream::kVirtual, static_cast<uint64_t>(task), "straggler");
    const auto element = i * workers_.size() + static_cast<size_t>(worker);
    const bool meant = each.worker == kAnyWorker || each.worker == worker;
    if (meant && static_cast<double>(random.uniform(element)) < each.share) slowness *= each.factor;
  }
  return slowness;
}

double VirtualRun::seconds_of_step(int64_t task) const {
  double slowest = 0;
  for (int w = 0; w < std::ssize(workers_); ++w) slowest = std::max(slowest, slowness(w, task));
  return cluster_.planned->compute_s * slowest + cluster_.planned->exposed_s;
}

Step::Rates VirtualRun::rates() const {
  const Settings& s = job_.settings;
  const int64_t per = per_epoch();
  const double delay = cluster_.rate_by_delay * static_cast<double>(consistency_.rules().delay);
  const double scale = s.front_rate_scale(job_.plan) / (1 + delay);
  const double weights = s.optimizer.learning_rate * schedule_.rate(state_.step, per, state_.plateau) * scale;
  const double biases = s.optimizer.learning_rate * schedule_.bias_rate(state_.step, per, state_.plateau) * scale;
  return {weights, weights, biases, biases, s.optimizer.sgd_share(ratio(state_.step, per))};
}

}  // namespace owt
