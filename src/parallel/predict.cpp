#include "src/parallel/predict.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/parallel/memory_need.h"

namespace owt {
namespace {

// A rank's time and its queue of collectives.
class Clock {
 public:
  explicit Clock(bool overlaps) : overlaps_(overlaps) {}

  void compute(double seconds) {
    now_ += seconds;
    computed_ += seconds;
  }
  void update(double seconds) {
    now_ += seconds;
    updated_ += seconds;
  }
  // Returns when it is over.
  double send(double seconds) {
    queue_ = std::max(queue_, now_) + seconds;
    sent_ += seconds;
    if (!overlaps_) wait(queue_);
    return queue_;
  }
  void wait(double end) {
    exposed_ += std::max(0.0, end - now_);
    now_ = std::max(now_, end);
  }

  void report(Prediction& to) const {
    to.compute_s = computed_;
    to.exposed_s = exposed_;
    to.update_s = updated_;
    to.transfer_s = sent_;
  }

 private:
  bool overlaps_;
  double now_ = 0, queue_ = 0, computed_ = 0, updated_ = 0, exposed_ = 0, sent_ = 0;
};

// Of one call of each of a layer's transfers; negative: there is none.
struct LayerMoves {
  double input = -1, input_gradient = -1, output = -1, output_gradient = -1;
};

class Walk {
 public:
  Walk(const Plan& plan, const Network& network, const ComputeModel& compute)
      : plan_(plan), network_(network), model_(compute), clock_(network.overlaps) {
    for (const Transfer& transfer : plan.transfers) transfers_[transfer.name] = &transfer;
    for (const LayerPlan& layer : plan.layers)
      moves_.push_back({call(layer.name + " input"), call(layer.name + " input gradient"), call(layer.name + " output"),
                        call(layer.name + " output gradient")});
    const StepRows rows = plan.rows(plan.request.step_rows);
    front_rows_ = static_cast<double>(rows.most());
    for (const auto& round : rows.round_sizes(0)) rounds_.push_back(static_cast<double>(round.rows));
    statistics_ = call("loss statistics");
    logits_ = call("logits");
  }

  void run() {
    const bool every_round = plan_.request.dense_update == DenseUpdate::kRound;
    send(call("labels"));  // before the first gather, which is waited for
    for (size_t i = 0; i < boundary(); ++i) clock_.compute(model_.forward(i, front_rows_, part(i)));
    std::vector<double> gathered(rounds_.size(), 0), scattered(rounds_.size(), 0);
    gathered[0] = send(there());
    for (size_t r = 0; r < rounds_.size(); ++r) {
      if (r + 1 < rounds_.size()) {
        if (r >= 1) clock_.wait(scattered[r - 1]);  // its slot is used again
        gathered[r + 1] = send(there());
      }
      clock_.wait(gathered[r]);
      dense_forward(rounds_[r]);
      scattered[r] = dense_backward(rounds_[r], every_round || r + 1 == rounds_.size());
      if (every_round && rounds_[r] > 0) update_back();
    }
    for (const double end : scattered) clock_.wait(end);
    front_backward();
    if (!every_round) update_back();
    update_front();
    exchange(call("step result"));
    clock_.compute(model_.rest());
  }

  const Clock& clock() const { return clock_; }

 private:
  size_t boundary() const { return static_cast<size_t>(plan_.boundary); }
  const LayerPlan& layer(size_t i) const { return plan_.layers[i]; }
  double there() const { return plan_.split() ? moves_[boundary()].input : -1; }

  // The share of the layer's work that rank 0 does.
  double part(size_t i) const {
    const LayerPlan& at = layer(i);
    if (at.by_inputs()) return static_cast<double>(at.inputs.front().size()) / static_cast<double>(at.in.elements());
    if (at.layout != Layout::kFeature) return 1;
    return static_cast<double>(at.parts.front().size()) / static_cast<double>(at.out.elements());
  }

  Span span_of(Group group) const {
    return group == Group::kReplicas ? network_.across(plan_.replicas()) : network_.consecutive(plan_.ranks_of(group));
  }

  // Seconds of a collective that moves this share of the transfer's bytes.
  double seconds(const Transfer& transfer, double share) const {
    const Span span = span_of(transfer.group);
    if (span.ranks() == 1) return 0;
    const double passes = transfer.collective == Collective::kAllReduce ? 2 : 1;
    const double sent = static_cast<double>(transfer.bytes) * share;
    return network_.seconds(transfer.collective, sent * span.ranks() / (span.ranks() - 1) / passes, span);
  }

  // Of one of the transfer's calls; negative where the plan has no such transfer.
  double call(const std::string& name) const {
    const auto found = transfers_.find(name);
    return found == transfers_.end() ? -1 : seconds(*found->second, 1.0 / found->second->calls);
  }

  double send(double seconds) { return seconds < 0 ? 0 : clock_.send(seconds); }  // returns when it is over
  void exchange(double seconds) { clock_.wait(send(seconds)); }

  void dense_forward(double rows) {
    for (size_t i = boundary(); i < plan_.layers.size(); ++i) {
      if (i > boundary()) exchange(moves_[i].input);
      clock_.compute(model_.forward(i, rows, part(i)));
      exchange(moves_[i].output);
    }
    exchange(logits_);
    exchange(statistics_);
    clock_.compute(model_.loss(rows));
  }

