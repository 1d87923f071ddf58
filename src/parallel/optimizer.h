// The optimizer, on this rank's parts of the parameters. Every rule but Muon's works element by element, with one or
// two state tensors per trained parameter.
//
// With lr = rate * lr_mult, g = gradient_scale * grad, L = decay * decay_mult, g' = g + L * w, and t = 1 in a
// parameter's first update:
//   sgd             v = momentum * v - lr * g';   w += v                               plain
//                   v = momentum * v - lr * g';   w += momentum * v - lr * g'          Nesterov
//   sgd with momentum_correction
//                   u = momentum * u + g';   w -= lr * u                               plain
//                   u = momentum * u + g';   w -= lr * (g' + momentum * u)             Nesterov
//   adamw           m = beta1 * m + (1 - beta1) * g;   s = beta2 * s + (1 - beta2) * g^2
//                   w -= lr * L * w + lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + eps)
//   rmsprop         s = alpha * s + (1 - alpha) * g'^2;   d = g' / (sqrt(s) + eps)
//                   w -= lr * d;   with momentum:   b = momentum * b + d;   w -= lr * b
//   lars            sgd, with the rate of each parameter multiplied by LARS's factor (gradient_norms.h)
//   adagrad         s += g'^2;   w -= lr * g' / (sqrt(s) + eps)
//   proximal        y = w - lr * g';   y = sign(y) * max(|y| - lr * l1 * decay_mult, 0), except for biases
//                   d = y - w, limited to +-r;   w += d;   r = min(5 T, 2 |d| + 0.1 T), first T = trust_region
//   muon            of a matrix (Param::is_matrix), rows x columns; all other parameters have sgd with
//                   momentum_correction and the settings others_*
//                   u = momentum * u + g;   d = u, or with Nesterov g + momentum * u
//                   w *= 1 - lr * L;   w -= lr * f(rows, columns) * orthogonalised d (core/blas.h)
//                   with unit_weights, w is first multiplied by sqrt(rows) / |w|, unless |w| is zero
//   rmsprop_warmup  s = alpha * s + (1 - alpha) * g'^2
//                   u = momentum * u + (a + (1 - a) * (rmsprop_rate / rate) / (sqrt(s) + eps)) * g';   w -= lr * u
//                   a, the share of plain sgd, grows with the epoch e from nearly 0 to 1 (sgd_share())
//
// Plain sgd has the rate inside v, so a change of the rate affects new gradients only (Krizhevsky et al. 2012; Caffe).
// With a constant rate v = -lr * u, and both forms give the same weights. PyTorch keeps u, and a change of the rate
// affects the past gradients too. Multiplying v by new rate / old rate at each change, the momentum correction of Goyal
// et al. 2017 (section 3), has the same effect, except for a rate of zero.
// Sources: adamw: Loshchilov and Hutter 2019, as torch.optim.AdamW; rmsprop: Tieleman and Hinton 2012, as
// torch.optim.RMSprop, not centred; adagrad: Duchi et al. 2011, as torch.optim.Adagrad without a decay of the rate;
// proximal: Li et al. 2014, "Communication Efficient Distributed Machine Learning with the Parameter Server", with a
// single bound for all second derivatives, since networks have no formula for each; the trust region r is from their
// program (T = 1 there).
// muon: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", as torch.optim.Muon, which
// rounds to bf16 in between; unit_weights: airbench94_muon.py by the same author.
// rmsprop_warmup: Akiba, Suzuki and Fukuda 2017 (section 3.1). The paper divides eta_RMSprop by eta_SGD; here the
// divisor is the rate of the step, so RMSprop has the rate rmsprop_rate for every schedule and number of workers.
//
// Running averages (ParamRole::kAverage): value += lr_mult * (gradient_scale * grad - value). Without a gradient they
// do not change.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layers/base/param.h"
#include "src/parallel/gradient_norms.h"
#include "src/parallel/param_gather.h"
#include "src/system/config.h"

namespace owt {

struct OptimizerSettings {
  enum class Type { kSgd, kAdamW, kRmsprop, kAdagrad, kRmspropWarmup, kLars, kProximal, kMuon };
  enum class AdjustLr { kNone, kOriginal, kMatchRmsAdamW };

