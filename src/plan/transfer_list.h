// The functions in which strategies list the transfers of a step (src/plan/strategies): each adds calls and bytes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "src/plan/back_part.h"
#include "src/plan/loss_stats.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/plan/step_result.h"
#include "src/plan/wire_bytes.h"

namespace owt {

class TransferList {
 public:
  // Lists the transfers of the model group whose first rank is `first`.
  TransferList(Plan& plan, int first) : plan_(plan), rows_(rows_of(plan, plan.request.step_rows)), first_(first) {}

  const Plan& plan() const { return plan_; }
  const LayerPlan& seam() const { return plan_.layer(plan_.boundary); }  // the first layer of the back part

  // The sums of all layers' ops over all rows of the step (rank_sums.h).
  void step_sums() {
    for (int64_t i = 0; i < std::ssize(plan_.layers); ++i) add_sums(i);
  }

  // The labels of all rows that the ranks need, in every micro-batch.
  void labels() {
    for (int slice = 0; slice < rows_.slices(); ++slice) {
      const LabelGroup of = label_group(plan_, rows_.slice(slice), first_);
      add(plan_.of_step.labels, "labels", Collective::kAllGather, of.group, Layout::kBatch, Layout::kReplicated,
          of.most_rows * of.ranks * plan_.request.loss.label_numbers() * 4);
    }
  }

  // Calls the function for each round of each micro-batch.
  template <class ListRound>
  void each_round(const ListRound& list) {
    for (int slice = 0; slice < rows_.slices(); ++slice) {
      const StepRows rows = rows_.slice(slice);
      most_rows_ = rows.most_beside(first_);
      for (const StepRows::RoundSize& round : rows.round_sizes(first_)) list(round);
    }
  }
  // In these calls: the most rows of a rank of the group, in the micro-batch.
  int64_t most_rows() const { return most_rows_; }

  // Bytes of columns in transport. Uneven parts are padded to the first part, which is the longest.
  int64_t columns_bytes(const std::vector<Slice>& parts, int64_t rows) const {
    return activation_bytes(plan_, plan_.model_ranks * parts.front().size() * rows);
  }

  // The transfer of rows to the back part, and of the gradients of its input, if they are used.
  void bring(Collective collective, Layout to, int64_t bytes) {
    LayerPlan& first = plan_.layer(plan_.boundary);
    add(first.transfers.input, first.name + " input", collective, Group::kModel, Layout::kBatch, to, bytes);
  }
  void return_gradient(Collective collective, Layout from, Layout to, int64_t bytes) {
    LayerPlan& first = plan_.layer(plan_.boundary);
    if (from == Layout::kPartial) bytes = input_sum_bytes(plan_, bytes);
    if (first.wants_dx)
      add(first.transfers.input_gradient, first.name + " input gradient", collective, Group::kModel, from, to, bytes);
  }

  // The activations of a micro-batch on their way to the stage at this place, and their gradients on the way back.
  void messages(int place, int64_t rows) {
    LayerPlan& first = plan_.layer(plan_.back_layers(place).begin);
    const int64_t bytes = activation_bytes(plan_, rows * first.in.elements());
    const auto send = [&](TransferId& id, const char* what, int from, int to) {
      add(id, first.name + what, Collective::kSend, Group::kModel, Layout::kReplicated, Layout::kReplicated, bytes);
      plan_.transfers[static_cast<size_t>(id)].sender = from;
      plan_.transfers[static_cast<size_t>(id)].receiver = to;
    };
    send(first.transfers.input, " input", place - 1, place);
    if (first.wants_dx) send(first.transfers.input_gradient, " input gradient", place, place - 1);
  }

  // The transfers between the layers of the back part and for the loss.
  void features(int64_t rows) {
    for (int64_t i = plan_.boundary; i < std::ssize(plan_.layers); ++i) add_moves(i, rows);
    if (plan_.sharded_loss)
      add(plan_.of_step.loss_statistics, "loss statistics", Collective::kAllGather, Group::kModel, Layout::kFeature,
          Layout::kReplicated, plan_.model_ranks * rows * loss_stats(plan_.request.loss) * 4);
    else if (plan_.layers.back().layout == Layout::kFeature)
      add(plan_.of_step.logits, "logits", Collective::kAllGather, Group::kModel, Layout::kFeature, Layout::kReplicated,
          columns_of(plan_.layers.back(), rows));
  }

