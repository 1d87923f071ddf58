#include "src/plan/transfers.h"

#include <algorithm>
#include <utility>

#include "src/plan/back_part.h"
#include "src/plan/loss_stats.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/step_result.h"
#include "src/plan/wire_bytes.h"

namespace owt {
namespace {

// Bytes of this many features of one row in transport.
int64_t activation_bytes(const Plan& plan, int64_t features) {
  return features * std::min(gradient_size(plan), size_of(activation_type(plan.request.on.precision)));
}

class TransferList {
 public:
  // Lists the transfers of the model group whose first rank is `first`.
  TransferList(Plan& plan, int first) : plan_(plan), rows_(rows_of(plan, plan.request.step_rows)), first_(first) {}

  void list() {
    for (int64_t i = 0; i < std::ssize(plan_.layers); ++i) add_sums(i);
    for (int slice = 0; slice < rows_.slices(); ++slice) add_slice(rows_.slice(slice));
    const bool every_round = plan_.request.dense_update == DenseUpdate::kRound;
    const int updates = every_round ? rows_.count_rounds() : 1;
    for (const Bucket& bucket : plan_.back_buckets)
      for (int update = 0; update < updates; ++update)
        add(plan_.of_step.dense_gradients, "dense gradients", Collective::kAllReduce, Group::kReplicas,
            Layout::kPartial, Layout::kReplicated, wire_bytes(plan_, bucket), 1,
            plan_.layer(bucket.layers.back()).place);
    for (const Bucket& bucket : plan_.buckets) add_bucket(bucket);
    add_norms();
    add_result();
  }

 private:
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

  void add_slice(const StepRows& rows) {
    most_rows_ = rows.most_beside(first_);
    if (plan_.split() && !plan_.in_stages() && plan_.front_layout() == Layout::kBatch)
      add(plan_.of_step.labels, "labels", Collective::kAllGather, Group::kModel, Layout::kBatch, Layout::kReplicated,
          most_rows_ * plan_.model_ranks * plan_.request.loss.label_numbers() * 4);
    for (const StepRows::RoundSize& round : rows.round_sizes(first_)) add_round(round);
  }

  void add_round(const StepRows::RoundSize& round) {
    if (!plan_.split()) return;
    if (plan_.in_stages()) return add_messages(round.rows);
    add_crossing(round);
    for (int64_t i = plan_.boundary; i < std::ssize(plan_.layers); ++i) add_moves(i, round.rows);
    if (plan_.sharded_loss)
      add(plan_.of_step.loss_statistics, "loss statistics", Collective::kAllGather, Group::kModel, Layout::kFeature,
          Layout::kReplicated, plan_.model_ranks * round.rows * loss_stats(plan_.request.loss) * 4);
    else if (plan_.layers.back().layout == Layout::kFeature)
      add(plan_.of_step.logits, "logits", Collective::kAllGather, Group::kModel, Layout::kFeature, Layout::kReplicated,
          columns_of(plan_.layers.back(), round.rows));
  }

  // Uneven parts are padded to the first part, which is the longest.
  int64_t columns_bytes(const std::vector<Slice>& parts, int64_t rows) const {
    return activation_bytes(plan_, plan_.model_ranks * parts.front().size() * rows);
  }
  int64_t columns_of(const LayerPlan& output, int64_t rows) const {
    return columns_bytes(output.parts, rows * output.pixels_out());
  }

  // The sums of a layer's ops over all rows of the step (rank_sums.h). If columns are split, each rank sums its own
  // columns. All places do so at the same time, so it is one call, and the first place has the most.
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

  // The all-gather of rows at the boundary, and the return of their gradients (seam.h).
  void add_crossing(const StepRows::RoundSize& round) {
    LayerPlan& first = plan_.layer(plan_.boundary);
    const StrategyFacts& facts = facts_of(plan_.request.strategy);
    const int64_t row_bytes = activation_bytes(plan_, first.in.elements());
    const auto home = [&](Collective collective, Layout from, Layout to, int64_t bytes) {
      if (first.wants_dx)
        add(first.transfers.input_gradient, first.name + " input gradient", collective, Group::kModel, from, to, bytes);
    };
    const auto cross = [&](Collective there, Collective back, Layout to, Layout of_gradient, int64_t bytes) {
      add(first.transfers.input, first.name + " input", there, Group::kModel, Layout::kBatch, to, bytes);
      home(back, of_gradient, Layout::kBatch, bytes);
    };
    if (facts.shares_rows && first.by_inputs())
      home(Collective::kAllGather, Layout::kFeature, Layout::kReplicated, columns_bytes(first.inputs, most_rows_));
    else if (facts.shares_rows)
      home(Collective::kAllReduce, Layout::kPartial, Layout::kReplicated, most_rows_ * row_bytes);
    else if (facts.rounds == Rounds::kOneRanks)
      cross(Collective::kBroadcast, Collective::kReduce, Layout::kReplicated, Layout::kPartial, round.rows * row_bytes);
    else if (first.by_inputs())
      cross(Collective::kAllToAll, Collective::kAllToAll, Layout::kFeature, Layout::kFeature,
            columns_bytes(first.inputs, round.longest));
    else
      cross(Collective::kAllGather, Collective::kReduceScatter, Layout::kReplicated, Layout::kPartial,
            plan_.model_ranks * round.longest * row_bytes);
  }

