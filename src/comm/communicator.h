// Collectives of one group of ranks.
//
// Every rank calls the same collectives in the same order with the same sizes and element types; the tensors are on the
// CPU, or all on the GPUs of their ranks. A collective starts after its `ready` event and ends with the event it
// returns; until then neither tensor may be touched. Elements are f32, f64 or bf16 wherever there is a sum; anything
// else otherwise. Of a sum every rank gets the same bits, in every run. Among threads and over MPI it is taken in rank
// order, and bf16 are added as f32 and rounded once; except reduce over MPI, which adds in the order root+1, root+2,
// ..., root, around the end, and rounds bf16 after each addition. NCCL adds in an order of its own and rounds bf16
// after each addition.
// When a rank fails, its partners' calls (or their events) throw Aborted instead of hanging.
#pragma once

#include <cstdint>
#include <memory>

#include "src/core/check.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll };
const char* name_of(Collective collective);  // "all_reduce", ...

// What one rank of `ranks` sends in a ring, or the mean over the ranks where they differ (broadcast, reduce), rounded
// down. `bytes` is the whole tensor: of all_gather and all_to_all, the `all` of ranks x mine.
// Source: reference formulas 2 (K-1)/K S for all_reduce and (K-1)/K S for the rest.
int64_t bytes_sent(Collective collective, int64_t bytes, int ranks);

// What one rank asks for in a collective.
struct Call {
  Collective collective{};
  Tensor in{};    // what this rank brings; undefined where it brings nothing
  Tensor out{};   // where its result goes; undefined where it gets nothing
  int root = 0;   // of broadcast and reduce
  Event after{};  // when the tensors are ready

  // The tensor that bytes_sent() counts; the other ranks' have the same size.
  const Tensor& whole() const { return in.defined() && collective != Collective::kAllGather ? in : out; }
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
  // The host waits for the hosts of those ranks that share this process. To be called after making or freeing what a
  // GPU needs and before the next collective: freeing may wait for all GPUs of a process, and so for a collective that
  // another rank has queued and this one has not.
  virtual void meet() {}
  // The same ranks, for f32 that must arrive as they are: this one, unless it rounds them on the way (half_wire.h).
  virtual Communicator& unrounded() { return *this; }
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

  // All of the above, with tensors that fit each other: what a way of communicating implements, and a wrapper wraps.
  virtual Event run(const Call& call) = 0;

 private:
  Event checked(const Call& call);
};

}  // namespace owt
