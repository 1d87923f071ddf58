// Gradients of many workers' parts of steps, computed on a few host threads of one process: each has one model, which
// takes the weights and the part of the rows that it is asked for. A gradient has the bits that a rank with a team of
// one thread would have.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/batch.h"
#include "src/parallel/step_result.h"
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
  // job.plan: that of the workers, dp. The job must outlive this.
  GradientPool(const Job& job, int threads);
  ~GradientPool();  // what nobody has begun is not computed any more
  GradientPool(const GradientPool&) = delete;
  GradientPool& operator=(const GradientPool&) = delete;

  // The sum over the worker's rows of the gradients of the loss, which is a mean over the rows of the step. `batch`
  // must stay as it is until the gradient is there. step: of the run, from 0. The future throws Diverged where the loss
  // is not finite.
  std::future<WorkerGradient> compute(int worker, WeightSnapshot weights, const Batch& batch, int64_t step);

 private:
  class Engine;
  using Task = std::packaged_task<WorkerGradient(std::unique_ptr<Engine>&)>;

  void work();

  const Job& job_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Task> tasks_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace owt
