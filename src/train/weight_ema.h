// Averages of the weights that forget exponentially (EMA, Polyak averaging): evaluation and everybody who takes the
// trained weights gets them, while training goes on from the weights themselves. The running averages of batch norm are
// averaged alike, so that they belong to the weights beside them.
//
// After a step, the n-th of the run, with the decay d(n) = decay, or with a warm-up min(decay, (1 + n) / (10 + n)):
//   average = kept * average + (1 - kept) * weight,   kept = the product of d over the steps since the last such update
// Sources: Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging"; the warm-up and the decay
// are those of TensorFlow's ExponentialMovingAverage. torchvision's references average the buffers too, every 32 steps;
// they choose the decay for those, 1 - (1 - model_ema_decay) * batch * steps / epochs, which is kept here.
#pragma once

#include <span>
#include <vector>

#include "layers/param.h"
#include "src/core/config.h"
#include "src/core/stream.h"

namespace owt {

struct EmaSettings {
  double decay = 0;    // a step's, [0, 1); 0: no averages are kept
  int every = 1;       // steps from one update of the averages to the next, at least
  bool warmup = true;  // of the decay

  static EmaSettings from(Config& optimizer);  // from [optimizer]
  bool on() const { return decay > 0; }
  // The share of the averages that stays when they take in the weights after step number `step`, the last time having
  // been after step `last` < step.
  double kept(int64_t last, int64_t step) const;
};

// One parameter's part of an update.
struct EmaItem {
  float* average;
  const float* weight;
  int64_t count;
};

class WeightEma {
 public:
  // Of parameters that have memory, which must outlive this and stay where they are. The averages have no values yet.
  explicit WeightEma(std::vector<Param*> params);

  // The averages are the weights, as a run begins.
  void begin(const Stream& stream);
  // Queues an update. kept: of the averages; on a GPU it is read from there (f64), since a recorded step is replayed
  // with other numbers.
  void update(double kept, const Tensor& kept_on_device, const Stream& stream);
  // Queues that averages and weights change places: the parameters have the averages for their values, or what they had
  // before, and copies in bf16 to match. Raises versions.
  void swap(const Stream& stream);

  // f32, of the parameter's shape.
  Tensor& of(const Param& param);

 private:
  std::vector<Param*> params_;
  std::vector<Tensor> averages_;  // by parameter
};

void ema_update(Cpu, double kept, const Tensor& kept_on_device, std::span<const EmaItem> items, const Stream& stream);
void ema_update(Cuda, double kept, const Tensor& kept_on_device, std::span<const EmaItem> items, const Stream& stream);

}  // namespace owt
