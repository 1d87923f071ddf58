// The effect of a collective operation on the memory of its ranks.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace simulated_gpu {

enum class Collective { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kGather, kScatter };

// One rank's call.
struct CollectiveCall {
  Collective kind{};
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;  // count argument of the call
  ncclDataType_t type{};
  ncclRedOp_t op = ncclSum;
  int root = 0;

  bool agrees_with(const CollectiveCall& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op && root == other.root;
  }
};

size_t bytes_of(ncclDataType_t type);  // 0 for a type that is not simulated
bool is_simulated(ncclRedOp_t op);

// Numbers of elements that a rank sends and receives; 0 if its buffer is not used.
size_t sent_elements(const CollectiveCall& call, int rank, int ranks);
size_t received_elements(const CollectiveCall& call, int rank, int ranks);

// The calls of all ranks, by rank. Sums are taken in rank order; bf16 sums are rounded at each step.
void perform(const std::vector<CollectiveCall>& calls);

}  // namespace simulated_gpu
