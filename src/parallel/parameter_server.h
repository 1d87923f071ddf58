// Every rank is a worker and a server of its share of the weights (range by range: its share of every bucket), or the
// last ranks are servers and the others workers (Plan::has_servers_apart). A worker
// pushes the gradients of a bucket to all servers, its own included, and each answers with its weights when the rules
// say that the worker may start its next task (weight_range.h). Nobody coordinates: every range goes by the pushes that
// come to it, and all see the same ones, in orders of their own.
//
//   worker    tell() -> push of bucket 0, 1, ... -> the weights of bucket 0, 1, ...     once a step
//   server    a thread for each other worker takes what that one tells and pushes, in this order, updates, and sends
//             the answers that it makes possible. So no thread waits for anything but messages of its worker, and the
//             answers to a worker leave in the order of the buckets: of every bucket all pushes before a later one's.
//
// With a delay ranks are at different steps, and so hear late of each other's: the losses of a step, and the wish to
// stop, are told with the push and counted after as many further steps as the delay allows; after kMostApart where it
// allows any number. By then all have told it, unless there is no bound.
//
// Sums are the bits of dp with a delay of 0 and updates by task, but for what `wire = "bf16"` rounds: what a rank has
// for its own server does not travel. Filters (push_filters.h) change what all servers get, a rank's own too.
// Sources: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"; Dean et al. 2012, "Large
// Scale Distributed Deep Networks" (Downpour: shards that update each by itself).
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/core/joined_threads.h"
#include "src/parallel/push_message.h"
#include "src/parallel/sharded_update.h"
#include "src/parallel/step_board.h"
#include "src/parallel/weight_range.h"

namespace owt {

// Steps that a worker may lead the slowest by where nothing else bounds it, so that a wish to stop is heard.
constexpr int64_t kMostApart = 64;

// What a worker tells every server before its gradients: on the wire f64 in this order, the sums first.
struct ToldOfStep {
  StepBoard::Sums sums{};  // of its rows
  PushedFor pushed{};
};
constexpr int64_t kToldBytes = (kStepSums + 4) * 8;

// The memory that a rank's server, and its filters, take beside what its worker has, in bytes.
int64_t server_bytes(const Plan& plan);

class ParameterServer : public UpdateInShares {
 public:
  // Called by several threads, of unlike parts. scale: of the gradients of the parts, which have values of their own.
  using Update =
      std::function<void(std::span<const ParamPart> parts, const PushedFor& pushed, double scale, int64_t updates)>;

  // Collective. The communicator must outlive it.
  ParameterServer(const Plan& plan, const LayerOf& layer_of, Communicator& comm);
  // Ends when the other ranks' have come to their ends as well; behind an exception, at once.
  ~ParameterServer() override;

  // Before the first step.
  void update_with(Update update) { update_ = std::move(update); }
  void go_on_after(int64_t updates) { updates_ = updates; }
  // Before the first step, where the plan filters pushes. What filters hold back is this object's: a run that goes on
  // begins with nothing. penalty: of each |w| of a parameter, for the KKT filter.
  void filter_with(uint64_t seed, std::function<double(const Param&)> penalty);

  // In every step before its gradients. step: the run's, from which filters draw.
  void tell(const ToldOfStep& told, int64_t step);
  // The sums over all ranks of the oldest step that was not asked for, when all have told them.
  StepBoard::Sums take_sums();

  // To the other ranks' servers.
  void start_gradients(int bucket, const Stream& stream) override;
  void wait_for_gradients(int bucket, const Stream& stream) override;  // until they have left
  void push_own(int bucket);                                           // behind that
  // From all servers. The weights of the bucket's layers must not be needed any more.
  void start_weights(int bucket, const Stream& stream) override;
  void wait_for_weights(int bucket, const Stream& stream) override;

  // Collective, between steps, of which all ranks have done as many: every gradient is in the weights, and all ranks
  // have the same. Until then who writes to a rank's weights writes to what others are still answered with.
  void settle(const Stream& stream);
  // Collective, behind settle(): what the parameters hold, the same on all ranks, are the weights from here on.
  void take_values();

  // Where the loss of ranks is tolerated (comm/processes.h): the workers that all ranks go without from here on, the
  // same on all, because rank 0 says it. Collective, between steps, before settle(), and by messages alone, so that a
  // loss before it does no harm. Where there are some, neither settle() nor another step can follow: what is left is to
  // take(), on an object of those that are left, what this one has.
  std::vector<int> meet();
  // Collective over the ranks of this one: the weights that the servers of `before` have. Nothing is served yet, by as
  // many servers, which are the same processes.
  void take(ParameterServer& before, const Stream& stream);

  int64_t updates() const { return updates_; }  // that the weights had had when all settled last
  // Sums over ranges of WeightRange::staleness(). Between settle() and the next step.
  std::map<int64_t, int64_t> staleness() const;
  int64_t sent_by_server() const { return sent_by_server_.load(); }  // bytes

 private:
  struct Way {
    std::vector<Event> gradients, weights;  // of every message
    std::vector<Tensor> packed;             // what the gradients' are, where they are filtered
    std::vector<Filtered> filtered;         // the bucket's tensors
  };
  struct BucketTensor {
    const Param* param;
    size_t number;  // among all of the model
  };

  int rank() const { return comm_.rank(); }
  int ranks() const { return comm_.ranks(); }
  Way& way(int bucket) { return ways_[static_cast<size_t>(bucket)]; }
  WeightRange& range(int bucket) { return *ranges_[static_cast<size_t>(bucket)]; }
  bool computes() const { return plan_.computes(rank()); }
  bool serves() const { return plan_.updates_share(rank()); }
  std::vector<int> servers() const;  // but this rank, the next ones first
  Slice share_of(int bucket, int server) const;
  std::unique_ptr<WeightRange> range_of(int bucket);
  void list_tensors(const LayerOf& layer_of);
  bool filters(int bucket) const { return filter_ && plan_.buckets[static_cast<size_t>(bucket)].trained; }
  void filter(int bucket);
  void send_filtered(int bucket, int server);
  Tensor receive_gradient(int worker, int bucket);
  void begin();
  void send_told(const Tensor& told);
  void spread(int bucket, Communicator& comm);
  void spread(const ParameterServer& from, const Stream& stream);
  void serve(int worker);
  bool take_word(int worker, const ToldOfStep& told);
  void forget(int worker);
  void say(double word, int64_t number, int rank);
  void fail_with(const std::exception_ptr& failure);
  template <class Wait>
  void waiting(const Wait& wait);
  void give_up();
  void wait_for_all();

  const Plan& plan_;
  const ConsistencyRules rules_;
  const int exceptions_;                              // under way when it was made
  std::unique_ptr<Communicator> pushes_, answers_;    // two kinds of messages along each route
  std::vector<std::unique_ptr<Communicator>> wire_;   // by worker: what its gradients come through
  std::vector<Way> ways_;                             // by bucket
  std::vector<std::unique_ptr<WeightRange>> ranges_;  // by bucket; none where this rank does not serve
  std::vector<std::vector<BucketTensor>> tensors_;    // by bucket
  std::vector<PushMessage> messages_;                 // the same
  std::optional<PushFilter> filter_;
  std::function<double(const Param&)> penalty_;
  std::vector<std::vector<Event>> answered_;  // by bucket and worker
  std::vector<Event> told_events_;
  Update update_;
  PushedFor pushed_;  // by the step under way
  int64_t step_ = 0;
  int64_t updates_ = 0;
  std::atomic<int64_t> sent_by_server_{0};
  StepBoard board_;
  JoinedThreads threads_;
};

}  // namespace owt
