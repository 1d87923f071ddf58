// How long collectives take: a network of hosts that hold ranks, the same number each.
//
// Times come from formulas over the latency and bandwidth of two kinds of link, or from a table measured among all
// ranks. The formulas, for a group of g = l*m ranks, l on each of m hosts, c such groups sharing a host's link at the
// same time; S bytes in the whole tensor; `local` is the link between ranks of a host (a, b: latency, bandwidth of each
// rank), `between` the link of a host to the others (A, B: B for all its ranks together, each way):
//
//   kPairwise (messages between every two ranks; what MPI ranks of this program do)
//     all_gather, reduce_scatter, all_to_all:  (l-1) a + (g-l) A + max((l-1) S/g / b,  l (g-l) S/g / (B/c))
//     all_reduce: twice that
//     broadcast, reduce (a chain through all ranks, in chunks of C bytes, chain.h):
//       m (l-1) (a + C/b) + (m-1) (A + C / (B/c)) + (S - C) / min(b if l > 1, B/c if m > 1)
//     send, receive: a + S/b, or A + S / (B/c)
//   kDirect (as kPairwise, but what one rank has for all, or gets from all, goes from it to each of the others)
//     broadcast, reduce: a star of messages; see below
//   kHierarchical (a ring or tree in each host and between hosts, pipelined; NCCL)
//     L = a (where l > 1) + 2 A log2(m)
//     all_reduce:                     L + max(2 (l-1)/l S / b,  2 (m-1)/m S / (B/c))
//     all_gather, reduce_scatter:     L + max((g-1)/g S / b,  (m-1)/m S / (B/c))
//     all_to_all:                     L + max((l-1)/g S / b,  l (g-l)/g S / (B/c))
//     broadcast, reduce:              L + max(S / b if l > 1,  S / (B/c) if m > 1)
//     send, receive:                  a + S / b, or A + S / (B/c)
//
// A star of messages, between one rank of a group and each of the others, takes that rank's links for one message after
// the other: l-1 of them in its host, and beside these g-l between hosts.
//
// Where a rank has one port (`one_port`: a GPU behind a switch of PCI Express) what it sends to other hosts leaves
// through its local link as well: kPairwise and kDirect count those bytes, and messages, for `local` too.
//
// On one host of single links both are alpha + bytes_sent()/beta, but for a chain's first chunk. Source: Hockney 1994,
// "The communication challenge for MPP: Intel Paragon and Meiko CS-2" (time = latency + bytes / bandwidth); Thakur et
// al. 2005, "Optimization of Collective Communication Operations in MPICH" (rings, pairwise exchange).
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

// Who takes part in a collective.
struct Span {
  int local = 1;    // ranks on each host that has some
  int hosts = 1;    // such hosts
  int sharing = 1;  // groups like this one that use a host's link at the same time
  int ranks() const { return local * hosts; }
};

// Seconds of a collective by the bytes of its whole tensor, as measured among `ranks` ranks. Between two sizes the time
// is interpolated on logarithms of both; below the smallest it stays, above the largest it grows in proportion.
class TimeTable {
 public:
  void add(int64_t bytes, double seconds);  // both positive; sizes in any order
  bool empty() const { return points_.empty(); }
  double seconds(double bytes) const;
  double least_seconds() const { return points_.begin()->second; }  // of the smallest size
  const std::map<int64_t, double>& points() const { return points_; }

 private:
  std::map<int64_t, double> points_;
};

struct Network {
  enum class Algorithm { kPairwise, kDirect, kHierarchical };

  int hosts = 1, ranks_per_host = 1;
  Link local, between;
  Algorithm algorithm = Algorithm::kPairwise;
  bool one_port = false;  // what goes to other hosts leaves through a rank's local link as well
  bool overlaps = true;   // computation goes on while a collective is under way
  // Among measured_ranks ranks on measured_hosts hosts. They take the place of the formulas for groups on several hosts
  // where there are several, else for all groups. For groups of another size the time of the smallest message grows
  // with the number of messages, and the rest with the bytes that pass the slowest link.
  std::map<Collective, TimeTable> measured;
  int measured_ranks = 0, measured_hosts = 1;

  int ranks() const { return hosts * ranks_per_host; }
  // Consecutive ranks, `count` of them, in groups one after the other; and the ranks at the same place of such groups.
  Span consecutive(int count) const;
  Span across(int count) const;

  // bytes: of the whole tensor, as of bytes_sent(). 0 for a group of one. The group of a message is two ranks; of more
  // it is a star, with a tensor of so many bytes for each of the others. Where only collectives were measured, a
  // message takes as long as a broadcast to one rank. Messages were measured around a ring, so that they pass others
  // that go the other way; those of a star pass none, and take as long as to gather tensors of their size from all
  // ranks, which brings each rank as much as the star's one rank gets, or sends.
  double seconds(Collective collective, double bytes, const Span& span) const;

  std::string text() const;  // one line for people

 private:
  double calculated_seconds(Collective collective, double bytes, const Span& span) const;
  double star_seconds(double bytes, const Span& span) const;
};

}  // namespace owt
