#include "src/simulate/gradient_pool.h"

#include <cstring>
#include <utility>

#include "src/core/threads.h"
#include "src/train/evaluate.h"
#include "src/train/worker.h"

namespace owt {

// A communicator for one rank at a time, alone: collectives return its own data.
class OneOfMany : public Communicator {
 public:
  explicit OneOfMany(int ranks) : ranks_(ranks) {}

  void be(int rank) { rank_ = rank; }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::unique_ptr<Communicator> split(int) override { fail("virtual workers make no groups"); }

  Event run(const Call& call) override {
    OWT_CHECK(call.collective == Collective::kAllReduce || call.collective == Collective::kAllGather,
              "virtual workers call no ", name_of(call.collective));
    if (call.collective != Collective::kAllGather) return call.after;
    Tensor all = call.out;
    for (int r = 0; r < ranks_; ++r)
      std::memmove(static_cast<std::byte*>(all.raw()) + r * call.in.bytes(), call.in.raw(),
                   static_cast<size_t>(call.in.bytes()));
    return call.after;
  }

 private:
  int ranks_, rank_ = 0;
};

namespace {

Step::Options without_updates(const Settings& settings) {
  Step::Options options = step_options(settings);
  options.updates = false;
  return options;
}

// A real rank updates some weights while it computes their gradient, with another algorithm than for a stored gradient.
// The simulation must use the same.
Job as_in_earnest(const Job& job) {
  Job other = job;
  other.plan.request.keeps_gradients = false;
  return other;
}

}  // namespace

void WorkerGradient::add(const WorkerGradient& newer) {
  for (size_t p = 0; p < of_params.size(); ++p) {
    if (!of_params[p].defined()) continue;
    float* const sum = of_params[p].data();
    const float* const more = newer.of_params[p].data();
    for (int64_t i = 0; i < of_params[p].elements(); ++i) sum[i] += more[i];
  }
  result.sums += newer.result.sums;
  rows += newer.rows;
  if (step_rows != newer.step_rows) step_rows = -1;
  share += newer.share;
  tasks += newer.tasks;
}

class GradientPool::Replica {
 public:
  explicit Replica(const Job& job)
      : job_(job),
        comm_(job.plan.ranks()),
        worker_(job.settings, job.plan, comm_, without_updates(job.settings)),
        params_(worker_.model.params()) {}

  WorkerGradient compute(int worker, WeightSnapshot weights, const Batch& batch, int64_t step) {
    comm_.be(worker);
    take(std::move(weights));
    const Step::Rates no_rates;
    WorkerGradient gradient{{}, worker_.step.train(batch, step, no_rates, false, StepKind::kSynchronous)};
    gradient.rows = batch.labels.shape().rows();
    gradient.step_rows = batch.step_rows;
    gradient.share = static_cast<double>(gradient.rows) / static_cast<double>(gradient.step_rows);
    for (const Param* param : params_)
      gradient.of_params.push_back(learns(param->role) ? param->grad.clone() : Tensor());
    return gradient;
  }

  LossSums evaluate(int worker, WeightSnapshot weights) {
    comm_.be(worker);
    take(std::move(weights));
    const auto batches = evaluation_batches(job_, worker, job_.settings.data.evaluated());
    return evaluated_sums(worker_, *batches);
  }

 private:
  // Loads the weights, except tensors that are loaded already.
  void take(WeightSnapshot weights) {
    for (size_t i = 0; i < params_.size(); ++i)
      if (!here_ || (*here_)[i].raw() != (*weights)[i].raw()) params_[i]->set_value((*weights)[i]);
    here_ = std::move(weights);
  }

  const Job& job_;
  OneOfMany comm_;
  Worker worker_;
  std::vector<Param*> params_;
  WeightSnapshot here_;
};

GradientPool::GradientPool(const Job& job, int threads) : job_(as_in_earnest(job)) {
  threads_.start(
      threads, "compute thread", "use fewer --threads", [this](int) { work(); }, [this] { end(); });
}

GradientPool::~GradientPool() {
  end();
  threads_.join();
}

void GradientPool::end() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  more_.notify_all();
}

// A replica belongs to one thread and computes with that thread's team.
void GradientPool::work() {
  set_team_size(1);
  std::unique_ptr<Replica> replica;
  while (true) {
    std::unique_lock lock(mutex_);
    more_.wait(lock, [&] { return over_ || !tasks_.empty(); });
    if (over_) return;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task(replica);
  }
}

// The future throws every error, including errors of making a replica.
template <class Result>
std::future<Result> GradientPool::begin(std::function<Result(Replica&)> work) {
  using Task = std::packaged_task<Result(std::unique_ptr<Replica>&)>;
  auto task = std::make_shared<Task>([this, work = std::move(work)](std::unique_ptr<Replica>& replica) {
    if (!replica) replica = std::make_unique<Replica>(job_);
    return work(*replica);
  });
  std::future<Result> result = task->get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back([task](std::unique_ptr<Replica>& replica) { (*task)(replica); });
  }
  more_.notify_one();
  return result;
}

std::future<WorkerGradient> GradientPool::compute(int worker, WeightSnapshot weights, const Batch& batch,
                                                  int64_t step) {
  return begin<WorkerGradient>(
      [=, weights = std::move(weights)](Replica& replica) { return replica.compute(worker, weights, batch, step); });
}

Evaluation GradientPool::evaluate(const WeightSnapshot& weights) {
  std::vector<std::future<LossSums>> parts;
  for (int worker = 0; worker < job_.plan.ranks(); ++worker)
    parts.push_back(begin<LossSums>([=](Replica& replica) { return replica.evaluate(worker, weights); }));
  LossSums sums;
  for (std::future<LossSums>& part : parts) sums += part.get();
  return evaluation_of(sums);
}

}  // namespace owt