  // Returns when the rows' gradients are home. complete: those of the weights are then.
  double dense_backward(double rows, bool complete) {
    Buckets buckets(*this, plan_.back_buckets, {"dense gradients"});
    double home = 0;
    for (size_t i = plan_.layers.size(); i-- > boundary();) {
      exchange(moves_[i].output_gradient);
      const double seconds = model_.backward(i, rows, part(i)), dx = layer(i).type == "dense" ? seconds / 2 : seconds;
      clock_.compute(dx);
      const double arrives = send(moves_[i].input_gradient);
      clock_.compute(seconds - dx);
      if (complete) buckets.layer_done(i, dense_sums_);
      if (i > boundary())
        clock_.wait(arrives);
      else
        home = arrives;
    }
    return home;
  }

  void front_backward() {
    Buckets buckets(*this, plan_.buckets, {"gradients", "gradient copies"});
    if (!plan_.front_learns) return;
    for (size_t i = boundary(); i-- > 0;) {
      clock_.compute(model_.backward(i, front_rows_, part(i)));
      buckets.layer_done(i, sums_);
    }
  }

  void update_back() {
    for (const double end : dense_sums_) clock_.wait(end);
    dense_sums_.clear();
    for (size_t i = boundary(); i < plan_.layers.size(); ++i) clock_.update(model_.update(i, part(i)));
  }

  void update_front() {
    const auto weights = transfers_.find("weights");
    if (weights != transfers_.end()) return update_shares(*weights->second);
    for (const double end : sums_) clock_.wait(end);
    for (size_t i = 0; i < boundary(); ++i) clock_.update(model_.update(i, part(i)));
  }

  // dp-zero: every rank updates its share of a bucket as soon as that is summed, and sends the others what came out.
  void update_shares(const Transfer& weights) {
    int64_t elements = 0;
    for (const Bucket& bucket : plan_.buckets) elements += bucket.elements;
    std::vector<double> arrived;
    for (size_t b = 0; b < plan_.buckets.size(); ++b) {
      const Bucket& bucket = plan_.buckets[b];
      clock_.wait(sums_.at(b));
      for (const int64_t layer : bucket.layers)  // once, though running averages may have a bucket of their own
        if (bucket.trained) clock_.update(model_.update(static_cast<size_t>(layer), 1.0 / plan_.ranks()));
      const double share = static_cast<double>(bucket.elements) / static_cast<double>(elements);
      arrived.push_back(clock_.send(seconds(weights, share)));
    }
    for (const double end : arrived) clock_.wait(end);
  }

  // Sends each bucket when its last layer is done; its share of the transfer is that of its bytes.
  class Buckets {
   public:
    Buckets(Walk& walk, const std::vector<Bucket>& buckets, std::initializer_list<const char*> transfers)
        : walk_(walk), buckets_(buckets) {
      for (const char* transfer : transfers) add(transfer);
    }
    void layer_done(size_t layer, std::vector<double>& sums) {
      for (size_t b = 0; b < seconds_.size(); ++b)
        if (buckets_[b].layers.back() == static_cast<int64_t>(layer)) sums.push_back(walk_.clock_.send(seconds_[b]));
    }

   private:
    // The seconds of one after the other, where a bucket has several.
    void add(const char* transfer) {
      const auto found = walk_.transfers_.find(transfer);
      if (found == walk_.transfers_.end()) return;
      const auto bytes = [&](const Bucket& bucket) { return static_cast<double>(walk_.plan_.wire_bytes(bucket)); };
      double all = 0;
      for (const Bucket& bucket : buckets_) all += bytes(bucket);
      const double times = static_cast<double>(found->second->calls) / static_cast<double>(buckets_.size());
      seconds_.resize(buckets_.size());
      for (size_t b = 0; b < buckets_.size(); ++b)
        seconds_[b] += walk_.seconds(*found->second, bytes(buckets_[b]) / all / times);
    }

    Walk& walk_;
    const std::vector<Bucket>& buckets_;
    std::vector<double> seconds_;  // by bucket; none where they do not travel
  };

  const Plan& plan_;
  const Network& network_;
  const ComputeModel& model_;
  Clock clock_;
  std::map<std::string, const Transfer*> transfers_;
  std::vector<LayerMoves> moves_;
  double statistics_ = -1, logits_ = -1;
  double front_rows_ = 0;
  std::vector<double> rounds_;             // rows of the dense batch
  std::vector<double> sums_, dense_sums_;  // when each bucket of gradients is summed
};

}  // namespace

std::string Prediction::name() const {
  const std::string strategy = name_of(request.strategy);
  if (model_ranks == 1 || model_ranks == request.ranks) return strategy;
  return format("{} {}x{}", strategy, model_ranks, request.ranks / model_ranks);
}

Prediction predict(const Plan& plan, const Network& network, const ComputeModel& compute) {
  OWT_CHECK_EQ(network.ranks(), plan.ranks());
  Walk walk(plan, network, compute);
  walk.run();
  Prediction prediction;
  prediction.request = plan.request;
  prediction.split = plan.split();
  prediction.model_ranks = plan.model_ranks;
  prediction.bytes = plan.bytes_per_step();
  prediction.memory_bytes = memory_need(plan).bytes(plan.request.step_rows);
  walk.clock().report(prediction);
  return prediction;
}

}  // namespace owt
