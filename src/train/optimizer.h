// The optimizer, on this rank's parts of the parameters. Every rule works element by element, with one or two tensors
// of state for each trained parameter.
//
// With lr = rate * lr_mult, g = gradient_scale * grad, L = decay * decay_mult, g' = g + L * w, and t = 1 in a
// parameter's first update:
//   sgd             v = momentum * v - lr * g';   w += v                               plain
//                   v = momentum * v - lr * g';   w += momentum * v - lr * g'          Nesterov
//   the same with momentum_correction
//                   u = momentum * u + g';   w -= lr * u                               plain
//                   u = momentum * u + g';   w -= lr * (g' + momentum * u)             Nesterov
//   adamw           m = beta1 * m + (1 - beta1) * g;   s = beta2 * s + (1 - beta2) * g^2
//                   w -= lr * L * w + lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + eps)
//   rmsprop         s = alpha * s + (1 - alpha) * g'^2;   d = g' / (sqrt(s) + eps)
//                   w -= lr * d;   with momentum:   b = momentum * b + d;   w -= lr * b
//   lars            sgd, with the rate of each parameter times what LARS says (gradient_norms.h)
//   adagrad         s += g'^2;   w -= lr * g' / (sqrt(s) + eps)
//   proximal        y = w - lr * g';   y = sign(y) * max(|y| - lr * l1 * decay_mult, 0), but for biases
//                   d = y - w, but no further than +-r;   w += d;   r = min(5 T, 2 |d| + 0.1 T), first T = trust_region
//   rmsprop_warmup  s = alpha * s + (1 - alpha) * g'^2
//                   u = momentum * u + (a + (1 - a) * (rmsprop_rate / rate) / (sqrt(s) + eps)) * g';   w -= lr * u
//                   a, the share of plain sgd, grows with the epoch e from nearly 0 to 1 (sgd_share())
//
// Plain sgd has the rate inside v, so that a change of rate acts on new gradients only (Krizhevsky et al. 2012; Caffe).
// With a constant rate v = -lr * u, and both forms give the same weights; u is what PyTorch keeps, and a change of rate
// acts on the past gradients too. To multiply v by new rate / old rate at each change, which is the momentum correction
// of Goyal et al. 2017 (section 3), gives the same, but for a rate of zero.
// Sources: adamw: Loshchilov and Hutter 2019, as torch.optim.AdamW; rmsprop: Tieleman and Hinton 2012, as
// torch.optim.RMSprop, not centred; adagrad: Duchi et al. 2011, as torch.optim.Adagrad without a decay of the rate;
// proximal: Li et al. 2014, "Communication Efficient Distributed Machine Learning with the Parameter Server", with one
// bound for all second derivatives in place of one each, which networks have no formula for; the trust region r is that
// of their program (T = 1 there).
// rmsprop_warmup: Akiba, Suzuki and Fukuda 2017 (section 3.1). There eta_RMSprop stands over eta_SGD: here over the
// rate of the step, so that RMSprop has the rate rmsprop_rate whatever the schedule and the number of workers say.
//
// Running averages (ParamRole::kAverage): value += lr_mult * (gradient_scale * grad - value); without a
// gradient they stay.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "layers/param.h"
#include "src/core/config.h"
#include "src/parallel/gradient_norms.h"

namespace owt {

struct OptimizerSettings {
  enum class Type { kSgd, kAdamW, kRmsprop, kAdagrad, kRmspropWarmup, kLars, kProximal };

  Type type = Type::kSgd;
  double learning_rate = 0;  // > 0, the base that the schedule multiplies
  double momentum = 0.9;     // [0, 1)
  double decay = 5e-4;       // >= 0, multiplied by Param::decay_mult; L2 but for adamw
  bool nesterov = false;
  bool momentum_correction = false;   // of sgd
  double alpha = 0.99;                // [0, 1), of rmsprop and rmsprop_warmup
  double beta1 = 0.9, beta2 = 0.999;  // [0, 1), of adamw
  double eps = 1e-8;                  // > 0, of all but sgd and proximal
  double l1 = 0, trust_region = 1;    // >= 0 and > 0, of proximal
  // Of rmsprop_warmup: RMSprop's learning rate, > 0; the epoch at which half of an update is sgd's, >= 0, and how many
  // epochs the change to that takes, > 0.
  double rmsprop_rate = 3e-4, center = 10, period = 5;

  double trust = 0.001;    // > 0, of lars
  bool adapt_all = false;  // of lars: biases too, and what else has one dimension
  double clip = 0;         // >= 0, of the norm of all gradients (gradient_norms.h); 0: none

  // From [optimizer].
  static OptimizerSettings from(Config& config);

