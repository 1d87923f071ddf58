// The layers of one rank: the front part, and the back part as runs of layers between transfers of features. For layers
// of other pipeline stages the rank has the parameters without rows, so that all ranks list the same parameters.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "src/net/net.h"
#include "src/plan/plan.h"

namespace owt {

class RankModel {
 public:
  // Makes this rank's layers; their parameters have no memory yet.
  RankModel(const Model& model, const Plan& plan, int rank);

  Net& front() { return *front_; }
  int64_t stages() const { return static_cast<int64_t>(stages_.size()); }
  Net& stage(int64_t s) { return *stages_[static_cast<size_t>(s)]; }
  // First layer of the stage, in the plan.
  int64_t first_layer(int64_t s) const { return first_[static_cast<size_t>(s)]; }

  Layer& layer(int64_t i) const;  // i: index in the plan

  std::vector<Param*> front_params() const { return front_->params(); }
  std::vector<Param*> back_params() const;
  std::vector<Param*> params() const;  // in layer order

  void allocate(const Compute& on);  // allocates parameters that have no memory yet
  // Draws the initial weights, which do not depend on the plan. Parameters without memory get it on the CPU.
  void initialize(uint64_t seed);

 private:
  std::unique_ptr<Net> front_;
  std::vector<std::unique_ptr<Net>> stages_;
  std::vector<int64_t> first_;
  std::map<int64_t, std::unique_ptr<Layer>> elsewhere_;
  int64_t layers_;
};

}  // namespace owt
