#include "src/simulate/central_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/comm/solo.h"
#include "src/comm/sums.h"
#include "src/train/start_weights.h"
#include "src/train/whitening.h"
#include "src/train/worker_files.h"

namespace owt {

Job job_of_one(const Job& job) {
  Job one = job;
  PlanRequest request = job.plan.request;
  request.ranks = 1;
  request.shares = request.speeds = {};
  request.keeps_gradients = true;
  one.plan = make_plan(job.settings.model, request);
  return one;
}

CentralWeights::CentralWeights(const Job& job)
    : job_(job),
      comm_(make_solo_communicator(job.plan.request.on.device)),
      worker_(job.settings, job.plan, *comm_),
      params_(worker_.model.params()),
      versions_(params_.size()) {
  worker_.model.initialize(job.settings.run.seed);
  whiten(job, worker_.model);
  if (job.start.file.empty()) return;
  const StartedFrom from = start_from(job.start, worker_.model, worker_.step.groups());
  log_start_weights(job.start.file, from);
}

namespace {

// The share is exactly 1 for all gradients of one step.
double share_of(const std::vector<WorkerGradient*>& gradients, int64_t rows) {
  const int64_t step_rows = gradients.front()->step_rows;
  const bool alike = std::ranges::all_of(gradients, [&](auto* each) { return each->step_rows == step_rows; });
  if (alike && step_rows > 0) return static_cast<double>(rows) / static_cast<double>(step_rows);
  return std::accumulate(gradients.begin(), gradients.end(), 0.0, [](double sum, auto* g) { return sum + g->share; });
}

}  // namespace

void CentralWeights::update(std::span<WorkerGradient> gradients, const Step::Rates& rates, double share) {
  std::vector<WorkerGradient*> with;
  int64_t rows = 0;
  for (WorkerGradient& each : gradients)
    if (each.rows > 0) with.push_back(&each), rows += each.rows;
  if (with.empty()) return;
  std::vector<ParamPart> parts;
  for (size_t p = 0; p < params_.size(); ++p) {
    Tensor& sum = with.front()->of_params[p];
    if (!sum.defined()) continue;
    std::vector<const void*> addends;
    for (const WorkerGradient* each : with) addends.push_back(each->of_params[p].raw());
    if (addends.size() > 1) sum_up(Cpu(), DType::kF32, addends, sum.elements(), sum.raw(), worker_.step.stream());
    parts.push_back({params_[p], {0, sum.elements()}, sum});
  }
  const double scale = 1 / share_of(with, rows);
  const Optimizer::Rates shared{
      .of_step = {rates.front * share, rates.front_biases * share, static_cast<double>(updates_), rates.sgd_share}};
  worker_.optimizer.update(parts, shared, scale, worker_.step.stream());
  ++updates_;
}

WeightSnapshot CentralWeights::moved(const WeightSnapshot& weights, const WorkerGradient& gradient,
                                     const Step::Rates& rates, double times) const {
  auto moved = std::make_shared<std::vector<Tensor>>(*weights);
  for (size_t p = 0; p < params_.size(); ++p) {
    if (params_[p]->role != ParamRole::kTrained) continue;
    Tensor& to = (*moved)[p] = (*weights)[p].clone();
    const double rate = params_[p]->is_bias() ? rates.front_biases : rates.front;
    const auto by = static_cast<float>(rate * params_[p]->lr_mult * times);
    const float* const of = gradient.of_params[p].data();
    for (int64_t i = 0; i < to.elements(); ++i) to.data()[i] -= by * of[i];
  }
  return moved;
}

double CentralWeights::l1(size_t param) const { return job_.settings.optimizer.penalty(*params_[param]); }

L1Penalty CentralWeights::penalty() const {
  L1Penalty all;
  int64_t penalised = 0, zeros = 0;
  for (size_t p = 0; p < params_.size(); ++p) {
    if (l1(p) == 0) continue;
    const Tensor& of = params_[p]->value;
    double sum = 0;
    for (int64_t i = 0; i < of.elements(); ++i) {
      sum += std::fabs(static_cast<double>(of.data()[i]));
      zeros += of.data()[i] == 0 ? 1 : 0;
    }
    all.loss += l1(p) * sum;
    penalised += of.elements();
  }
  if (penalised > 0) all.zeros = static_cast<double>(zeros) / static_cast<double>(penalised);
  return all;
}

std::vector<Tensor> CentralWeights::tensors(size_t param) {
  std::vector<Tensor> all{params_[param]->value};
  if (params_[param]->role != ParamRole::kTrained) return all;
  for (const Tensor& state : worker_.optimizer.states(*params_[param])) all.push_back(state);
  return all;
}

void CentralWeights::take(CentralWeights& other) {
  for (size_t p = 0; p < params_.size(); ++p) {
    const std::vector<Tensor> from = other.tensors(p);
    std::vector<Tensor> to = tensors(p);
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_from(from[i]);
    ++params_[p]->version;
  }
  updates_ = other.updates_;
}

void CentralWeights::average(std::span<const std::unique_ptr<CentralWeights>> others, std::span<const double> shares) {
  for (size_t p = 0; p < params_.size(); ++p) {
    std::vector<Tensor> to = tensors(p);
    for (size_t t = 0; t < to.size(); ++t) {
      std::vector<double> sum(static_cast<size_t>(to[t].elements()));
      for (size_t o = 0; o < others.size(); ++o) {
        const Tensor from = others[o]->tensors(p)[t];
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += shares[o] * static_cast<double>(from.data()[i]);
      }
      std::transform(sum.begin(), sum.end(), to[t].data(), [](double x) { return static_cast<float>(x); });
    }
    ++params_[p]->version;
  }
  updates_ = others.front()->updates_;
}

WeightSnapshot CentralWeights::snapshot() {
  auto now = std::make_shared<std::vector<Tensor>>();
  bool changed = !newest_;
  for (size_t p = 0; p < params_.size(); ++p) {
    const bool same = newest_ && versions_[p] == params_[p]->version;
    now->push_back(same ? (*newest_)[p] : params_[p]->value.clone());
    versions_[p] = params_[p]->version;
    changed = changed || !same;
  }
  if (changed) newest_ = std::move(now);
  return newest_;
}

void CentralWeights::save(const std::string& folder, RunState& state) {
  for (const Param* param : params_)
    if (!all_finite(param->value))
      throw Diverged(concat("step ", state.step, ": '", param->name, "' holds a value that is not finite, so no ",
                            "checkpoint is written. Lower the learning rate or add warmup_epochs"));
  state.checksums = save_worker(folder, job_.plan, worker_);
  state.updates = {updates_, updates_};
}

}  // namespace owt
