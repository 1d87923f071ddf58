// Computes gradients of many workers' parts of steps, and evaluations, on a few threads of one process. Each thread has
// one model, and loads the weights and rows of a task. A gradient, and an evaluation, has the bits of a rank with a
// team of one thread; oneDNN divides sums among a team's threads, on some processors depending on their number.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "data/batch.h"
#include "src/plan/step_result.h"
#include "src/system/joined_threads.h"
#include "src/train/evaluation.h"
#include "src/train/job.h"

namespace owt {

// The weights at one time, in the order of RankModel::params(), f32 on the CPU. Unchanged tensors share their memory
// with earlier snapshots.
using WeightSnapshot = std::shared_ptr<const std::vector<Tensor>>;

struct WorkerGradient {
  std::vector<Tensor> of_params;    // in the order of RankModel::params(); undefined: the parameter does not learn
  StepResult result;                // over the worker's rows
  int64_t rows = 0, step_rows = 0;  // step_rows: -1 if this is a sum over steps of different sizes
  double share = 0;                 // rows / step_rows, summed over the tasks
  int64_t tasks = 1;                // number of tasks in the sum

  void add(const WorkerGradient& newer);
};

class GradientPool {
 public:
  // job.plan: the workers' plan, dp.
  GradientPool(const Job& job, int threads);
  ~GradientPool();  // tasks that have not started are dropped
  GradientPool(const GradientPool&) = delete;
  GradientPool& operator=(const GradientPool&) = delete;

  // Computes the sum over the worker's rows of the gradient of the loss, which is a mean over the rows of the step.
  // `batch` must not change until the gradient is ready. step: step number in the run, from 0. The future throws
  // Diverged if the loss is not finite.
  std::future<WorkerGradient> compute(int worker, WeightSnapshot weights, const Batch& batch, int64_t step);
  // Evaluates a split; any free thread computes each worker's part of the rows.
  Evaluation evaluate(const WeightSnapshot& weights);

 private:
  class Replica;

  template <class Result>
  std::future<Result> begin(std::function<Result(Replica&)> work);
  void work();
  void end();

  const Job job_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void(std::unique_ptr<Replica>&)>> tasks_;
  bool over_ = false;
  JoinedThreads threads_;
};

}  // namespace owt
