// Exponential moving averages of the weights (EMA, Polyak averaging). Evaluation uses them, and so does every consumer
// of the trained weights; training continues from the weights themselves. Batch norm's running averages are averaged in
// the same way, so that they match the averaged weights.
//
// After step n of the run, with the decay d(n) = decay, or with a warm-up min(decay, (1 + n) / (10 + n)):
//   average = kept * average + (1 - kept) * weight,   kept = the product of d over the steps since the last such update
// With ramp > 0 kept is multiplied by p^ramp, where p is the part of the run that is over, as in airbench (ramp = 3).
// With lookahead the weights then become the average. Evaluations in between use the average, the slow weights.
// Sources: Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging"; warm-up and decay as in
// TensorFlow's ExponentialMovingAverage; lookahead: Zhang et al. 2019, "Lookahead Optimizer: k
// steps forward, 1 step back". torchvision's references average the buffers too, every 32 steps, with the
// decay 1 - (1 - model_ema_decay) * batch * steps / epochs; here the decay is per step. ramp: Jordan 2024
// (arXiv:2404.00498), airbench94.py.
#pragma once

#include <span>
#include <vector>

#include "layers/base/param.h"
#include "src/core/stream.h"
#include "src/system/config.h"

namespace owt {

struct EmaSettings {
  double decay = 0;        // per step, [0, 1); 0: no averages are kept
  int every = 1;           // the least number of steps between updates of the averages
  bool warmup = true;      // warm-up of the decay
  double ramp = 0;         // the factor grows with this power of the part of the run that is over; 0: it does not
  bool lookahead = false;  // the averages replace the weights after each update

  static EmaSettings from(Config& optimizer);  // reads [optimizer]
  bool on() const { return decay > 0; }
  // The factor `kept` of an update after step number `step`, if the last update was after step `last` < step.
  // progress: the part of the run that is over, 0 to 1.
  double kept(int64_t last, int64_t step, double progress) const;
};

// One parameter's part of an update.
struct EmaItem {
  float* average;
  const float* weight;
  int64_t count;
};

class WeightEma {
 public:
  // params: must have memory, outlive this and not move. The averages have no values yet.
  explicit WeightEma(std::vector<Param*> params);

  // Queues a copy of the weights into the averages, at the beginning of a run.
  void begin(const Stream& stream);
  // Queues an update. kept: the factor of the averages. A GPU reads it from kept_on_device (f64), since a recorded step
  // is replayed with other values.
  void update(double kept, const Tensor& kept_on_device, const Stream& stream);
  // Queues a copy of the averages into the weights, including bf16 copies. Increments versions.
  void give(const Stream& stream);
  // Queues a swap of averages and weights, including bf16 copies: the parameters' values become the averages, and back
  // with the next call. Increments versions.
  void swap(const Stream& stream);

  // The average of a parameter, f32, in its shape.
  Tensor& of(const Param& param);

 private:
  std::vector<Param*> params_;
  std::vector<Tensor> averages_;  // index: parameter
};

void ema_update(Cpu, double kept, const Tensor& kept_on_device, std::span<const EmaItem> items, const Stream& stream);
void ema_update(Cuda, double kept, const Tensor& kept_on_device, std::span<const EmaItem> items, const Stream& stream);

}  // namespace owt