  // A micro-batch passes from stage to stage, and the gradients of its activations pass back.
  void add_messages(int64_t rows) {
    for (int place = 1; place < plan_.model_ranks && rows > 0; ++place) {
      LayerPlan& first = plan_.layer(plan_.layers_behind(place).begin);
      const int64_t bytes = activation_bytes(plan_, rows * first.in.elements());
      add_message(first.transfers.input, first.name + " input", bytes, place - 1, place);
      if (first.wants_dx)
        add_message(first.transfers.input_gradient, first.name + " input gradient", bytes, place, place - 1);
    }
  }

  void add_message(TransferId& id, const std::string& name, int64_t bytes, int from, int to) {
    add(id, name, Collective::kSend, Group::kModel, Layout::kReplicated, Layout::kReplicated, bytes);
    plan_.transfers[static_cast<size_t>(id)].sender = from;
    plan_.transfers[static_cast<size_t>(id)].receiver = to;
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
      scatter(at.transfers.input_gradient, " input gradient", bytes);
  }

  void add_bucket(const Bucket& bucket) {
    StepTransfers& of = plan_.of_step;
    if (plan_.averages()) {
      add(of.averages, "averages", Collective::kAllReduce, Group::kWorld, Layout::kPartial, Layout::kReplicated,
          averaged_elements(plan_, bucket) * 4, plan_.request.average_every);
      if (!plan_.synchronizes()) return;
    }
    const int64_t bytes = wire_bytes(plan_, bucket);
    if (plan_.shares_update()) {  // kFeature is the closest layout: shards are ranges of elements
      const auto [there, back] = ways_of_shares();
      add(of.gradients, "gradients", there, Group::kWorld, Layout::kPartial, Layout::kFeature, bytes);
      add(of.weights, "weights", back, Group::kWorld, Layout::kFeature, Layout::kReplicated, bucket.elements * 4);
    } else if (!plan_.copies_gradients() || plan_.replicas() > 1) {
      add(of.gradients, "gradients", Collective::kAllReduce, plan_.front_group(), Layout::kPartial, Layout::kReplicated,
          bytes, plan_.averages() ? 0 : 1);
    }
    if (plan_.copies_gradients())
      add(of.gradient_copies, "gradient copies", Collective::kBroadcast, Group::kModel, Layout::kReplicated,
          Layout::kReplicated, bytes);
  }

  // How gradients reach the ranks that update, and how weights return. Servers exchange one message with each worker:
  // an all-to-all, or a star if the servers are not workers.
  std::pair<Collective, Collective> ways_of_shares() const {
    if (plan_.updates() == Updates::kFirst || plan_.has_servers_apart())
      return {Collective::kReceive, Collective::kSend};
    if (plan_.serves()) return {Collective::kAllToAll, Collective::kAllToAll};
    return {Collective::kReduceScatter, Collective::kAllGather};
  }

  void add_result() {
    const bool served = plan_.serves();
    add(plan_.of_step.result, "step result", served ? Collective::kAllGather : Collective::kAllReduce, Group::kWorld,
        Layout::kPartial, Layout::kReplicated, served ? plan_.ranks() * kToldBytes : kStepResultBytes);
  }

  // Each rank adds up squares of the gradients that it updates. No norms travel if all ranks update the same weights.
  void add_norms() {
    const bool shares = plan_.updates() == Updates::kShares;
    if (!plan_.has_norms() || plan_.updates() == Updates::kFirst || (!shares && plan_.model_ranks == 1)) return;
    add(plan_.of_step.norms, "gradient norms", Collective::kAllReduce, shares ? Group::kWorld : Group::kModel,
        Layout::kPartial, Layout::kReplicated, trained_params(plan_) * plan_.request.norm_sums * 8);
  }

  Plan& plan_;
  StepRows rows_;
  int first_;
  int64_t most_rows_ = 0;  // rows of a rank of the group, in the micro-batch
};

// Whether the statistics that ranks need of each other's logits are smaller than the logits.
bool sends_less_sharded(const Plan& plan) {
  const LayerPlan& last = plan.layers.back();
  const bool features = last.layout == Layout::kFeature && last.pixels_out() == 1;
  return features && loss_stats(plan.request.loss) * 4 < activation_bytes(plan, last.parts.front().size());
}

}  // namespace

void list_transfers(Plan& plan) {
  plan.sharded_loss = !plan.request.whole_logits && sends_less_sharded(plan);
  TransferList(plan, rows_of(plan, plan.request.step_rows).busiest_group()).list();
}

std::vector<Transfer> transfers_of(Plan plan, int rank) {
  plan.transfers.clear();
  plan.of_step = {};
  for (LayerPlan& layer : plan.layers) layer.transfers = {};
  TransferList(plan, rank / plan.model_ranks * plan.model_ranks).list();
  return plan.transfers;
}

}  // namespace owt