  Type type = Type::kSgd;
  double learning_rate = 0;  // > 0, the base rate that the schedule multiplies
  double momentum = 0.9;     // [0, 1)
  double decay = 5e-4;       // >= 0, multiplied by Param::decay_mult; an L2 penalty except for adamw
  bool nesterov = false;
  bool momentum_correction = false;   // sgd only
  double alpha = 0.99;                // [0, 1), rmsprop and rmsprop_warmup
  double beta1 = 0.9, beta2 = 0.999;  // [0, 1), adamw
  double eps = 1e-8;                  // > 0, all rules but sgd and proximal
  double l1 = 0, trust_region = 1;    // >= 0 and > 0, proximal
  // rmsprop_warmup: RMSprop's learning rate, > 0; the epoch at which sgd makes up half of an update, >= 0; and the
  // length of the transition in epochs, > 0.
  double rmsprop_rate = 3e-4, center = 10, period = 5;

  int ns_steps = 5;           // >= 1, muon
  bool unit_weights = false;  // muon
  AdjustLr adjust_lr = AdjustLr::kOriginal;
  double others_rate = 0, others_momentum = 0.9, others_decay = 5e-4;  // muon's sgd: > 0, [0, 1), >= 0
  bool others_nesterov = false;

  double trust = 0.001;    // > 0, lars
  bool adapt_all = false;  // lars: also adapt biases and other parameters of one dimension
  double clip = 0;         // >= 0, largest norm of all gradients (gradient_norms.h); 0: no clipping

  // Reads [optimizer].
  static OptimizerSettings from(Config& config);

  // The suffixes of the state tensors in checkpoint files, after a parameter's name; one per state tensor. sgd's
  // velocity has the name of its parameter.
  std::vector<std::string> states() const;
  // The rule in words, with the settings that determine its state. A run does not resume from a checkpoint of another
  // rule.
  std::string name() const;
  NormSettings norms() const;
  // The rule of parameters that are updated element by element; these settings, except for muon.
  OptimizerSettings by_element() const;
  // muon: the factor of the rate of a matrix, for its shape.
  double adjustment(int64_t rows, int64_t columns) const;
  double penalty(const Param& param) const;  // l1, the penalty of each |w| of the parameter
  // The number of sums of squares per parameter that updates wait for (PlanRequest::norm_sums).
  int norm_sums() const { return type == Type::kLars ? 2 : clip > 0 ? 1 : 0; }
  // rmsprop_warmup: the share of sgd after e epochs, which may be a fraction. It is exp(2 (e - center) / period) / 2 up
  // to the centre, then 1 / 2 + (e - center) / period, up to 1. (The paper prints twice that slope, which would jump
  // from 3 / 2 to 1.)
  double sgd_share(double epoch) const;
  // Whether the velocity is the change of the weights in the next update without a gradient, so that pipelines can
  // predict weights from it.
  bool predicts() const { return type == Type::kSgd && !momentum_correction; }
  bool operator==(const OptimizerSettings&) const = default;
};

// The values of a step's updates. All are f64, since a GPU reads them from such a tensor: a recorded step is replayed
// with other values.
struct StepRates {
  double weights = 0, biases = 0;  // learning rates, including the schedule
  double updates = 0;              // number of updates of the parameters before this step
  double sgd_share = 1;            // OptimizerSettings::sgd_share()

  static constexpr int64_t kNumbers = 4;
};

// One parameter's part of an update.
struct UpdateItem {
  float* weight;
  float* states[2];      // one per state tensor of the rule; null for running averages
  const void* gradient;  // null: zero
  void* copy16;          // null: there is no bf16 copy
  int64_t count;         // elements of the gradient
  double lr_mult, decay_mult;
  int factor;    // index of its rate factor in UpdateRule::factors
  bool average;  // a running average
  bool bias;     // uses the biases' rate
  DType gradient_type;
};

// The update of a whole parameter, out x features, whose gradient is a product (Param::factors): dy is rows x out, and
// x is rows x features, in bf16. x null: all ones; a bias has one feature.
struct ProductItem {
  UpdateItem item;  // without a gradient
  const void *dy, *x;
  int rows, out, features;
};
constexpr int kProductsPerUpdate = 16;  // items per launch, within the 4 KB of a kernel's arguments

// The update of some rows of a parameter (Param::grad_rows). Rows are packed in the gradient only.
struct RowsItem {
  UpdateItem item;
  const int32_t* rows;
  int64_t row_elements;
};
constexpr int kRowsItemsPerUpdate = 16;  // items per launch

// The update of a matrix (Param::is_matrix), or of a part of it.
struct MatrixItem {
  UpdateItem item;  // the part
  const Param* param;
  Slice elements;                  // the part, as elements of the parameter on this rank
  int64_t rows, columns;           // extents of the whole matrix
  MatrixGather* gather = nullptr;  // null: the part is the whole
};
struct MatrixMemory {
  Tensor values;    // matrix_elements() of the largest matrix
  Tensor partials;  // GPU: sums of squares of blocks
  // GPU: the products; key: rows and columns of a matrix
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const void>> products{};
};

// The common values of the update of all items.
struct UpdateRule {
  OptimizerSettings settings;
  double gradient_scale;
  const double* factors;  // in the memory of the device: the factor of all gradients, then rate factors; null: all 1
  double log_beta1, log_beta2;  // natural logarithms
  int earlier;                  // earlier updates of the same parameters in this step
};

class Optimizer {
 public:
  // Parameters are identified by address: they must outlive this and not move.
  explicit Optimizer(const OptimizerSettings& settings) : settings_(settings) {}
  const OptimizerSettings& settings() const { return settings_; }
  // Makes updates use norms. They must be settled before each update, and must outlive this.
  void go_by(const GradientNorms& norms) { norms_ = &norms; }