  // What the files of a checkpoint call the tensors of state, behind a parameter's name; their number is that of the
  // tensors. sgd's velocity has the name of its parameter.
  std::vector<std::string> states() const;
  // The rule in words, with what decides on its states: checkpoints of other rules are not gone on from.
  std::string name() const;
  NormSettings norms() const;
  double penalty(const Param& param) const;  // l1 of each |w| of it
  // Sums of squares that updates wait for, of every parameter (PlanRequest::norm_sums).
  int norm_sums() const { return type == Type::kLars ? 2 : clip > 0 ? 1 : 0; }
  // Of rmsprop_warmup, after e epochs, fractions included: exp(2 (e - center) / period) / 2 up to the centre, then
  // 1 / 2 + (e - center) / period, up to 1 (the paper prints twice that slope, which would end in a jump from 3 / 2).
  double sgd_share(double epoch) const;
  // Whether the velocity is what the next update would change in the weights if it came without a gradient, so that
  // pipelines can predict weights from it.
  bool predicts() const { return type == Type::kSgd && !momentum_correction; }
  bool operator==(const OptimizerSettings&) const = default;
};

// What the updates of a step are told anew; all of them are f64, since a GPU has them in such a tensor: a recorded step
// is replayed with other numbers.
struct StepRates {
  double weights = 0, biases = 0;  // learning rates, schedule included
  double updates = 0;              // that the parameters have had before this step
  double sgd_share = 1;            // OptimizerSettings::sgd_share()

  static constexpr int64_t kNumbers = 4;
};

// One parameter's part of an update.
struct UpdateItem {
  float* weight;
  float* states[2];      // as many as the rule has; none of a running average
  const void* gradient;  // null: zero
  void* copy16;          // null: none is kept
  int64_t count;
  double lr_mult, decay_mult;
  int factor;          // of its rate, in UpdateRule::factors
  bool average;        // a running average
  bool bias;           // it has the biases' rate
  bool bf16_gradient;  // else it is f32
};

// What the update of all items has in common.
struct UpdateRule {
  OptimizerSettings settings;
  double gradient_scale;
  const double* factors;        // where the update runs: that of all gradients, and those of rates; null: all 1
  double log_beta1, log_beta2;  // natural
  int earlier;                  // updates of the same parameters in the same step before this one
};

class Optimizer {
 public:
  // The parameters are named by their address: they must outlive this and stay where they are.
  explicit Optimizer(const OptimizerSettings& settings) : settings_(settings) {}
  const OptimizerSettings& settings() const { return settings_; }
  // From now on updates go by norms, which must be settled before each of them and outlive this.
  void go_by(const GradientNorms& norms) { norms_ = &norms; }

  struct Rates {
    StepRates of_step{};
    Tensor on_device{};  // the same, where the parameters are on a GPU
    int earlier = 0;     // UpdateRule's
  };
  // Queues the update of `params`, counting a gradient that is_zero as 0, and marks their gradients as zero. Raises the
  // version of every parameter whose value may have changed, and renews copy16.
  void update(std::span<Param* const> params, const Rates& rates, double gradient_scale, const Stream& stream);
  // The same of parts; the other elements, and their copies, stay what they are. Of parts whose values are elsewhere
  // (ParamPart::value) those are updated alone, by any thread, if none updates the same part at the same time.
  void update(std::span<const ParamPart> parts, const Rates& rates, double gradient_scale, const Stream& stream);

  // The same of one parameter on the CPU whose gradient comes in pieces (Param::update): counts all of them as given.
  TakeGradient update_in_pieces(Param& param, const Rates& rates, double gradient_scale);

  // The tensors of state of a trained parameter, in the order of OptimizerSettings::states(): f32, where its value is;
  // zero until the first update. Of the whole parameter they have param.shape(). Of a part they have one dimension, and
  // there is none of the other elements then.
  std::vector<Tensor>& states(const Param& param) { return states(param, {0, param.shape().elements()}); }
  std::vector<Tensor>& states(const Param& param, Slice elements);
  // Lets the states of the whole parameter be here: memory in its shape, which is made zero.
  void keep_states_in(const Param& param, const std::vector<Tensor>& memory);

 private:
  struct Kept {
    Slice elements;
    std::vector<Tensor> tensors;
  };

  UpdateItem item_for(Param& param, Slice elements, const Tensor& gradient, const Tensor& value = {});
  UpdateRule rule(const Rates& rates, double gradient_scale) const;

  OptimizerSettings settings_;
  const GradientNorms* norms_ = nullptr;
  std::unordered_map<const Param*, Kept> states_;
};

void update_items(Cpu, const UpdateRule& rule, const Optimizer::Rates& rates, std::span<const UpdateItem> items,
                  const Stream& stream);
void update_items(Cuda, const UpdateRule& rule, const Optimizer::Rates& rates, std::span<const UpdateItem> items,
                  const Stream& stream);

}  // namespace owt
