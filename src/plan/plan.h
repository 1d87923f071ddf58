// The plan: where every layer is computed, and what is sent. It is printable data, made without weights or devices.
// Other headers answer questions about it: plan_rows.h (the rows of a rank), plan_updates.h (which rank updates which
// weights, and when), back_part.h (the input of the back part), wire_bytes.h and plan_bytes.h (the bytes that a rank
// sends and holds).
#pragma once

#include <string>
#include <vector>

#include "src/net/model.h"
#include "src/plan/bucket.h"
#include "src/plan/layer_plan.h"
#include "src/plan/plan_request.h"
#include "src/plan/transfer.h"

namespace owt {

struct Plan {
  PlanRequest request;
  std::string model;
  std::vector<LayerPlan> layers;
  // The first layer of the back part: the first dense layer, or, if channels are split, the first convolution from
  // which on all weights can be split. Earlier layers work on the rank's own rows. layers.size() if nothing is split
  // (dp, one rank, no dense layer).
  int64_t boundary = 0;
  std::vector<Bucket> buckets;  // gradients of the front, summed over front_group(), in the order of completion
  // The shards of the back part, summed over their replicas; sized for the largest shard.
  std::vector<Bucket> back_buckets;
  std::vector<Transfer> transfers;  // transfers of a full step, in the model group with the most rows
  StepTransfers of_step;
  bool sharded_loss = false;  // the loss sees this rank's columns of the logits, which are not gathered
  int model_ranks = 1;        // ranks that share one copy of the split layers; 1 if nothing is split
  std::vector<Slice> stages;  // the layers of each place of a model group, if these are stages
  int equal_parts = 1;        // the number of rounds of a full step under Rounds::kEqualParts
  int updaters = 0;           // ranks that only update weights and have no rows: the last ones; 0: all ranks compute

  LayerPlan& layer(int64_t i) { return layers[static_cast<size_t>(i)]; }
  const LayerPlan& layer(int64_t i) const { return layers[static_cast<size_t>(i)]; }
  const Transfer& transfer(TransferId id) const { return transfers[static_cast<size_t>(id)]; }

  // The grid of ranks: replicas() model groups of model_ranks places.
  int ranks() const { return request.ranks; }
  int replicas() const { return ranks() / model_ranks; }
  int ranks_of(Group group) const;
  int place_of(int rank) const { return rank % model_ranks; }
  bool in_stages() const { return !stages.empty(); }
  // Places of a model group whose ranks do different things.
  int places() const { return stages.empty() ? 1 : model_ranks; }
  bool is_at(const Bucket& bucket, int place) const { return layer(bucket.layers.back()).is_at(place); }
  bool has_loss(int place) const { return back_layers(place).end == std::ssize(layers); }

  // Whether the ranks of a model group have the same layers, parts of some of them, and the logits of the group's rows.
  bool shares_logits() const { return split() && places() == 1; }
  bool split() const { return boundary < static_cast<int64_t>(layers.size()); }
  // The layers of the back part that the rank at this place has, whole or as shards.
  Slice back_layers(int place) const;
  Slice layers_at(int place) const;  // with the layers of the front part
  Layout front_layout() const;       // layout of the activations in the front part
  Group front_group() const;         // the group that sums the gradients of the front
  // Whether a layer of the front part learns, so that gradients must return to it.
  bool front_learns() const { return boundary > 0 && layer(boundary - 1).runs_backward(); }
  // The ranks of a model group may compute the front's gradients from the same rows. The results differ in the last
  // bits if their hosts differ (processor, threads, algorithms), and copies of the weights would drift apart. All ranks
  // therefore use the gradients of the group's first rank.
  bool copies_gradients() const { return front_layout() == Layout::kReplicated; }
  Layout loss_layout() const;  // layout of the logits that the loss sees: kBatch, kReplicated or kFeature
  // Each rank computes the gradient of its logits from them alone. Backward begins while the other ranks' statistics
  // travel, and the loss of whole rows is computed after it.
  bool loss_follows() const { return sharded_loss && request.loss.type == LossType::kLogistic; }

  // The ranks that update the replicated weights. A single rank updates all of them.
  Updates updates() const { return ranks() > 1 ? facts_of(request.strategy).updates : Updates::kAll; }
  // Whether updates are sharded: each rank updates a shard, which may be empty (sharded_update.h).
  bool shares_update() const { return updates() != Updates::kAll; }
  int computing_ranks() const { return ranks() - updaters; }
  bool computes(int rank) const { return rank < computing_ranks(); }
  bool has_norms() const { return request.norm_sums > 0; }
  bool has_matrices() const;  // some updates need the whole gradient of a matrix (Param::is_matrix)
  // averages(): the copies of the front part's weights differ between averages. synchronizes(): the run has synchronous
  // steps.
  bool averages() const { return request.average_every > 1 && ranks() > 1 && front_learns(); }
  bool synchronizes() const { return !averages() || request.average_from > 0; }
};

// The strategy whose order and transfers the plan has: dp on one rank, and if there is nothing to split.
const StrategyFacts& acting_strategy(const Plan& plan);

// Throws Error if the strategy cannot split the model, or if the ranks cannot be divided into groups.
Plan make_plan(const Model& model, const PlanRequest& request);

}  // namespace owt