  // Allocates the memory to update matrices of at most so many matrix_elements() (plan_bytes.h).
  void reserve_matrices(int64_t elements, Device device);
  // Makes updates gather the matrices that it gathers; it must outlive this.
  void gather_by(MatrixGather& gather) { gather_ = &gather; }

  struct Rates {
    StepRates of_step{};
    Tensor on_device{};  // of_step in GPU memory, if the parameters are there
    int earlier = 0;     // UpdateRule::earlier
  };
  // Queues the update of `params` and marks their gradients as zero. A gradient with grad_is_zero counts as 0. On a GPU
  // gradients that are left as factors are multiplied in the kernel that updates. They are not rounded to bf16.
  // Increments the version of every parameter whose value may have changed, and renews copy16.
  void update(std::span<Param* const> params, const Rates& rates, double gradient_scale, const Stream& stream);
  // Updates parts of parameters; other elements and their copies do not change. If a part's values are elsewhere
  // (ParamPart::value), only these are updated. Any thread may do this, but only one at a time per part.
  void update(std::span<const ParamPart> parts, const Rates& rates, double gradient_scale, const Stream& stream);

  // Updates a parameter on the CPU whose gradient arrives in pieces (Param::update); all elements must be given.
  TakeGradient update_in_pieces(Param& param, const Rates& rates, double gradient_scale);

  // The state tensors of a trained parameter, in the order of OptimizerSettings::states(): f32, on the device of its
  // value, and zero before the first update. For the whole parameter they have param.shape(). For a part they have one
  // dimension, and the other elements have no state.
  std::vector<Tensor>& states(const Param& param) { return states(param, {0, param.shape().elements()}); }
  std::vector<Tensor>& states(const Param& param, Slice elements);
  // Uses this memory for the states of the whole parameter. It must have the parameter's shape, and is set to zero.
  void keep_states_in(const Param& param, const std::vector<Tensor>& memory);

 private:
  struct Kept {
    Slice elements;
    std::vector<Tensor> tensors;
  };

  // item: of these elements, which may be none.
  void update_matrix(const Param& param, const UpdateItem& item, const Slice& elements, const Rates& rates,
                     double gradient_scale, const Stream& stream);
  UpdateItem item_for(Param& param, Slice elements, const Tensor& gradient, const Tensor& value = {});
  UpdateRule rule(const Rates& rates, double gradient_scale) const;

  OptimizerSettings settings_;
  const GradientNorms* norms_ = nullptr;
  MatrixGather* gather_ = nullptr;
  std::unordered_map<const Param*, Kept> states_;
  MatrixMemory matrices_;
};

void update_matrix(Cpu, const UpdateRule& rule, const Optimizer::Rates& rates, const MatrixItem& matrix,
                   MatrixMemory& memory, const Stream& stream);
void update_matrix(Cuda, const UpdateRule& rule, const Optimizer::Rates& rates, const MatrixItem& matrix,
                   MatrixMemory& memory, const Stream& stream);

struct UpdateItems {
  std::vector<UpdateItem> stored;  // gradients in memory
  std::vector<ProductItem> products;
  std::vector<RowsItem> of_rows;
};
void update_items(Cpu, const UpdateRule& rule, const Optimizer::Rates& rates, const UpdateItems& items,
                  const Stream& stream);
void update_items(Cuda, const UpdateRule& rule, const Optimizer::Rates& rates, const UpdateItems& items,
                  const Stream& stream);

}  // namespace owt
