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

class Walk {
 public:
  Walk(const Plan& plan, const Network& network, const ComputeModel& compute)
      : plan_(plan), network_(network), model_(compute), clock_(network.overlaps) {
    for (const Transfer& transfer : plan.transfers) transfers_[transfer.name] = &transfer;
    const StepRows rows(plan.rounds_strategy(), plan.ranks(), plan.request.step_rows);
    front_rows_ = static_cast<double>(rows.most());
    for (const Round& round : rows.rounds(0)) rounds_.push_back(static_cast<double>(rows_of(round)));
  }

  void run() {
    const double labels = send("labels");
    for (size_t i = 0; i < boundary(); ++i) clock_.compute(model_.forward(i, front_rows_, part(i)));
    std::vector<double> gathered(rounds_.size(), 0), scattered(rounds_.size(), 0);
    gathered[0] = send_boundary(there());
    for (size_t r = 0; r < rounds_.size(); ++r) {
      if (r + 1 < rounds_.size()) {
        if (r >= 1) clock_.wait(scattered[r - 1]);  // its slot is used again
        gathered[r + 1] = send_boundary(there());
      }
      clock_.wait(labels);
      clock_.wait(gathered[r]);
      dense_forward(rounds_[r]);
      clock_.compute(model_.loss(rounds_[r]));
      if (r >= 2) clock_.wait(scattered[r - 2]);
      dense_backward(rounds_[r]);
      scattered[r] = send_boundary(back());
      if (plan_.request.dense_update == DenseUpdate::kRound) update_back();
    }
    for (const double end : scattered) clock_.wait(end);
    front_backward();
    if (plan_.request.dense_update == DenseUpdate::kStep) update_back();
    finish_gradients();
    clock_.wait(send("step result"));
    clock_.compute(model_.rest());
  }

  const Clock& clock() const { return clock_; }

 private:
  size_t boundary() const { return static_cast<size_t>(plan_.boundary); }
  const LayerPlan& layer(size_t i) const { return plan_.layers[i]; }
  std::string there() const { return plan_.boundary_name() + " input"; }
  std::string back() const { return there() + " gradient"; }

  // The share of the layer's columns that rank 0 computes.
  double part(size_t i) const {
    const LayerPlan& at = layer(i);
    if (at.layout != Layout::kFeature) return 1;
    return static_cast<double>(at.parts.front().size()) / static_cast<double>(at.out.elements());
  }

  // Seconds of a share of the transfer's bytes in one collective.
  double seconds(const Transfer& transfer, double share) const {
    const Span span = network_.consecutive(plan_.ranks());
    if (span.ranks() == 1) return 0;
    const double passes = transfer.collective == Collective::kAllReduce ? 2 : 1;
    const double sent = static_cast<double>(transfer.bytes) * share;
    return network_.seconds(transfer.collective, sent * span.ranks() / (span.ranks() - 1) / passes, span);
  }

  // One of the calls of the transfer, where the plan has one of this name; returns when it is over.
  double send(const std::string& name) {
    const auto found = transfers_.find(name);
    if (found == transfers_.end()) return 0;
    return clock_.send(seconds(*found->second, 1.0 / found->second->calls));
  }
  double send_boundary(const std::string& name) { return plan_.split() ? send(name) : 0; }
  void exchange(const std::string& name) { clock_.wait(send(name)); }

  void dense_forward(double rows) {
    for (size_t i = boundary(); i < plan_.layers.size(); ++i) {
      if (i > boundary()) exchange(layer(i).name + " input");
      clock_.compute(model_.forward(i, rows, part(i)));
    }
    exchange("logits");
  }

  void dense_backward(double rows) {
    for (size_t i = plan_.layers.size(); i-- > boundary();) {
      clock_.compute(model_.backward(i, rows, part(i)));
      if (i > boundary()) exchange(layer(i).name + " input gradient");
    }
  }

  void front_backward() {
    std::map<int64_t, const Bucket*> last_of;  // the layer that completes it
    int64_t elements = 0;
    for (const Bucket& bucket : plan_.buckets) {
      last_of[bucket.layers.back()] = &bucket;
      elements += bucket.elements;
    }
    const auto gradients = transfers_.find("gradients");
    if (!plan_.front_learns) return;
    for (size_t i = boundary(); i-- > 0;) {
      clock_.compute(model_.backward(i, front_rows_, part(i)));
      const auto bucket = last_of.find(static_cast<int64_t>(i));
      if (bucket == last_of.end() || gradients == transfers_.end()) continue;
      const double share = static_cast<double>(bucket->second->elements) / static_cast<double>(elements);
      summed_.push_back(clock_.send(seconds(*gradients->second, share)));
    }
  }

  void update_back() {
    for (size_t i = boundary(); i < plan_.layers.size(); ++i) clock_.update(model_.update(i, part(i)));
  }

  void finish_gradients() {
    for (const double end : summed_) clock_.wait(end);
    for (size_t i = 0; i < boundary(); ++i) clock_.update(model_.update(i, part(i)));
  }

  const Plan& plan_;
  const Network& network_;
  const ComputeModel& model_;
  Clock clock_;
  std::map<std::string, const Transfer*> transfers_;
  double front_rows_ = 0;
  std::vector<double> rounds_;  // rows of the dense batch
  std::vector<double> summed_;  // when each bucket is
};

}  // namespace

std::string Prediction::name() const { return name_of(request.strategy); }

Prediction predict(const Plan& plan, const Network& network, const ComputeModel& compute) {
  OWT_CHECK_EQ(network.ranks(), plan.ranks());
  Walk walk(plan, network, compute);
  walk.run();
  Prediction prediction;
  prediction.request = plan.request;
  prediction.split = plan.split();
  prediction.bytes = plan.bytes_per_step();
  prediction.memory_bytes = memory_need(plan).bytes(plan.request.step_rows);
  walk.clock().report(prediction);
  return prediction;
}

}  // namespace owt
