// The layers behind the boundary on one rank, with the moves of columns between them, features or channels of images,
// for one number of rows. With nothing behind the boundary it is the identity.
//
// What runs and what moves when is the caller's to say, in the order of order.h: each call goes on from where the last
// one came to.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "src/net/net.h"
#include "src/parallel/feature_gather.h"
#include "src/parallel/plan.h"
#include "src/parallel/rank_model.h"

namespace owt {

class DenseTape {
 public:
  // comm: of the model group. All but profiler must outlive this; profiler may be null. lender: see Tape.
  DenseTape(const Plan& plan, RankModel& model, int64_t rows, Communicator& comm, Profiler* profiler,
            const DenseTape* lender = nullptr);
  DenseTape(const DenseTape&) = delete;
  DenseTape& operator=(const DenseTape&) = delete;

  // Makes what the ops need for backward; wants_dx: begin_backward will get a dx. See Tape.
  void prepare_backward(bool wants_dx);

  // x: the dense batch; it must not change until backward is over.
  void begin_forward(const Tensor& x);
  void forward(const Pass& pass, int64_t layer);  // of the plan
  // When all have run: the logits, whole rows on every rank, or with a sharded loss this rank's columns of them. Valid
  // until the next forward.
  const Tensor& output() const { return *at_; }

  // dx: where the gradient of x is wanted, a summand over the ranks; null: nowhere.
  void begin_backward(const Tensor& dlogits, Tensor* dx, const Stream& stream);
  void backward_data(const Pass& pass, int64_t layer);
  void backward_weights(const Pass& pass, int64_t layer);

  // A transfer of the features that the last call came to; the next call goes on from what it brings. Those at the
  // boundary itself and of the loss are not among them (has()).
  bool has(TransferId transfer) const { return moves_.contains(transfer); }
  void start(TransferId transfer, const Stream& stream);
  void wait(TransferId transfer, const Stream& stream);

  std::vector<Watched> watched() const;                     // see Tape; layers of the plan
  std::optional<int32_t> find_bad_layer(const Pass& pass);  // the same

 private:
  // Layers that run one after the other without a move between them.
  struct Stage {
    int64_t begin, end;                   // in the plan
    std::optional<FeatureGather> gather;  // of the input, or none
    bool take;                            // the gradient of the gathered input is whole: this rank takes its columns
    Tape tape;
    std::optional<FeatureGather> scatter;  // of the output, summands; or none
    const Tensor* x = nullptr;
    Tensor dx{};  // the first stage has none of its own, and one behind layers that learn nothing has none
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
  const Tensor* at_ = nullptr;  // the activations, or the gradient, that the last call came to
  Tensor* dx_ = nullptr;
};

}  // namespace owt
