// Stochastic gradient descent with momentum, on this rank's parts of the parameters.
//
// With lr = rate * lr_mult and g' = gradient_scale * grad + decay * decay_mult * w:
//   v = momentum * v - lr * g';   w += v                             plain
//   v = momentum * v - lr * g';   w += momentum * v - lr * g'        Nesterov
// The rate is inside v, so that a change of rate acts on new gradients only (Krizhevsky et al. 2012; Caffe).
// PyTorch keeps it outside: u = momentum * u + g', w -= lr * u (Nesterov: w -= lr * (g' + momentum * u)).
// With a constant rate v = -lr * u and both give the same weights; after a change PyTorch rescales the past
// gradients as well.
//
// Running averages (ParamRole::kAverage): value += lr_mult * (gradient_scale * grad - value); without a
// gradient they stay.
#pragma once

#include <span>
#include <unordered_map>

#include "layers/param.h"
#include "src/core/config.h"

namespace owt {

struct SgdSettings {
  double learning_rate = 0;  // > 0, the base that the schedule multiplies
  double momentum = 0.9;     // [0, 1)
  double decay = 5e-4;       // L2, >= 0, multiplied by Param::decay_mult
  bool nesterov = false;

  // From [optimizer].
  static SgdSettings from(Config& config);
};

// One parameter's part of an update.
struct SgdItem {
  float* weight;
  float* velocity;       // null for a running average
  const void* gradient;  // null: zero
  bool bf16_gradient;    // else it is f32
  void* copy16;          // null: none is kept
  int64_t count;
  double lr_mult, decay_mult;
};

// What the update of all items has in common.
struct SgdRule {
  double momentum, decay, gradient_scale;
  bool nesterov;
};

class Sgd {
 public:
  // The parameters are named by their address: they must outlive this and stay where they are.
  explicit Sgd(const SgdSettings& settings) : settings_(settings) {}

  // The learning rate of this step, schedule included; on a GPU it is read from there (f64), because a recorded step is
  // replayed with other rates.
  struct Rate {
    double value = 0;
    Tensor on_device{};
  };
  // Queues the update of `params`, counting a gradient that is_zero as 0, and marks their gradients as zero. Raises the
  // version of every parameter whose value may have changed, and renews copy16.
  void update(std::span<Param* const> params, const Rate& rate, double gradient_scale, const Stream& stream);
  // The same of parts; the other elements, and their copies, stay what they are.
  void update(std::span<const ParamPart> parts, const Rate& rate, double gradient_scale, const Stream& stream);

  // The same of one parameter on the CPU whose gradient comes in pieces (Param::update): counts all of them as given.
  TakeGradient update_in_pieces(Param& param, const Rate& rate, double gradient_scale);

  // v of a trained parameter, f32, where its value is; zero until the first update. Of the whole parameter it has
  // param.shape(). Of a part it has one dimension, and there is no velocity of the other elements then.
  Tensor& velocity(const Param& param) { return velocity(param, {0, param.shape().elements()}); }
  Tensor& velocity(const Param& param, Slice elements);
  // Lets the velocity of the whole parameter be here: memory in its shape, which is made zero.
  void keep_velocity_in(const Param& param, const Tensor& memory);

 private:
  struct Velocity {
    Slice elements;
    Tensor values;
  };

  SgdItem item_for(Param& param, Slice elements, const Tensor& gradient);
  SgdRule rule(double gradient_scale) const {
    return {settings_.momentum, settings_.decay, gradient_scale, settings_.nesterov};
  }

  SgdSettings settings_;
  std::unordered_map<const Param*, Velocity> velocities_;
};

void sgd_update(Cpu, const SgdRule& rule, const Sgd::Rate& rate, std::span<const SgdItem> items, const Stream& stream);
void sgd_update(Cuda, const SgdRule& rule, const Sgd::Rate& rate, std::span<const SgdItem> items, const Stream& stream);

}  // namespace owt
