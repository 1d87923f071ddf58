// Collectives of one group of ranks, and messages between two of them.
//
// Every rank calls the same collectives in the same order with the same sizes and element types; the tensors are on the
// CPU, or all on the GPUs of their ranks. A collective starts after its `ready` event and ends with the event it
// returns; until then neither tensor may be touched. Elements are f32, f64 or bf16 wherever there is a sum; anything
// else otherwise. Of a sum every rank gets the same bits, in every run. Among threads and over MPI it is taken in rank
// order, and bf16 are added as f32 and rounded once; except reduce over MPI, which adds in the order root+1, root+2,
// ..., root, around the end, and rounds bf16 after each addition. NCCL adds in an order of its own and rounds bf16
// after each addition.
//
// Messages (send, receive) go along routes, from one rank to another, which connect() opens. What a caller may rely on:
//   - Along one route they are received in the order in which they were sent, as they were sent; only f32 are rounded
//     to bf16 where they go over a half wire (half_wire.h).
//   - Their order is free otherwise. Neither call waits for the other rank, so that ranks may send to each other and
//     receive from each other in any order, and beside collectives. Only who waits for the event waits: a host, or a
//     stream, whose host may wait in its place until the other rank has called.
//   - Their bytes are counted once, by the rank that sends (bytes_sent).
// What a caller must keep to:
//   - A message is received into a tensor of its size and element type. Another size is an Error on the rank that
//     receives, but for NCCL, which ends such a message in no defined way.
//   - Every message is received, and waited for on both ranks: a half wire widens what has come when somebody waits.
//   - `ready` does not depend on what this rank calls later, because the host may wait for it in the call.
//   - On GPUs nothing is made or freed while messages are under way: no memory, stream or graph, no route or group, and
//     no half wire's memory for a collective of a size that it has not seen. To make or free may wait for all work of
//     the GPU, and so for a message whose other rank waits for this one's host.
//
// Calls are the rank's own thread's, but for messages through for_threads().
//
// When a rank fails, its partners' calls (or their events) throw Aborted instead of hanging.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/core/check.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, kSend, kReceive };
const char* name_of(Collective collective);  // "all_reduce", ...

inline bool is_message(Collective call) { return call == Collective::kSend || call == Collective::kReceive; }

// What one rank of `ranks` sends in a ring, or the mean over the ranks where they differ (broadcast, reduce), rounded
// down; of a message the sender sends all. `bytes` is the whole tensor: of all_gather and all_to_all,
// the `all` of ranks x mine.
// A collective of S bytes: 2 (K-1)/K S for all_reduce (doc/PERFORMANCE.md of nccl-tests), (K-1)/K S for the rest.
int64_t bytes_sent(Collective collective, int64_t bytes, int ranks);

// What one rank asks for: its part in a collective, or its end of a message.
struct Call {
  Collective collective{};
  Tensor in{};    // what this rank brings; undefined where it brings nothing
  Tensor out{};   // where its result goes; undefined where it gets nothing
  int root = 0;   // the root of broadcast and reduce; the rank at the other end of a message
  Event after{};  // when the tensors are ready

  // The tensor that bytes_sent() counts; the other ranks' have the same size.
  const Tensor& whole() const { return in.defined() && collective != Collective::kAllGather ? in : out; }
};

// What the receiver of a message says of another size than its tensor's.
std::string wrong_size(int from, const std::string& sent_bytes, int64_t wanted_bytes);

// Where messages go, and what a communicator may need to have ready for them.
struct Route {
  int from = 0, to = 0;
  int64_t bytes = 0;  // the size of the largest message
  int under_way = 2;  // messages at a time; with more of them a sender may have to wait for the receiver
  bool operator==(const Route&) const = default;
};

// Another rank failed; the cause is reported there.
class Aborted : public Error {
 public:
  using Error::Error;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Its collectives on a GPU may be recorded into a graph.
  virtual bool records() const { return ranks() == 1; }
  // They could be, as far as its library says; for whoever wants to try it on GPUs.
  virtual bool could_record() const { return records(); }
  // `end`: where work ends that holds recorded collectives. The event that is returned is `end`, and throws what broke
  // them; a recorded collective's own events say no more than that the GPU has come to them.
  virtual Event watched(const Event& end) { return end; }
  // The host waits for the hosts of those ranks that share this process. For this folder: see on_all_hosts (on_host.h).
  virtual void host_barrier() {}
  // The same ranks, for f32 that must arrive as they are: this one, unless it rounds them on the way (half_wire.h).
  virtual Communicator& unrounded() { return *this; }
  // The same ranks for messages of other host threads of this rank: what this was made around, without what counts,
  // times and rounds. Along one route one thread sends, or receives, at a time.
  virtual Communicator& for_threads() { return *this; }
  // Counts what they have sent.
  virtual void count_sent(int64_t) {}
  // This rank gives up: messages that it waits for throw Aborted from now on, and so may the other ranks'. For threads
  // that have to end before the others know of the exception that ends the rank.
  virtual void give_up() {}
  // Collective: the ranks that give the same color make a group, in the order of their ranks; color >= 0. This one must
  // outlive it. Of all groups made from one communicator the collectives are called in the same order on every rank.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  // sum = the sum over ranks, on all of them.
  Event all_reduce(Tensor& sum, const Event& ready);
  // all = the ranks' `mine` one after the other; all has ranks() times as many elements. `mine` may be its part rank().
  Event all_gather(const Tensor& mine, Tensor& all, const Event& ready);
  // mine = part rank() of the sum of `all` over ranks; all has ranks() times as many elements. `mine` may be that part
  // of `all`, whose other parts then stay what they are.
  Event reduce_scatter(const Tensor& all, Tensor& mine, const Event& ready);
  // out = the root's from_root, which may be out itself; it is read on the root only, elsewhere it may be undefined.
  Event broadcast(const Tensor& from_root, Tensor& out, int root, const Event& ready);
  // sum_on_root = the sum of `mine` over ranks; written on the root only, elsewhere it may be undefined.
  Event reduce(const Tensor& mine, Tensor& sum_on_root, int root, const Event& ready);
  // theirs = part rank() of every rank's `mine`, one after the other; both have the same size.
  Event all_to_all(const Tensor& mine, Tensor& theirs, const Event& ready);

  // Collective: opens routes, the same on every rank, besides those that are open. One that is open already serves both
  // from now on, the larger messages and the more of them. Routes of a group are not those of the whole.
  void connect(const std::vector<Route>& routes);
  // Sends `tensor` to rank `to`, along an open route.
  Event send(const Tensor& tensor, int to, const Event& ready);
  // tensor = what rank `from` has sent.
  Event receive(Tensor& tensor, int from, const Event& ready);

  // All calls above, with tensors that fit each other: what a way of communicating implements, and a wrapper wraps.
  virtual Event run(const Call& call) = 0;

 private:
  virtual void open(const std::vector<Route>&) {}
  Event checked(const Call& call);
  void check_route(int from, int to, const Tensor& tensor) const;

  std::map<std::pair<int, int>, Route> routes_;  // by sender and receiver
};

}  // namespace owt
