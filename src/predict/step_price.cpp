#include "src/predict/step_price.h"

#include <algorithm>
#include <numeric>

#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/plan/wire_bytes.h"
#include "src/predict/memory_need.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

// The fraction of a layer's backward time that computes the gradient of its input: half for layers with large products
// (dense, or split). Other layers are assumed to compute everything at once, and frozen layers compute nothing else.
double data_share(const LayerPlan& at) {
  const bool split_images = at.columns == Columns::kSplitsChannels && at.layout == Layout::kFeature;
  return at.learns() && (at.columns == Columns::kSplits || split_images) ? 0.5 : 1;
}

// The load of the rank that holds up the others: its rows, and the factor by which it is slower.
struct Load {
  double rows = 0, slowness = 1;

  void take(int64_t others_rows, double others_slowness) {
    if (static_cast<double>(others_rows) * others_slowness <= rows * slowness) return;
    *this = {static_cast<double>(others_rows), others_slowness};
  }
};

// The slowest rank's loads in a micro-batch of a full step. That rank may differ between the front part and the rounds
// of dense batches.
struct Loads {
  Load front;
  std::vector<Load> rounds;
  double most_slowness = 1;  // the largest of any rank

  Loads(const Plan& plan, const StepRows& rows) {
    const PlanRequest& request = plan.request;
    const auto slowness = [&](int rank) {
      return request.speeds.empty() ? 1.0 : 1 / request.speeds[static_cast<size_t>(rank)];
    };
    rounds.resize(static_cast<size_t>(rows.count_rounds()));
    const bool alike =
        rows.alike() && request.shares.empty() && request.speeds.empty();  // no rank has more rows than the first
    most_slowness = 0;
    for (int first = 0; first < (alike ? 1 : plan.ranks()); first += plan.model_ranks) {
      double of_group = 0;
      for (int rank = first; rank < (alike ? 1 : first + plan.model_ranks); ++rank) {
        front.take(rows.of(rank).size(), slowness(rank));
        of_group = std::max(of_group, slowness(rank));
      }
      const std::vector<StepRows::RoundSize> sizes = rows.round_sizes(first);
      for (size_t r = 0; r < sizes.size(); ++r) rounds[r].take(sizes[r].rows, of_group);
      most_slowness = std::max(most_slowness, of_group);
    }
  }
};

// The duration of each action in seconds.
class Prices : public ActionTimes {
 public:
  Prices(const Plan& plan, const Network& network, const ComputeModel& compute)
      : plan_(plan), network_(network), model_(compute) {
    const StepRows rows = rows_of(plan, plan.request.step_rows);
    for (int slice = 0; slice < rows.slices(); ++slice) loads_.emplace_back(plan, rows.slice(slice));
    buckets_.resize(plan.transfers.size());
    price_buckets(plan.of_step.gradients, plan.buckets);
    price_buckets(plan.of_step.gradient_copies, plan.buckets);
    price_buckets(plan.of_step.weights, plan.buckets);
    price_buckets(plan.of_step.averages, plan.buckets);
    price_buckets(plan.of_step.dense_gradients, plan.back_buckets);
    for (size_t t = 0; t < buckets_.size(); ++t)
      if (buckets_[t].empty()) buckets_[t] = {seconds(plan.transfers[t], 1.0 / plan.transfers[t].calls)};
  }

  double transfer(int, const Action& action) const override {
    if (action.kind == Action::Kind::kUpdate) return matrices(action);
    if (action.kind != Action::Kind::kStart) return sums(action);
    return buckets_[static_cast<size_t>(action.transfer)][static_cast<size_t>(action.bucket)];
  }

  double compute(int, const Action& action) const override {
    if (action.moves_bytes()) return 0;
    const Load& load = load_of(action);
    if (action.kind == Action::Kind::kLoss)
      return (action.transfer != kNoTransfer) == plan_.loss_follows() ? model_.loss(load.rows) * load.slowness : 0;
    double seconds = 0;
    for (int64_t i = action.layers.begin; i < action.layers.end; ++i)
      seconds += of_layer(action, load.rows, static_cast<size_t>(i));
    return seconds * (action.is_of_weights() ? loads_.front().most_slowness : load.slowness);
  }

