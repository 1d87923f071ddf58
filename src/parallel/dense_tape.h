// The layers of the back part on one rank, with the transfers of columns between them (features, or channels of
// images), for one number of rows. With an empty back part it is the identity.
//
// The caller decides what runs and what travels when, in the order of order.h. Each call continues from the result of
// the previous one.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "src/net/net.h"
#include "src/parallel/feature_gather.h"
#include "src/plan/plan.h"
#include "src/plan/rank_model.h"

namespace owt {

class DenseTape {
 public:
  // comm: of the model group. All arguments but profiler must outlive this; profiler may be null. lender: see Tape.
  DenseTape(const Plan& plan, RankModel& model, int64_t rows, Communicator& comm, Profiler* profiler,
            const DenseTape* lender = nullptr);
  DenseTape(const DenseTape&) = delete;
  DenseTape& operator=(const DenseTape&) = delete;

  // Allocates what the ops need for backward. wants_dx: begin_backward will get a dx. See Tape.
  void prepare_backward(bool wants_dx);

  // x: the dense batch; it must not change until backward is over.
  void begin_forward(const Tensor& x);
  void forward(const Pass& pass, int64_t layer);  // layer: index in the plan
  // The logits, after all layers have run: whole rows on every rank, or with a sharded loss this rank's columns. Valid
  // until the next forward.
  const Tensor& output() const { return *at_; }

  // dx: receives the gradient of x, a partial sum over the ranks; null: not computed.
  void begin_backward(const Tensor& dlogits, Tensor* dx, const Stream& stream);
  void backward_data(const Pass& pass, int64_t layer);
  void backward_weights(const Pass& pass, int64_t layer);

  // A transfer of the features that the last call produced; the next call continues with its result. has() is false for
  // transfers at the boundary itself and of the loss.
  bool has(TransferId transfer) const { return moves_.contains(transfer); }
  void start(TransferId transfer, const Stream& stream);
  void wait(TransferId transfer, const Stream& stream);

  std::vector<Watched> watched() const;                     // see Tape; layer indexes are the plan's
  std::optional<int32_t> find_bad_layer(const Pass& pass);  // see Tape; the layer index is the plan's

 private:
  // Consecutive layers without a transfer between them.
  struct Stage {
    int64_t begin, end;                   // layers of the plan
    std::optional<FeatureGather> gather;  // gathers the input, if present
    bool take;                            // the gradient of the gathered input is whole: this rank takes its columns
    Tape tape;
    std::optional<FeatureGather> scatter;  // reduces and scatters the output, a partial sum, if present
    const Tensor* x = nullptr;
    Tensor dx{};  // undefined for the first stage, and if no earlier layer learns
  };
  enum class Way { kGather, kReduce };
  struct Move {
    FeatureGather* features;
    Way way;
  };

  Stage& stage_of(int64_t layer);
  void add_moves(const Plan& plan);

  Profiler* profiler_;
  std::vector<Stage> stages_;
  std::optional<FeatureGather> logits_;
  std::map<TransferId, Move> moves_;
  Tensor x_;
  const Tensor* at_ = nullptr;  // the activations, or the gradient, that the last call produced
  Tensor* dx_ = nullptr;
};

}  // namespace owt
