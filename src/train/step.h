// One training step, and the same pass for evaluation. The order of a step is in step.cpp and nowhere else.
#pragma once

#include <map>
#include <vector>

#include "data/batch.h"
#include "src/parallel/boundary.h"
#include "src/parallel/grad_sync.h"
#include "src/parallel/rank_model.h"
#include "src/parallel/step_result.h"
#include "src/train/sgd.h"

namespace owt {

class Step {
 public:
  struct Rates {
    double front = 0, back = 0;  // learning rates before and behind the boundary, schedule included
  };

  // All but profiler must outlive this; profiler may be null. The model's gradients get their memory here.
  Step(const Plan& plan, RankModel& model, Sgd& sgd, Communicator& comm, Profiler* profiler, uint64_t seed);

  // Runs global step number `step` on this rank's rows. The result, over all rows of the step, is the same on
  // every rank. Throws Error on all ranks, naming the step and the first layer with a bad value, when the
  // loss is not finite; the weights are spoilt then. stop: this rank wishes the run to stop; any rank's wish
  // comes back in the result.
  StepResult train(const Batch& batch, int64_t step, const Rates& rates, bool stop);
  StepResult evaluate(const Batch& batch);

  int64_t bytes() const;  // of all activations and gradients of activations made so far

 private:
  struct Dense {  // behind the boundary, for one number of rows
    BackTape tape;
    SoftmaxLoss loss;
    Tensor dlogits;
  };
  struct Bound {  // everything that depends on the number of rows of a step
    Bound(Step& step, int64_t step_rows);
    Tape front;
    Boundary boundary;
    std::vector<int64_t> front_rows;               // indexes in the step of this rank's rows
    std::vector<std::vector<int64_t>> dense_rows;  // and of every round's
  };

  Bound& bound(int64_t step_rows);
  Dense& dense(int64_t rows);
  LossSums loss(const Pass& pass, Dense& dense, const Tensor& logits, const Tensor& labels, bool gradient);
  void update(Net& net, double rate, double gradient_scale);
  void update_back(double rate, double gradient_scale);
  StepResult run(const Batch& batch, Pass pass, const Rates* rates, bool stop);
  void find_bad_layer(const Bound& bound, const Dense& dense);
  [[noreturn]] void report_bad_loss(const StepResult& result, const Pass& pass);

  const Plan& plan_;
  RankModel& model_;
  Sgd& sgd_;
  Communicator& comm_;
  Profiler* profiler_;
  uint64_t seed_;
  GradSync grad_sync_;
  std::map<int64_t, Bound> bound_;
  std::map<int64_t, Dense> dense_;
  int64_t bad_layer_ = -1;  // in the plan; -1: none seen
};

}  // namespace owt
