// The communicators of a grid of ranks: rank = replica * model_ranks + place in the model group.
#pragma once

#include <memory>

#include "src/comm/communicator.h"
#include "src/plan/plan.h"

namespace owt {

class Groups {
 public:
  // Collective over `world`, which must outlive this.
  Groups(const Plan& plan, Communicator& world);

  Communicator& world() const { return world_; }
  Communicator& model() const { return *model_; }        // the ranks that share one copy of the split layers
  Communicator& replicas() const { return *replicas_; }  // the ranks that hold the same parts
  Communicator& of(Group group) const;
  // The communicator of a group for activations and gradients, which may travel as bf16 (PlanRequest::bf16_transport).
  Communicator& wire(Group group) const;
  Device device() const { return device_; }  // device of the communicators' tensors

 private:
  Communicator& world_;
  std::unique_ptr<Communicator> made_model_, made_replicas_;
  std::unique_ptr<Communicator> bf16_world_, bf16_model_, bf16_replicas_;
  Communicator *model_, *replicas_;
  Device device_;
};

}  // namespace owt
