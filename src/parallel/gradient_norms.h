// Norms of the gradients of a step, and of the weights, over all ranks, and what updates are scaled by for them.
//
// Clipping, with g all trained gradients as one vector (after gradient_scale):
//   every gradient counts min(1, clip / (|g| + 1e-6)) times
// LARS, for each trained parameter of more than one dimension, with g its clipped gradient and L = decay * decay_mult:
//   its rate counts trust * |w| / (|g| + L * |w| + eps) times; once where |w| or |g| is zero
// A parameter that several ranks hold counts once, and one that is split with all its parts. Squares are added in
// double precision, which has them exactly, and in an order that depends neither on threads nor on the processor: ranks
// with the same values get the same bits.
// Sources: Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks", as
// torch.nn.utils.clip_grad_norm_; You, Gitman and Ginsburg 2017, "Large Batch Training of Convolutional Networks",
// section 4; eps and the cases of zero are from NVIDIA's LARC, which lets nothing decay in these, however.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/parallel/rank_model.h"
#include "src/parallel/weight_sync.h"

namespace owt {

struct NormSettings {
  double clip = 0;  // 0: nothing is clipped
  // Of LARS, which there is where the plan has sums of weights.
  double trust = 0.001, eps = 1e-9, decay = 0;
  bool adapt_all = false;  // parameters of one dimension as well: biases, batch norm's
};

// Values whose squares are added up, in chunks.
struct SquareItem {
  const void* values;  // null: zero
  bool bf16;           // else they are f32
  int64_t count;
  int64_t first_chunk;  // among those of all items
};

// What is made of the sums of squares: those of every parameter's gradient, and with LARS those of the parameters
// behind them.
struct NormRule {
  double clip;
  bool lars;
  double trust, eps, gradient_scale;
  int64_t params;
};

// Where the numbers lie, all f64 but the chunks; on the device of the tag.
struct NormMemory {
  Tensor sums;
  Tensor partials;     // of every chunk
  Tensor first_chunk;  // i64, of every sum, and the end of the last
  Tensor decay;        // of every parameter; below 0: LARS leaves it alone
  Tensor factors;      // of gradients, and then of every parameter's rate
};

class GradientNorms {
 public:
  // Of the trained parameters that the rank at this place of its model group updates, of which front says the shares.
  // All must outlive this; gradients must have memory, all of them.
  GradientNorms(const Plan& plan, RankModel& model, const WeightSync& front, int place, const NormSettings& settings);

  // Queues the sums of squares over what counts for this rank. The gradients are complete.
  void add_up(const Stream& stream);
  Tensor& sums() { return memory_.sums; }  // for the sum over ranks
  // Queues what follows from the sums over all ranks. norm: |g|, one f64 where the device can write.
  void settle(double gradient_scale, Tensor& norm, const Stream& stream);

  // f64, where updates run, valid behind settle().
  const double* factors() const { return memory_.factors.data<double>(); }  // of gradients, and of rates
  int rate_factor(const Param& param) const { return static_cast<int>(1 + number_of_.at(&param)); }  // its number

 private:
  struct Part {  // of a parameter that counts here
    Param* param;
    Slice elements;
    Tensor gradient;  // of these; undefined: that of the parameter
    int64_t number;   // of the parameter, among the trained ones of the network
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