  // Seconds of all calls of a transfer; its buckets may travel several times. For sums the mean of their calls is used.
  double all_calls(TransferId id) const {
    const std::vector<double>& buckets = buckets_[static_cast<size_t>(id)];
    const double once = std::accumulate(buckets.begin(), buckets.end(), 0.0);
    return once * plan_.transfer(id).calls / static_cast<double>(buckets.size());
  }

 private:
  // Seconds of the sums over all rows of the step that a layer's ops wait for.
  double sums(const Action& action) const {
    const LayerPlan& at = plan_.layer(action.layers.begin);
    const Transfer& transfer = plan_.transfer(action.transfer);
    const Phase phase = action.kind == Action::Kind::kForward ? Phase::kForward : Phase::kBackward;
    double seconds = 0;
    for (const int64_t each : at.step_sums(phase, 0))
      seconds += network_.seconds(transfer.collective, static_cast<double>(each * size_of(DType::kF64)),
                                  span_of(transfer.group));
    return seconds;
  }

  // Seconds to gather the matrices that an update needs whole.
  double matrices(const Action& action) const {
    const Span span = span_of(matrix_group(plan_));
    double seconds = 0;
    for (int64_t i = action.layers.begin; i < action.layers.end; ++i)
      for (size_t p = 0; p < plan_.layer(i).params.size(); ++p)
        if (const int64_t block = matrix_block(plan_, i, p); block > 0)
          seconds += network_.seconds(Collective::kAllGather,
                                      static_cast<double>(4 * block * plan_.ranks_of(matrix_group(plan_))), span);
    return seconds;
  }

  const Load& load_of(const Action& action) const {
    const Loads& of_slice = loads_[static_cast<size_t>(action.slice)];
    return action.round == kOwnRows ? of_slice.front : of_slice.rounds[static_cast<size_t>(action.round)];
  }

  double of_layer(const Action& action, double rows, size_t i) const {
    const LayerPlan& at = plan_.layers[i];
    switch (action.kind) {
      case Action::Kind::kForward:
        return model_.forward(i, rows, at.share());
      case Action::Kind::kBackwardData:
        return model_.backward(i, rows, at.share()) * data_share(at);
      case Action::Kind::kBackwardWeights:
        return model_.backward(i, rows, at.share()) * (1 - data_share(at));
      case Action::Kind::kCopyWeights:
        return model_.update(i, at.share()) * copied(action);
      case Action::Kind::kAverageWeights:
        return model_.update(i, at.share()) * averaged();
      case Action::Kind::kNorms:
        return model_.update(i, at.share()) * squared(action);
      default:
        return model_.update(i, at.share()) * update_fraction(plan_, action.bucket);
    }
  }

  // These actions are limited by memory traffic. An update reads weights, optimizer state and gradients, and writes
  // weights and state. A copy reads and writes weights; a prediction also reads velocities. An average is read and
  // written, and weights are read.
  double of_an_update(double arrays) const { return arrays / (3 + 2 * plan_.request.optimizer_states); }
  double copied(const Action& action) const { return of_an_update(action.ahead > 0 ? 3 : 2); }
  double averaged() const { return of_an_update(3) * local_period(plan_) / period_of(plan_); }
  // Counted once for all ranks: reads gradients and, for LARS, weights. If norms travel, computing factors after that
  // costs nothing.
  double squared(const Action& action) const {
    if (action.transfer == kNoTransfer && plan_.of_step.norms != kNoTransfer) return 0;
    const double share = plan_.updates() == Updates::kShares ? 1.0 / plan_.ranks() : 1;
    return share * of_an_update(plan_.request.norm_sums);
  }

  Span span_of(Group group) const {
    return group == Group::kReplicas ? network_.across(plan_.replicas()) : network_.consecutive(plan_.ranks_of(group));
  }

  // Two adjacent stages may be on the same host.
  Span span_of_message(const Transfer& message) const {
    const int each = network_.ranks_per_host;
    return message.sender / each == message.receiver / each ? Span{2, 1, 1} : Span{1, 2, 1};
  }

  // Seconds of one call that moves this fraction of the transfer's bytes.
  double seconds(const Transfer& transfer, double share) const {
    const Span span = transfer.is_between_places() ? span_of_message(transfer) : span_of(transfer.group);
    const double bytes = static_cast<double>(transfer.whole) * share;
    const bool star = is_message(transfer.collective) && !transfer.is_between_places();
    return network_.seconds(transfer.collective, star ? bytes * messages_of_star() : bytes, span);
  }