  // The sums of all gradients, with their norms; or the averages of weights.
  void gradients() {
    StepTransfers& of = plan_.of_step;
    const int updates = back_updates(plan_);
    for (const Bucket& bucket : plan_.back_buckets)
      for (int update = 0; update < updates; ++update)
        add(of.dense_gradients, "dense gradients", Collective::kAllReduce, Group::kReplicas, Layout::kPartial,
            Layout::kReplicated, wire_bytes(plan_, bucket), 1, plan_.layer(bucket.layers.back()).place);
    for (const Bucket& bucket : plan_.buckets) {
      const int64_t bytes = wire_bytes(plan_, bucket);
      if (plan_.averages())
        add(of.averages, "averages", Collective::kAllReduce, Group::kWorld, Layout::kPartial, Layout::kReplicated,
            averaged_elements(plan_, bucket) * 4, plan_.request.average_every);
      if (plan_.synchronizes() && (!plan_.copies_gradients() || plan_.replicas() > 1))
        add(of.gradients, "gradients", Collective::kAllReduce, plan_.front_group(), Layout::kPartial,
            Layout::kReplicated, bytes, plan_.averages() ? 0 : 1);
      if (plan_.copies_gradients())
        add(of.gradient_copies, "gradient copies", Collective::kBroadcast, Group::kModel, Layout::kReplicated,
            Layout::kReplicated, bytes);
    }
    norms(Group::kModel);
    matrices();
  }

  // The gradients on their way to the ranks that update shards, and the weights on their way back.
  void shards(Collective there, Collective back) {
    StepTransfers& of = plan_.of_step;
    for (const Bucket& bucket : plan_.buckets) {  // kFeature is the closest layout: shards are ranges of elements
      add(of.gradients, "gradients", there, Group::kWorld, Layout::kPartial, Layout::kFeature,
          wire_bytes(plan_, bucket));
      add(of.weights, "weights", back, Group::kWorld, Layout::kFeature, Layout::kReplicated, bucket.elements * 4);
    }
    matrices();
  }

  // If updates wait for norms, and each rank of the group has a part of the squares.
  void norms(Group group) {
    if (plan_.has_norms() && plan_.ranks_of(group) > 1)
      add(plan_.of_step.norms, "gradient norms", Collective::kAllReduce, group, Layout::kPartial, Layout::kReplicated,
          trained_params(plan_) * plan_.request.norm_sums * 8);
  }

  // The sum of the ranks' results, which follows if it is not called.
  void result() { result(Collective::kAllReduce, kStepResultBytes + (plan_.request.loss.samples() ? 8 : 0)); }
  void result(Collective collective, int64_t bytes) {
    add(plan_.of_step.result, "step result", collective, Group::kWorld, Layout::kPartial, Layout::kReplicated, bytes);
  }

 private:
  // The matrices that updates need whole.
  void matrices() {
    const int ranks = plan_.ranks_of(matrix_group(plan_));
    for (int64_t i = 0; i < std::ssize(plan_.layers); ++i)
      for (size_t p = 0; p < plan_.layer(i).params.size(); ++p)
        for (int update = 0; update < (matrix_block(plan_, i, p) > 0 ? back_updates(plan_) : 0); ++update)
          add(plan_.of_step.matrices, "matrices", Collective::kAllGather, matrix_group(plan_), Layout::kFeature,
              Layout::kReplicated, ranks * matrix_block(plan_, i, p) * 4);
  }

