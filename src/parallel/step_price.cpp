#include "src/parallel/step_price.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/parallel/memory_need.h"

namespace owt {
namespace {

// Half of what a layer that is split, or a dense one, does backward is the gradient of its input; other layers are
// taken to do all at once, and frozen ones do nothing else.
double data_share(const LayerPlan& at) {
  const bool split_images = at.columns == Columns::kSplitsChannels && at.layout == Layout::kFeature;
  return at.learns() && (at.columns == Columns::kSplits || split_images) ? 0.5 : 1;
}

// What the rank that holds up the others has to compute: so many rows, at a speed that takes so many times as long.
struct Load {
  double rows = 0, slowness = 1;

  void take(int64_t others_rows, double others_slowness) {
    if (static_cast<double>(others_rows) * others_slowness <= rows * slowness) return;
    *this = {static_cast<double>(others_rows), others_slowness};
  }
};

// The slowest rank's loads in a slice of a full step. Who that is may change from the front to a round of dense
// batches.
struct Loads {
  Load front;
  std::vector<Load> rounds;
  double most_slowness = 1;  // of a rank

  Loads(const Plan& plan, const StepRows& rows) {
    const PlanRequest& request = plan.request;
    const auto slowness = [&](int rank) {
      return request.speeds.empty() ? 1.0 : 1 / request.speeds[static_cast<size_t>(rank)];
    };
    rounds.resize(rows.round_sizes(0).size());
    const bool alike =
        rows.alike() && request.shares.empty() && request.speeds.empty();  // no rank has more than the first
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

// Seconds that actions take by themselves.
class Prices {
 public:
  Prices(const Plan& plan, const Network& network, const ComputeModel& compute)
      : plan_(plan), network_(network), model_(compute) {
    const StepRows rows = plan.rows(plan.request.step_rows);
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

  // Whether the rank at this place of its model group gets what another one sends.
  bool receives(const Action& action, int place) const { return plan_.transfer(action.transfer).receiver == place; }
  const Transfer& of(const Action& action) const { return plan_.transfer(action.transfer); }

  double transfer(const Action& action) const {
    return buckets_[static_cast<size_t>(action.transfer)][static_cast<size_t>(action.bucket)];
  }

  // What the layer's ops wait for while they run: the waits for their sums over all rows of the step.
  struct Sums {
    Action wait;
    double seconds = 0;
  };
  Sums sums(const Action& action) const {
    const bool forward = action.kind == Action::Kind::kForward;
    Sums all{{.kind = Action::Kind::kWait, .slice = action.slice, .round = action.round}};
    if (!forward && action.kind != Action::Kind::kBackwardData) return all;
    const LayerPlan& at = plan_.layer(action.layers.begin);
    if ((all.wait.transfer = at.transfers.sums) == kNoTransfer) return all;
    const Transfer& transfer = plan_.transfer(at.transfers.sums);
    for (const int64_t each : at.step_sums(forward ? Phase::kForward : Phase::kBackward, 0))
      all.seconds += network_.seconds(transfer.collective, static_cast<double>(each * size_of(DType::kF64)),
                                      span_of(transfer.group));
    return all;
  }

  double compute(const Action& action) const {
    const Load& load = load_of(action);
    if (action.kind == Action::Kind::kLoss)
      return action.transfer == kNoTransfer ? model_.loss(load.rows) * load.slowness : 0;
    double seconds = 0;
    for (int64_t i = action.layers.begin; i < action.layers.end; ++i)
      seconds += of_layer(action, load.rows, static_cast<size_t>(i));
    const bool of_weights = action.kind == Action::Kind::kUpdate || action.kind == Action::Kind::kCopyWeights ||
                            action.kind == Action::Kind::kAverageWeights || action.kind == Action::Kind::kNorms;
    return seconds * (of_weights ? loads_.front().most_slowness : load.slowness);
  }

 private:
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
        return model_.update(i, at.share()) * updated(action);
    }
  }

  // Memory bounds them. An update reads weights, states and gradients and writes the first two, a copy reads and writes
  // weights, and a prediction reads velocities besides; averages are read and written, and weights read.
  double of_an_update(double arrays) const { return arrays / (3 + 2 * plan_.request.optimizer_states); }
  double copied(const Action& action) const { return of_an_update(action.ahead > 0 ? 3 : 2); }
  double averaged() const { return of_an_update(3) * plan_.local_period() / plan_.period(); }
  // Once for all ranks, of gradients and perhaps of weights, which are arrays of an update. Where norms travel, they
  // are settled behind it, which is nothing.
  double squared(const Action& action) const {
    if (action.transfer == kNoTransfer && plan_.of_step.norms != kNoTransfer) return 0;
    const double share = plan_.updates() == Updates::kShares ? 1.0 / plan_.ranks() : 1;
    return share * of_an_update(plan_.request.norm_sums);
  }

  // Running averages may have a bucket of their own; the layer's update is counted for the other one.
  double updated(const Action& action) const {
    if (!plan_.shares_update()) return 1;
    const double share = plan_.updates() == Updates::kShares ? 1.0 / plan_.ranks() : 1;
    return plan_.buckets[static_cast<size_t>(action.bucket)].trained ? share : 0;
  }

  Span span_of(Group group) const {
    return group == Group::kReplicas ? network_.across(plan_.replicas()) : network_.consecutive(plan_.ranks_of(group));
  }

  // A stage and the next one may be on the same host.
  Span span_of_message(const Transfer& message) const {
    const int each = network_.ranks_per_host;
    return message.sender / each == message.receiver / each ? Span{2, 1, 1} : Span{1, 2, 1};
  }

  // A call that moves this share of the transfer's bytes.
  double seconds(const Transfer& transfer, double share) const {
    const Span span = transfer.is_between_places() ? span_of_message(transfer) : span_of(transfer.group);
    return network_.seconds(transfer.collective, static_cast<double>(transfer.whole) * share, span);
  }

  // A bucket's share of its transfer is that of its bytes; all buckets may travel several times.
  void price_buckets(TransferId id, const std::vector<Bucket>& buckets) {
    if (id == kNoTransfer) return;
    const Transfer& transfer = plan_.transfer(id);
    const auto bytes = [&](const Bucket& bucket) {
      if (id == plan_.of_step.averages) return static_cast<double>(plan_.averaged_elements(bucket));
      return static_cast<double>(id == plan_.of_step.weights ? bucket.elements : plan_.wire_bytes(bucket));
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
  std::vector<Loads> loads_;                  // of slices
  std::vector<std::vector<double>> buckets_;  // seconds of one call, by transfer; of those without buckets a single one
};

// When what a message brings is there, by transfer, round and bucket.
using Key = std::tuple<TransferId, int, int>;
using Arrivals = std::map<Key, double>;

Key key(const Action& action) { return {action.transfer, action.round, action.bucket}; }

// The time of the rank at a place of its model group, and its queue of collectives. A message takes one way of the
// link, a collective both.
class Clock {
 public:
  // messages: what the ranks of the group send each other.
  Clock(const Plan& plan, int place, bool overlaps, Arrivals& messages, std::vector<TimedAction>* times)
      : place_(place),
        in_turn_(plan.request.on.device == Device::kCpu),
        overlaps_(overlaps),
        messages_(messages),
        times_(times) {}

  // False: nobody has sent yet what it waits for.
  bool run(const Action& action, const Prices& prices) {
    switch (action.kind) {
      case Action::Kind::kStart:
        if (!prices.receives(action, place_)) send(action, prices.of(action), prices.transfer(action));
        return true;
      case Action::Kind::kWait:
        if (prices.receives(action, place_) && !messages_.contains(key(action))) return false;
        wait(action, arrival(action));
        return true;
      case Action::Kind::kUpdate:
      case Action::Kind::kCopyWeights:
      case Action::Kind::kAverageWeights:
      case Action::Kind::kNorms:
        spend(action, prices.compute(action), updated_);
        return true;
      case Action::Kind::kTakeWeights:
        return true;
      default:
        spend(action, prices.compute(action), computed_);
        add_up(prices.sums(action));
        return true;
    }
  }

  double now() const { return now_; }
  double busy() const { return computed_ + updated_; }

  // Adds its part to a mean over several steps. step_s: when the last rank is done.
  void report(double part, double step_s, Prediction& to) const {
    to.compute_s += part * computed_;
    to.exposed_s += part * (exposed_ + step_s - now_);
    to.update_s += part * updated_;
    to.transfer_s += part * sent_;
  }

 private:
  // What started once for all rounds is waited for in each.
  double arrival(const Action& action) const {
    if (const auto sent = messages_.find(key(action)); sent != messages_.end()) return sent->second;
    const auto found = arrivals_.find(key(action));
    return found != arrivals_.end() ? found->second : arrivals_.at(Key{action.transfer, kOwnRows, action.bucket});
  }
  // What a GPU does beside holds up nothing behind it, but takes its time from it.
  bool apart(const Action& action) const { return action.beside && !in_turn_; }

  void spend(const Action& action, double seconds, double& sum) {
    note(action, now_, now_ + seconds);
    now_ += seconds;
    sum += seconds;
    beside_ = std::max(now_, beside_ + seconds);
  }

  void send(const Action& action, const Transfer& transfer, double seconds) {
    double begin = apart(action) ? beside_ : now_;
    if (transfer.collective != Collective::kSend) begin = std::max(begin, in_);
    if (transfer.collective != Collective::kReceive) begin = std::max(begin, out_);
    const double end = (transfer.is_between_places() ? messages_ : arrivals_)[key(action)] = begin + seconds;
    if (transfer.collective != Collective::kSend) in_ = end;
    if (transfer.collective != Collective::kReceive) out_ = end;
    sent_ += seconds;
    note(action, begin, end);
    if (!overlaps_) wait(action, end);
  }

  // A collective that is waited for at once.
  void add_up(const Prices::Sums& sums) {
    if (sums.seconds == 0) return;
    in_ = out_ = std::max({now_, in_, out_}) + sums.seconds;
    sent_ += sums.seconds;
    wait(sums.wait, in_);
  }

  void wait(const Action& action, double end) {
    if (apart(action)) return void(beside_ = std::max(beside_, end));
    if (end > now_ && action.kind == Action::Kind::kWait) note(action, now_, end);
    exposed_ += std::max(0.0, end - now_);
    now_ = std::max(now_, end);
  }

  void note(const Action& action, double begin, double end) {
    if (times_ && end > begin) times_->push_back({action, begin, end, place_});
  }

  int place_;
  bool in_turn_, overlaps_;
  Arrivals& messages_;
  std::vector<TimedAction>* times_;
  Arrivals arrivals_;
  double now_ = 0, beside_ = 0;  // where the rank is, what it does beside
  double in_ = 0, out_ = 0;      // its collectives, by the ways of its link
  double computed_ = 0, updated_ = 0, exposed_ = 0, sent_ = 0;
};

// Runs the lists of all places of a model group, each as far as it comes before it waits for another one.
std::vector<Clock> run_all(const Plan& plan, StepKind kind, const Prices& prices, bool overlaps, Arrivals& messages,
                           std::vector<TimedAction>* times) {
  std::vector<Clock> clocks;
  std::vector<std::vector<Action>> lists;
  for (int place = 0; place < plan.places(); ++place) {
    clocks.emplace_back(plan, place, overlaps, messages, times);
    lists.push_back(training(plan, plan.request.step_rows, kind, place));
  }
  std::vector<size_t> next(clocks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t p = 0; p < clocks.size(); ++p)
      for (; next[p] < lists[p].size() && clocks[p].run(lists[p][next[p]], prices); ++next[p]) moved = true;
  }
  for (size_t p = 0; p < clocks.size(); ++p)
    OWT_CHECK(next[p] == lists[p].size(), "the stage at place ", p, " waits for what nobody sends");
  return clocks;
}

}  // namespace

std::string Prediction::name() const {
  const std::string strategy = name_of(request.strategy);
  if (model_ranks == 1 || model_ranks == request.ranks) return strategy;
  return format("{} {}x{}", strategy, model_ranks, request.ranks / model_ranks);
}

Prediction price_step(const Plan& plan, const Network& network, const ComputeModel& compute,
                      std::vector<TimedAction>* times) {
  OWT_CHECK_EQ(network.ranks(), plan.ranks());
  const Prices prices(plan, network, compute);
  Prediction prediction;
  for (const KindOfStep& of : kinds_of_steps(plan)) {
    if (of.part == 0) continue;
    Arrivals messages;
    const std::vector<Clock> clocks =
        run_all(plan, of.kind, prices, network.overlaps, messages, of.kind == StepKind::kLocal ? nullptr : times);
    // All are done when the last one is, and the one that works longest stands for them.
    const auto by = [](auto figure) {
      return [figure](const Clock& a, const Clock& b) { return (a.*figure)() < (b.*figure)(); };
    };
    const double end = std::max_element(clocks.begin(), clocks.end(), by(&Clock::now))->now();
    std::max_element(clocks.begin(), clocks.end(), by(&Clock::busy))->report(of.part, end, prediction);
  }
  prediction.request = plan.request;
  prediction.split = plan.split();
  prediction.model_ranks = plan.model_ranks;
  prediction.bytes = plan.bytes_per_step();
  prediction.busiest_link = plan.busiest_link();
  prediction.memory_bytes = memory_need(plan).bytes(plan.request.step_rows);
  prediction.compute_s += compute.rest();
  return prediction;
}

}  // namespace owt
