// Norms of the gradients of a step, and of the weights, over all ranks; and the factors that scale the updates.
//
// Clipping, with g all trained gradients as one vector (after gradient_scale):
//   every gradient is multiplied by min(1, clip / (|g| + 1e-6))
// LARS, for each trained parameter of more than one dimension, with g its clipped gradient and L = decay * decay_mult:
//   its rate is multiplied by trust * |w| / (|g| + L * |w| + eps), or by 1 if |w| or |g| is zero
// A parameter that several ranks hold counts once; a split parameter counts with all its parts. Squares are added in
// double precision, in which they are exact. The order of additions depends neither on threads nor on the processor, so
// ranks with the same values get the same bits.
// Sources: Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks", as
// torch.nn.utils.clip_grad_norm_; You, Gitman and Ginsburg 2017, "Large Batch Training of Convolutional Networks",
// section 4. eps and the cases of zero are from NVIDIA's LARC; but LARC applies no weight decay in these cases.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/parallel/weight_sync.h"
#include "src/plan/rank_model.h"

namespace owt {

constexpr int kParamsPerUpdate = 48;  // parameters per launch; the arguments of a kernel are limited to 4 KB

struct NormSettings {
  double clip = 0;  // 0: no clipping
  // Settings of LARS, which is used if the plan has sums of weights.
  double trust = 0.001, eps = 1e-9, decay = 0;
  bool adapt_all = false;  // includes parameters of one dimension: biases, batch norm's
};

// Values whose squares are added up, in chunks.
struct SquareItem {
  const void* values;  // null: all zero
  bool bf16;           // false: f32
  int64_t count;
  int64_t first_chunk;  // index among the chunks of all items
};

// How factors follow from the sums of squares: one sum per parameter's gradient and, with LARS, then one per parameter.
struct NormRule {
  double clip;
  bool lars;
  double trust, eps, gradient_scale;
  int64_t params;
};

// The numbers on the device of the tag: f64 except first_chunk.
struct NormMemory {
  Tensor sums;
  Tensor partials;     // sums of the chunks
  Tensor first_chunk;  // i64: the first chunk of every sum, and the end of the last
  Tensor decay;        // one per parameter; negative: LARS does not apply
  Tensor factors;      // the factor of all gradients, then the rate factor of every parameter
};

class GradientNorms {
 public:
  // For the trained parameters that the rank at this place of its model group updates; `front` has their shards. All
  // arguments must outlive this. All gradients must have memory.
  GradientNorms(const Plan& plan, RankModel& model, const WeightSync& front, int place, const NormSettings& settings);

  // Queues the sums of squares over the parts that count on this rank. The gradients must be complete.
  void add_up(const Stream& stream);
  Tensor& sums() { return memory_.sums; }  // to be summed over ranks
  // Queues the computation of factors from the sums over all ranks. norm: receives |g|, one f64 that the device can
  // write.
  void settle(double gradient_scale, Tensor& norm, const Stream& stream);

  // f64 on the device where updates run, valid after settle().
  // The factor of gradients, then factors of rates.
  const double* factors() const { return memory_.factors.data<double>(); }
  // Index into factors().
  int rate_factor(const Param& param) const { return static_cast<int>(1 + number_of_.at(&param)); }

 private:
  struct Part {  // a part of a parameter that counts on this rank
    Param* param;
    Slice elements;
    Tensor gradient;  // gradient of these elements; undefined: use the parameter's
    int64_t number;   // number of the parameter among the network's trained ones
  };

  void find_parts(const Plan& plan, const WeightSync& front);
  std::vector<SquareItem> items() const;

  NormSettings settings_;
  bool lars_;
  std::unordered_map<const Param*, int64_t> number_of_;
  std::vector<Part> parts_;  // in the order of their numbers
  NormMemory memory_;
};

void add_squares(Cpu, std::span<const SquareItem> items, NormMemory& memory, const Stream& stream);
void add_squares(Cuda, std::span<const SquareItem> items, NormMemory& memory, const Stream& stream);
void settle_norms(Cpu, const NormRule& rule, NormMemory& memory, Tensor& norm, const Stream& stream);
void settle_norms(Cuda, const NormRule& rule, NormMemory& memory, Tensor& norm, const Stream& stream);

}  // namespace owt
