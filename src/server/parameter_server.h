// Every rank is a worker and a server of its shard of the weights (a range of every bucket), or the last ranks are
// servers and the others workers (Plan::updaters). A worker pushes the gradients of a bucket to all servers,
// including its own. Each server answers with its weights when the consistency rules let the worker start its next task
// (weight_range.h). There is no coordinator: every range follows the pushes that arrive at it. All ranges get the same
// pushes, but not in the same order.
//
//   worker    `start_push()` -> push of bucket 0, 1, ... -> the weights of bucket 0, 1, ...     once a step
//   server    a thread for each other worker receives the worker's result and pushes, in this order. It updates, and
//             sends the answers that become possible. A thread waits only for messages of its worker. Answers to a
//             worker leave in the order of the buckets: all pushes of a bucket precede pushes of later ones.
//
// With a delay ranks are at different steps. The losses of a step and the wish to stop are sent with the push. They are
// counted as many steps later as the delay allows, or after kMostApart steps if the delay has no bound. By then all
// ranks have sent them, unless there is no bound.
//
// With a delay of 0 and updates by task, sums have the same bits as under dp, except what `wire = "bf16"` rounds. A
// rank's push to its own server does not travel and is not rounded. Filters (push_filters.h) change what all servers
// get, including the rank's own.
// Sources: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"; Dean et al. 2012, "Large
// Scale Distributed Deep Networks" (Downpour: shards that update independently).
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/parallel/optimizer.h"
#include "src/parallel/sharded_update.h"
#include "src/plan/plan_updates.h"
#include "src/server/push_message.h"
#include "src/server/step_board.h"
#include "src/server/weight_range.h"
#include "src/system/joined_threads.h"

namespace owt {

// The memory of a rank's server and filters in bytes, besides the memory of its worker.
int64_t server_bytes(const Plan& plan);

// A ParameterServer as a step takes it (Step::Options::make_served): it updates with the optimizer, which must outlive
// it. seed: of its filters.
std::unique_ptr<WeightSync> make_parameter_server(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                                  Communicator& comm, Optimizer& optimizer, uint64_t seed);

// What a worker sends to every server before its gradients, as f64 values in this order: kPushHeaderBytes.
struct PushHeader {
  ResultSums sums{};  // over the worker's rows
  PushedFor pushed{};
};

class ParameterServer : public UpdateInShares {
 public:
  // Called by several threads at the same time, with different parts. scale: of the parts' gradients. The parts bring
  // values of their own.
  using Update =
      std::function<void(std::span<const ParamPart> parts, const PushedFor& pushed, double scale, int64_t updates)>;

  // Collective. The communicator must outlive it.
  ParameterServer(const Plan& plan, const LayerOf& layer_of, Communicator& comm);
  // Waits until the other ranks reach their destructors too; during an exception it ends at once.
  ~ParameterServer() override;

  // Call before the first step.
  void update_with(Update update) { update_ = std::move(update); }
  void resume_after(int64_t updates) override { updates_ = updates; }
  // Call before the first step if the plan filters pushes. This object holds the residuals of the filters, so a resumed
  // run starts without any. penalty: the penalty of each |w| of a parameter, for the KKT filter.
  void filter_with(uint64_t seed, std::function<double(const Param&)> penalty);

  // Filters draw random numbers from the step's number.
  bool start_push(const Tensor& sums, const PushedFor& pushed, int64_t step) override;
  ResultSums result(const ResultSums&) override { return take_sums(); }
  ResultSums take_sums();  // waits until all ranks have sent them

  // Pushes the gradients to the other ranks' servers.
  void start_gradients(int bucket, const Stream& stream) override;
  void wait_for_gradients(int bucket, const Stream& stream) override;  // waits until they have been sent
  void update_share(int bucket, const UpdateParts&) override { push_own(bucket); }
  void push_own(int bucket);
  // Receives the weights of all servers. The backward pass must no longer need the weights of the bucket's layers.
  void start_weights(int bucket, const Stream& stream) override;
  void wait_for_weights(int bucket, const Stream& stream) override;

  std::optional<int64_t> settle(const Stream& stream) override;
  void take_values() override;

  std::vector<int> meet() override;
  int64_t take(WeightSync& served_before, const Stream& stream) override;  // a ParameterServer

  int64_t updates() const { return updates_; }  // number of updates at the last settle()
  // WeightRange::staleness(), summed over ranges. Call between settle() and the next step.
  std::map<int64_t, int64_t> staleness() const;
  int64_t sent_by_server() const { return sent_by_server_.load(); }  // bytes

 private:
  struct Way {
    std::vector<Event> gradients, weights;  // one per message
    std::vector<Tensor> packed;             // messages of filtered gradients
    std::vector<Filtered> filtered;         // one per tensor of the bucket
  };
  struct BucketTensor {
    const Param* param;
    size_t number;  // index among all parameters of the model
  };

  int rank() const { return comm_.rank(); }
  int ranks() const { return comm_.ranks(); }
  Way& way(int bucket) { return ways_[static_cast<size_t>(bucket)]; }
  WeightRange& range(int bucket) { return *ranges_[static_cast<size_t>(bucket)]; }
  bool computes() const { return plan_.computes(rank()); }
  bool pushes_to_itself() const { return computes() && !ranges_.empty(); }  // so does every rank, or no rank
  std::vector<int> servers() const;  // all servers except this rank, in order from the next rank on
  Slice share_of(int bucket, int server) const;
  std::unique_ptr<WeightRange> range_of(int bucket);
  void list_tensors(const LayerOf& layer_of);
  bool filters(int bucket) const { return filter_ && plan_.buckets[static_cast<size_t>(bucket)].trained; }
  void filter(int bucket);
  void send_filtered(int bucket, int server);
  Tensor receive_gradient(int worker, int bucket);
  void begin();
  void send_header(const PushHeader& header);
  void spread(int bucket, Communicator& comm);
  void spread(const ParameterServer& from, const Stream& stream);
  void serve(int worker);
  bool take_word(int worker, const PushHeader& header);
  void forget(int worker);
  void say(double word, int64_t number, int rank);
  void fail_with(const std::exception_ptr& failure);
  // Runs a wait, which throws Aborted after give_up(). If a server's thread has failed, throws that failure instead.
  template <class Wait>
  void waiting(const Wait& wait) {
    try {
      wait();
    } catch (const Aborted&) {
      board_.rethrow_failure();
      throw;
    }
  }
  void give_up();
  void wait_for_all();

  const Plan& plan_;
  const ConsistencyRules rules_;
  const int exceptions_;                              // uncaught exceptions at construction
  std::unique_ptr<Communicator> pushes_, answers_;    // separate routes for the two kinds of messages
  std::vector<std::unique_ptr<Communicator>> wire_;   // index: worker; receives its gradients
  std::vector<Way> ways_;                             // index: bucket
  std::vector<std::unique_ptr<WeightRange>> ranges_;  // index: bucket; empty if this rank does not serve
  std::vector<std::vector<BucketTensor>> tensors_;    // index: bucket
  std::vector<PushMessage> messages_;                 // index: bucket
  std::optional<PushFilter> filter_;
  std::function<double(const Param&)> penalty_;
  std::vector<std::vector<Event>> answered_;  // indexes: bucket, worker
  std::vector<Event> headers_sent_;
  Update update_;
  PushedFor pushed_;  // for the gradients of the current step
  int64_t step_ = 0;
  int64_t updates_ = 0;
  std::atomic<int64_t> sent_by_server_{0};
  StepBoard board_;
  JoinedThreads threads_;
};

}  // namespace owt
