// Gradients of many workers' parts of steps, and of evaluations, computed on a few host threads of one process: each
// has one model, which takes the weights and the part of the rows that it is asked for. A gradient has the bits that a
// rank with a team of one thread would have, and so has an evaluation: oneDNN divides sums among the threads of a team,
// on some processors by their number.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "data/batch.h"
#include "src/core/joined_threads.h"
#include "src/parallel/step_result.h"
#include "src/train/evaluation.h"
#include "src/train/job.h"

namespace owt {

// The weights at one moment, in the order of RankModel::params(), f32 on the CPU. Tensors that did not change from one
// moment to another are the same memory.
using WeightSnapshot = std::shared_ptr<const std::vector<Tensor>>;

struct WorkerGradient {
  std::vector<Tensor> of_params;    // in the order of RankModel::params(); undefined: the parameter does not learn
  StepResult result;                // of the worker's rows
  int64_t rows = 0, step_rows = 0;  // step_rows: -1 where those of several steps differ
  double share = 0;                 // of a step, or of several: their rows over the step's
  int64_t tasks = 1;                // whose sum it is

  void add(const WorkerGradient& newer);
};

class GradientPool {
 public:
  // job.plan: that of the workers, dp.
  GradientPool(const Job& job, int threads);
  ~GradientPool();  // what nobody has begun is not computed any more
  GradientPool(const GradientPool&) = delete;
  GradientPool& operator=(const GradientPool&) = delete;

  // The sum over the worker's rows of the gradients of the loss, which is a mean over the rows of the step. `batch`
  // must stay as it is until the gradient is there. step: of the run, from 0. The future throws Diverged where the loss
  // is not finite.
  std::future<WorkerGradient> compute(int worker, WeightSnapshot weights, const Batch& batch, int64_t step);
  // Of the evaluated split, each worker's part of the rows by whichever thread is free.
  Evaluation evaluate(const WeightSnapshot& weights);

 private:
  class Engine;

  template <class Result>
  std::future<Result> begin(std::function<Result(Engine&)> work);
  void work();
  void end();

  const Job job_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void(std::unique_ptr<Engine>&)>> tasks_;
  bool over_ = false;
  JoinedThreads threads_;
};

}  // namespace owt