  // Adds one more call of the transfer, which is created if it has no id yet. place: the only place in a model group
  // that makes the call.
  void add(TransferId& id, const std::string& name, Collective collective, Group group, Layout from, Layout to,
           int64_t tensor_bytes, int every = 1, int place = kEveryPlace) {
    if (id == kNoTransfer) {
      id = static_cast<TransferId>(plan_.transfers.size());
      plan_.transfers.push_back({name, collective, group, from, to});
      plan_.transfers.back().every = every;
    }
    Transfer& transfer = plan_.transfers[static_cast<size_t>(id)];
    ++transfer.calls;
    transfer.whole += tensor_bytes;
    const int ranks = plan_.ranks_of(group);
    const bool star = is_message(collective) && group == Group::kWorld;  // bytes are the mean over all ranks
    const int64_t sent = star ? tensor_bytes * (ranks - 1) / ranks : bytes_sent(collective, tensor_bytes, ranks);
    if (place == kEveryPlace) {
      transfer.bytes += sent;
      return;
    }
    transfer.by_place.resize(static_cast<size_t>(plan_.model_ranks));
    int64_t& bytes = transfer.by_place[static_cast<size_t>(place)] += sent;
    transfer.bytes = std::max(transfer.bytes, bytes);
  }

  // If columns are split, each rank sums its own columns. All places do so at the same time, so it is one call, and the
  // first place has the most.
  void add_sums(int64_t i) {
    LayerPlan& at = plan_.layer(i);
    const Group group = rows_group(plan_, i);
    if (plan_.ranks_of(group) == 1) return;
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      const std::vector<int64_t> most = at.step_sums(phase, 0);
      for (size_t call = 0; call < most.size(); ++call) {
        add(at.transfers.sums, at.name + " statistics", Collective::kAllReduce, group, Layout::kPartial,
            Layout::kReplicated, most[call] * size_of(DType::kF64));
        if (at.layout == Layout::kFeature) add_sums_of_places(at, phase, call);
      }
    }
  }

  void add_sums_of_places(const LayerPlan& at, Phase phase, size_t call) {
    Transfer& transfer = plan_.transfers[static_cast<size_t>(at.transfers.sums)];
    transfer.by_place.resize(static_cast<size_t>(plan_.model_ranks));
    for (int place = 0; place < plan_.model_ranks; ++place)
      transfer.by_place[static_cast<size_t>(place)] += bytes_sent(
          transfer.collective, at.step_sums(phase, place)[call] * size_of(DType::kF64), plan_.ranks_of(transfer.group));
  }

  int64_t columns_of(const LayerPlan& output, int64_t rows) const {
    return columns_bytes(output.parts, rows * output.pixels_out());
  }

  // The transfers of features around a layer (feature_gather.h): columns are gathered, and partial sums are reduced and
  // scattered. If the loss sees whole logits, every rank has their whole gradient.
  void add_moves(int64_t i, int64_t rows) {
    LayerPlan& at = plan_.layer(i);
    const auto gather = [&](TransferId& id, const char* what, int64_t bytes) {
      add(id, at.name + what, Collective::kAllGather, Group::kModel, Layout::kFeature, Layout::kReplicated, bytes);
    };
    const auto scatter = [&](TransferId& id, const char* what, int64_t bytes) {
      add(id, at.name + what, Collective::kReduceScatter, Group::kModel, Layout::kPartial, Layout::kFeature, bytes);
    };
    if (at.by_inputs()) {
      scatter(at.transfers.output, " output", columns_bytes(at.parts, rows));
      if (at.runs_backward() && (i + 1 < std::ssize(plan_.layers) || plan_.sharded_loss))
        gather(at.transfers.output_gradient, " output gradient", columns_bytes(at.parts, rows));
    }
    if (!at.gather_before) return;
    const int64_t bytes = columns_of(plan_.layer(i - 1), rows);
    gather(at.transfers.input, " input", bytes);
    if (at.wants_dx && gradient_layout(plan_, i) == Layout::kPartial)
      scatter(at.transfers.input_gradient, " input gradient", input_sum_bytes(plan_, bytes));
  }

  Plan& plan_;
  StepRows rows_;
  int first_;
  int64_t most_rows_ = 0;
};

}  // namespace owt
