// A transfer of a step: its collective, its calls and its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/plan/layer_plan.h"

namespace owt {

// The ranks that take part in a transfer.
enum class Group {
  kWorld,     // all ranks
  kModel,     // the ranks that share one copy of the split layers
  kReplicas,  // the ranks that hold the same parts, one of each model group
};
const char* name_of(Group group);

// What a training step does with the weights of the front part, of which every rank has a copy (local SGD,
// PlanRequest::average_every).
enum class StepKind {
  kSynchronous,  // every rank updates with the sum of all gradients
  kLocal,        // every rank updates with the gradient of its own rows, so the copies diverge
  kAveraging     // a local step, after which weights and optimizer state are averaged
};

// One kind of collective in a step. A transfer with several calls (one a round) counts them all. For a central server,
// kSend stands for messages from the group's first rank to each other rank, one tensor each; kReceive stands for
// messages in the other direction.
struct Transfer {
  std::string name;  // for reports: "fc7 input"
  Collective collective;
  Group group;
  Layout from, to;
  int calls = 0;      // calls in a step that has the transfer
  int64_t bytes = 0;  // bytes sent by each rank in such a step
  // Which steps have it. 1: every step; n > 1: averaging steps, one in n; 0: synchronous steps before average_from.
  int every = 1;
  // Messages only: places in a model group. No other rank sends.
  int sender = kEveryPlace, receiver = kEveryPlace;
  std::vector<int64_t> by_place{};  // bytes by place in a model group, if they differ; `bytes` is then the largest

  bool in(StepKind kind) const {
    return every == 1 || kind == (every == 0 ? StepKind::kSynchronous : StepKind::kAveraging);
  }
  bool is_between_places() const { return sender != kEveryPlace; }
  int64_t bytes_at(int place) const {
    if (sender != kEveryPlace) return place == sender ? bytes : 0;
    return by_place.empty() ? bytes : by_place[static_cast<size_t>(place)];
  }

  int64_t whole = 0;  // bytes of the whole tensors in such a step
};

// The transfers that belong to no single layer.
struct StepTransfers {
  TransferId labels = kNoTransfer, logits = kNoTransfer, loss_statistics = kNoTransfer;
  TransferId gradients = kNoTransfer, gradient_copies = kNoTransfer, weights = kNoTransfer;  // for the front part
  TransferId averages = kNoTransfer;                                                         // for the front part
  TransferId dense_gradients = kNoTransfer, norms = kNoTransfer, result = kNoTransfer;
  TransferId matrices = kNoTransfer;  // inside of updates
};

}  // namespace owt
