// What a mirror copies of a rank: the tensors of its weights, optimizer state and averages over time, and which of
// their elements the rank has.
#pragma once

#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/mirror/region.h"
#include "src/parallel/optimizer.h"
#include "src/parallel/step.h"
#include "src/plan/rank_model.h"

namespace owt {

struct Mirrored {
  RankModel& model;
  Optimizer& optimizer;
  Step& step;
};

// A tensor without its values.
struct MirroredPart {
  std::string name;      // different for weights, states and averages of a parameter
  int64_t elements = 0;  // size of the whole tensor
  Region region;         // what a rank has of it; may be empty
};

struct MirroredTensor {
  MirroredPart part;
  Shape whole;              // shape of the whole tensor in memory order
  Tensor values;            // the rank's elements, on the device
  Param* weight = nullptr;  // the parameter whose value they are; null: a state or an average

  // The elements of some whole rows of the tensor, on the host in memory order.
  void set(const Slice& rows, const Tensor& on_host);
};

// All tensors in the order of layers, also where this rank has nothing: the names are the same on all ranks.
std::vector<MirroredTensor> mirrored_tensors(const Mirrored& of);

std::vector<MirroredPart> parts_of(const std::vector<MirroredTensor>& tensors);
// Collective: the `mine` of every rank, by rank. device: of the communicator's tensors.
std::vector<std::vector<MirroredPart>> gather_parts(Communicator& comm, const std::vector<MirroredPart>& mine,
                                                    Device device);

}  // namespace owt
