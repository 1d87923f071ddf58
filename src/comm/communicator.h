// Collectives of a group of ranks, and messages between two of them.
//
// Every rank calls the same collectives in the same order with the same sizes and element types. The tensors are on the
// CPU, or all on the GPUs of their ranks. A collective starts after its `ready` event and ends with the event it
// returns; until then neither tensor may be touched. Sums need f32, f64 or bf16 elements; other collectives take any
// type.
//
// All ranks get the same bits of a sum, in every run. Order of summation:
//   - threads and MPI: rank order; bf16 are added as f32 and rounded once.
//   - reduce over MPI: root+1, root+2, ..., root, in a ring; bf16 are rounded after each addition.
//   - NCCL: its own order; bf16 are rounded after each addition.
//
// Messages (send, receive) travel along routes from one rank to another, which connect() opens. Guarantees:
//   - Messages of one route arrive in the order in which they were sent, with the same bits. Only f32 values are
//     rounded to bf16 if bf16 transport is in use (bf16_transport.h).
//   - There is no other order. Neither call waits for the other rank, so ranks may send and receive in any order, also
//     during collectives. Only the host or stream that waits for the event waits; a stream's host may wait in its place
//     until the other rank has called.
//   - The bytes are counted once, by the sender (bytes_sent).
// Requirements:
//   - A message is received into a tensor of its size and element type. Another size is an Error on the receiver; with
//     NCCL the result is undefined.
//   - Every message is received, and both ranks wait for it: with bf16 transport, received data is converted to f32
//     when the event is waited for.
//   - `ready` does not depend on what this rank calls later, because the host may wait for it in the call.
//   - On GPUs nothing is allocated or freed while messages are in transit: no memory, stream, graph, route or group.
//     The first collective of each size with bf16 transport allocates, too. Allocating and freeing may wait for all
//     work of the GPU, and with it for a message whose other rank waits for this rank's host.
//
// Only the rank's own thread may call; other threads use for_threads() for messages.
//
// If a rank fails, its partners' calls (or their events) throw Aborted instead of hanging.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/core/stream.h"
#include "src/core/tensor.h"
#include "src/system/check.h"

namespace owt {

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, kSend, kReceive };
const char* name_of(Collective collective);  // "all_reduce", ...

inline bool is_message(Collective call) { return call == Collective::kSend || call == Collective::kReceive; }

// Bytes that one rank of `ranks` sends in a ring, rounded down. If ranks differ (broadcast, reduce), it is their mean;
// for a message the sender sends all. `bytes` is the size of the whole tensor: for all_gather and all_to_all, `ranks`
// times the size of `mine`. A collective of S bytes sends 2 (K-1)/K S for all_reduce (doc/PERFORMANCE.md of
// nccl-tests), (K-1)/K S for the others.
int64_t bytes_sent(Collective collective, int64_t bytes, int ranks);

// A call of one rank: its part in a collective, or its end of a message.
struct Call {
  Collective collective{};
  Tensor in{};    // this rank's input; undefined if it has none
  Tensor out{};   // this rank's output; undefined if it has none
  int root = 0;   // the root of broadcast and reduce; the rank at the other end of a message
  Event after{};  // when the tensors are ready

  // The tensor that bytes_sent() counts; it has the same size on all ranks.
  const Tensor& whole() const { return in.defined() && collective != Collective::kAllGather ? in : out; }
};

// The receiver's error text for a message whose size differs from its tensor's.
std::string wrong_size(int from, const std::string& sent_bytes, int64_t wanted_bytes);

// A route for messages, and what a communicator may need to prepare for it.
struct Route {
  int from = 0, to = 0;
  int64_t bytes = 0;  // the size of the largest message
  int under_way = 2;  // messages in transit at a time; with more, a sender may have to wait for the receiver
  bool operator==(const Route&) const = default;
};

// Another rank failed; that rank reports the cause.
class Aborted : public Error {
 public:
  using Error::Error;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Whether its collectives on a GPU may be recorded into a graph.
  virtual bool records() const { return ranks() == 1; }
  // Whether its library supports such recording. For experiments on GPUs.
  virtual bool could_record() const { return records(); }
  // `end`: the event at the end of work that holds recorded collectives. Returns `end` as an event that throws if such
  // a collective failed. A recorded collective's own events only say that the GPU has reached them.
  virtual Event watched(const Event& end) { return end; }
  // The host waits for the hosts of the ranks in this process. For this folder: see on_all_hosts (on_host.h).
  virtual void host_barrier() {}
  // A communicator of the same ranks that does not round f32: this one, or the inner one of bf16 transport
  // (bf16_transport.h).
  virtual Communicator& unrounded() { return *this; }
  // The same ranks for messages of other host threads of this rank: the innermost communicator, which does not count,
  // time or round. Only one thread at a time may send, or receive, along one route.
  virtual Communicator& for_threads() { return *this; }
  // Counts bytes that were sent through for_threads().
  virtual void count_sent(int64_t) {}
  // This rank gives up: messages it waits for throw Aborted, and other ranks' messages may. For threads that must end
  // before the others know of the exception that ends the rank.
  virtual void give_up() {}
  // Collective: ranks with the same color form a group, in the order of their ranks; color >= 0. This communicator must
  // outlive the group. All ranks must call the collectives of all groups of one communicator in the same order.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  // sum = the sum over ranks, on all ranks.
  Event all_reduce(Tensor& sum, const Event& ready);
  // all = the ranks' `mine` in rank order; all has ranks() times as many elements. `mine` may be part rank() of `all`.
  Event all_gather(const Tensor& mine, Tensor& all, const Event& ready);
  // mine = part rank() of the sum of `all` over ranks; all has ranks() times as many elements. `mine` may be that part
  // of `all`; the other parts of `all` are then unchanged.
  Event reduce_scatter(const Tensor& all, Tensor& mine, const Event& ready);
  // out = the root's from_root. from_root is read on the root only and may be undefined on other ranks; it may be
  // `out`.
  Event broadcast(const Tensor& from_root, Tensor& out, int root, const Event& ready);
  // sum_on_root = the sum of `mine` over ranks. It is written on the root only and may be undefined on other ranks.
  Event reduce(const Tensor& mine, Tensor& sum_on_root, int root, const Event& ready);
  // theirs = part rank() of every rank's `mine`, in rank order; both have the same size.
  Event all_to_all(const Tensor& mine, Tensor& theirs, const Event& ready);

  // Collective: opens additional routes, the same on every rank. A route that is already open then serves both
  // requests: the larger size and the larger number of messages. A group's routes are separate from those opened on the
  // whole.
  void connect(const std::vector<Route>& routes);
  // Sends `tensor` to rank `to`, along an open route.
  Event send(const Tensor& tensor, int to, const Event& ready);
  // tensor = the next message of rank `from`.
  Event receive(Tensor& tensor, int from, const Event& ready);

  // All calls above, with checked tensors. Implementations of a communicator and wrappers override it.
  virtual Event run(const Call& call) = 0;

 private:
  virtual void open(const std::vector<Route>&) {}
  Event checked(const Call& call);
  void check_route(int from, int to, const Tensor& tensor) const;

  std::map<std::pair<int, int>, Route> routes_;  // by sender and receiver
};

}  // namespace owt
