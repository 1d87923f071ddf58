// The layers of one rank: the front before the boundary, and behind it runs of layers between moves of features.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/net/net.h"
#include "src/parallel/feature_gather.h"
#include "src/parallel/plan.h"

namespace owt {

class RankModel {
 public:
  // Makes this rank's layers; their parameters have no memory yet.
  RankModel(const Model& model, const Plan& plan, int rank);

  Net& front() { return *front_; }
  int64_t stages() const { return static_cast<int64_t>(stages_.size()); }
  Net& stage(int64_t s) { return *stages_[static_cast<size_t>(s)]; }
  int64_t first_layer(int64_t s) const { return first_[static_cast<size_t>(s)]; }  // of the stage, in the plan

  Layer& layer(int64_t i) const;  // of the plan

  std::vector<Param*> front_params() const { return front_->params(); }
  std::vector<Param*> back_params() const;
  std::vector<Param*> params() const;  // in layer order

  void allocate(const Compute& on);  // parameters that have no memory yet
  // Draws the initial weights, the same whatever the plan; on the CPU where they have no memory yet.
  void initialize(uint64_t seed);

 private:
  std::unique_ptr<Net> front_;
  std::vector<std::unique_ptr<Net>> stages_;
  std::vector<int64_t> first_;
};

// The layers behind the boundary with the moves between them, for one batch size. With nothing behind the boundary it
// is the identity.
class BackTape {
 public:
  // comm: of the model group. All but profiler must outlive this; profiler may be null.
  BackTape(const Plan& plan, RankModel& model, int64_t rows, Communicator& comm, Profiler* profiler);

  // The dense batch -> its logits: whole rows on every rank, or with a sharded loss this rank's columns of them; valid
  // until the next forward.
  const Tensor& forward(const Pass& pass, const Tensor& x);
  // After forward on the same x. dx, a summand over the ranks, may be null.
  // Hooks: layers by their number in the plan.
  void backward(const Pass& pass, const Tensor& dlogits, Tensor* dx, const BackwardHooks& hooks = {});

  std::vector<Watched> watched() const;  // see Tape; layers of the plan
  int64_t bytes() const;

 private:
  struct Stage {
    std::optional<FeatureGather> gather;  // of the input, or none
    Layout gradient;                      // of the input's gradient, where it is gathered
    Tape tape;
    std::optional<FeatureGather> scatter;  // of the output, summands; or none
    const Tensor* x = nullptr;
    Tensor dx;  // the first stage has none of its own
  };

  RankModel& model_;
  std::vector<Stage> stages_;
  std::optional<FeatureGather> logits_;
};

}  // namespace owt
