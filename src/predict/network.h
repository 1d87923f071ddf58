// The duration of collectives in a network of hosts with the same number of ranks each.
//
// Times follow from formulas with the latency and bandwidth of two kinds of link, or from a table measured among all
// ranks. The formulas are for a group of g = l*m ranks, l on each of m hosts; c such groups share a host's link at the
// same time. S is the bytes of the whole tensor. `local` is the link between ranks of a host (a, b: latency, bandwidth
// of each rank), `between` the link of a host to the others (A, B: B for all its ranks together, in each direction).
//
//   kPairwise (messages between every two ranks; the MPI ranks of this program)
//     all_gather, reduce_scatter, all_to_all:  (l-1) a + (g-l) A + max((l-1) S/g / b,  l (g-l) S/g / (B/c))
//     all_reduce: twice that
//     broadcast, reduce (a chain through all ranks, in chunks of C bytes, chain.h):
//       m (l-1) (a + C/b) + (m-1) (A + C / (B/c)) + (S - C) / min(b if l > 1, B/c if m > 1)
//     send, receive: a + S/b, or A + S / (B/c)
//   kDirect (as kPairwise, but a broadcast or reduce uses messages between the root and each other rank)
//     broadcast, reduce: messages to or from each other rank; see below
//   kHierarchical (a ring or tree in each host and between hosts, pipelined; NCCL)
//     L = a (if l > 1) + 2 A log2(m)
//     all_reduce:                     L + max(2 (l-1)/l S / b,  2 (m-1)/m S / (B/c))
//     all_gather, reduce_scatter:     L + max((g-1)/g S / b,  (m-1)/m S / (B/c))
//     all_to_all:                     L + max((l-1)/g S / b,  l (g-l)/g S / (B/c))
//     broadcast, reduce:              L + max(S / b if l > 1,  S / (B/c) if m > 1)
//     send, receive:                  a + S / b, or A + S / (B/c)
//
// A star of messages (kDirect's broadcast and reduce; kSend and kReceive in a group of more than two ranks) connects
// one rank with each other rank of the group. Its links carry the messages one after the other: l-1 in its host and, at
// the same time, g-l between hosts.
//
// If a rank has one port (`one_port`: a GPU on a PCI Express switch), messages to other hosts also pass its local link.
// kPairwise and kDirect then count these bytes and messages for `local` too.
//
// On one host of single links both are alpha + bytes_sent()/beta, except for a chain's first chunk. Source: Hockney
// 1994, "The communication challenge for MPP: Intel Paragon and Meiko CS-2" (time = latency + bytes / bandwidth);
// Thakur et al. 2005, "Optimization of Collective Communication Operations in MPICH" (rings, pairwise exchange).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/comm/communicator.h"

namespace owt {

struct Link {
  double latency_s = 0;
  double bytes_per_s = 0;
};

// The participants of a collective.
struct Span {
  int local = 1;    // ranks on each participating host
  int hosts = 1;    // participating hosts
  int sharing = 1;  // groups like this one that use a host's link at the same time
  int ranks() const { return local * hosts; }
};

// Measured seconds of a collective among `ranks` ranks, by the bytes of its whole tensor. Between two sizes the time is
// interpolated on logarithms of both. Below the smallest size it is constant; above the largest it is proportional.
class TimeTable {
 public:
  void add(int64_t bytes, double seconds);  // both positive; sizes in any order
  bool empty() const { return points_.empty(); }
  double seconds(double bytes) const;
  double least_seconds() const { return points_.begin()->second; }  // time of the smallest size
  const std::map<int64_t, double>& points() const { return points_; }

 private:
  std::map<int64_t, double> points_;
};

struct Network {
  enum class Algorithm { kPairwise, kDirect, kHierarchical };

  int hosts = 1, ranks_per_host = 1;
  Link local, between;
  Algorithm algorithm = Algorithm::kPairwise;
  bool one_port = false;  // messages to other hosts also pass a rank's local link
  bool overlaps = true;   // computation continues during a collective
  // Measured times among measured_ranks ranks on measured_hosts hosts. If there are several hosts, they replace the
  // formulas for groups on several hosts, else for all groups. For groups of another size, the time of the smallest
  // message scales with the number of messages; the rest scales with the bytes that pass the slowest link.
  std::map<Collective, TimeTable> measured;
  int measured_ranks = 0, measured_hosts = 1;

  int ranks() const { return hosts * ranks_per_host; }
  // consecutive(): `count` consecutive ranks. across(): the ranks at the same place of `count` consecutive groups.
  Span consecutive(int count) const;
  Span across(int count) const;

  // The seconds of a collective; bytes: of the whole tensor, as in bytes_sent(). 0 for a group of one rank. A message
  // has a group of two ranks. With more ranks it is a star, with a tensor of this size for each other rank. If only
  // collectives were measured, a message takes as long as a broadcast to one rank. Messages were measured around a
  // ring, where messages also travel in the other direction; in a star none do. A star is therefore taken to last as
  // long as an all-gather of such tensors, in which each rank receives as many bytes as the central rank receives or
  // sends.
  double seconds(Collective collective, double bytes, const Span& span) const;

  std::string text() const;  // one line for people

 private:
  double calculated_seconds(Collective collective, double bytes, const Span& span) const;
  double star_seconds(double bytes, const Span& span) const;
};

}  // namespace owt