  // The number of messages of a server that is not a worker, relative to the messages of a single central server.
  double messages_of_star() const {
    const Star star = star_of(plan_);
    return static_cast<double>(star.others) / star.centres / (plan_.ranks() - 1);
  }

  // Divides the bytes of a transfer among its buckets; all buckets may travel several times.
  void price_buckets(TransferId id, const std::vector<Bucket>& buckets) {
    if (id == kNoTransfer) return;
    const Transfer& transfer = plan_.transfer(id);
    const auto bytes = [&](const Bucket& bucket) {
      if (id == plan_.of_step.averages) return static_cast<double>(averaged_elements(plan_, bucket));
      return static_cast<double>(id == plan_.of_step.weights ? bucket.elements : wire_bytes(plan_, bucket));
    };
    double all = 0;
    for (const Bucket& bucket : buckets) all += bytes(bucket);
    const double times = static_cast<double>(transfer.calls) / static_cast<double>(buckets.size());
    for (const Bucket& bucket : buckets)
      buckets_[static_cast<size_t>(id)].push_back(seconds(transfer, bytes(bucket) / all / times));
  }

  const Plan& plan_;
  const Network& network_;
  const ComputeModel& model_;
  std::vector<Loads> loads_;  // index: micro-batch
  // Seconds of one call, by transfer and bucket; transfers without buckets have one entry.
  std::vector<std::vector<double>> buckets_;
};

// For callers that need transfers only.
class NoCompute : public ComputeModel {
 public:
  double forward(size_t, double, double) const override { return 0; }
  double backward(size_t, double, double) const override { return 0; }
  double update(size_t, double) const override { return 0; }
  double loss(double) const override { return 0; }
  double rest() const override { return 0; }
  std::string text() const override { return ""; }
};

}  // namespace

std::unique_ptr<ActionTimes> predicted_times(const Plan& plan, const Network& network, const ComputeModel& compute) {
  return std::make_unique<Prices>(plan, network, compute);
}

std::vector<double> transfer_seconds(const Plan& plan, const Network& network) {
  const NoCompute compute;
  const Prices prices(plan, network, compute);
  std::vector<double> seconds;
  for (size_t id = 0; id < plan.transfers.size(); ++id)
    seconds.push_back(prices.all_calls(static_cast<TransferId>(id)));
  return seconds;
}

std::string Prediction::name() const {
  const std::string strategy = name_of(request.strategy);
  if (model_ranks == 1 || model_ranks == request.ranks) return strategy;
  return format("{} {}x{}", strategy, model_ranks, request.ranks / model_ranks);
}

Prediction prediction_of(const Plan& plan) {
  Prediction prediction{
      .request = plan.request, .split = acting_strategy(plan).splits(), .model_ranks = plan.model_ranks};
  prediction.bytes = bytes_per_step(plan);
  prediction.busiest_link = busiest_link(plan);
  return prediction;
}

Prediction price_step(const Plan& plan, const Network& network, const ComputeModel& compute,
                      std::vector<TimedAction>* times) {
  OWT_CHECK_EQ(network.ranks(), plan.ranks());
  const Prices prices(plan, network, compute);
  WalkedStep step{.overlaps = network.overlaps, .in_turn = plan.request.on.device == Device::kCpu};
  for (int place = 0; place < plan.places(); ++place) step.ranks.push_back(place);
  Prediction prediction = prediction_of(plan);
  for (const KindOfStep& of : kinds_of_steps(plan)) {
    if (of.part == 0) continue;
    step.kind = of.kind;
    const StepWalk walked = walk(plan, step, prices);
    // A step ends when the last rank is done. Its parts are taken from the rank that works longest.
    const auto& longest = *std::max_element(walked.ranks.begin(), walked.ranks.end(),
                                            [](const auto& a, const auto& b) { return a.busy_s() < b.busy_s(); });
    prediction.compute_s += of.part * longest.computed_s;
    // Rounding may make the difference negative.
    prediction.exposed_s += of.part * std::max(0.0, walked.end_s() - longest.busy_s());
    prediction.update_s += of.part * longest.updated_s;
    prediction.transfer_s += of.part * longest.sent_s;
    if (times && of.kind != StepKind::kLocal) times->insert(times->end(), walked.times.begin(), walked.times.end());
  }
  prediction.memory_bytes = memory_need(plan).bytes(plan.request.step_rows);
  prediction.compute_s += compute.rest();
  return prediction;
}

}  // namespace owt
