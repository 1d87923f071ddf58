// Schemes are lists of rounds: which rows of which rank make up one batch of the dense layers.
//
//   owt-a: 1 round, every rank's rows [0, B)               dense batch K*B
//   owt-b: K rounds, rank r's rows [0, B) in round r       dense batch B
//   owt-c: K rounds, rows [r*B/K, (r+1)*B/K) of every rank dense batch B
//   owt-d: as owt-a; columns travel instead of rows where that is less
//
// A step may be cut into slices, one computed after the other, whose gradients add up: slice s is the s-th part of
// every rank's rows, and has such rounds of its own.
// Source: Krizhevsky 2014, "One weird trick", schemes (a) to (c).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/shape.h"
#include "src/parallel/strategy.h"

namespace owt {

struct RowRange {
  int rank;            // in its model group
  int64_t begin, end;  // rows of that rank's local batch
  int64_t size() const { return end - begin; }
};
using Round = std::vector<RowRange>;  // their concatenation is one dense batch
// Rounds whose rows are together at the same time: one is computed while the next one travels.
constexpr int kRoundsAtOnce = 2;
int64_t rows_of(const Round& round);

// Parts of `total` in proportion to shares, finite and not negative, in their order: the ends of all parts. Each part
// is its quota, total * share / sum, rounded down; what is left over goes to those with the largest remainders, the
// first ones of equals. A function of the numbers alone, so that all ranks find the same; equal shares give what
// split() gives. (The method of the largest remainder, Hamilton's: a smaller total may give a part more.)
std::vector<int64_t> ends_of_parts(int64_t total, const std::vector<double>& shares);

// How the rows of one step lie on the ranks: contiguous parts in rank order. Ranks that share one copy of the split
// layers form a model group, consecutive ones each; under mp and mp-dense every rank of a group has all of its group's
// rows.
class StepRows {
 public:
  // model_ranks: of a group, a divisor of ranks; 0: all ranks are one group. shares: one for each rank, finite and not
  // negative, which rows are dealt in proportion to; empty: as many for each, the first ranks one more. Where a group
  // has rows in common, its share is that of its rank with the least, which holds up the others. micro_batches: of
  // Rounds::kMicroBatches. row_group, round_group: rows are dealt to ranks, and those of a rank to rounds, in whole
  // groups of so many (core/row_groups.h); the first one is a multiple of the second.
  StepRows(Strategy strategy, int ranks, int64_t step_rows, int model_ranks = 0, const std::vector<double>& shares = {},
           int micro_batches = 1, int slices = 1, int64_t row_group = 1, int64_t round_group = 1);

  int slices() const { return end_slice_ - first_slice_; }
  // The same of one slice alone: what follows is about the rows in it. Of a rank with few rows some are empty.
  StepRows slice(int number) const;
  // The first slice in which every rank of this one's model group has as many rows.
  int first_alike(int slice, int rank) const;

  Slice of(int rank) const;                 // the rank's rows, as indexes in the step; none where its share is small
  int64_t total() const { return total_; }  // of the whole step
  int64_t most() const;                     // the largest number of rows on a rank
  int64_t least(int ranks) const;           // the smallest on one of the first `ranks` ranks
  int64_t most_beside(int rank) const;      // the same in the model group of this rank
  bool alike() const;                       // no rank has more than the first one
  int busiest_group() const;                // the first rank of the model group with the most rows
  std::string text() const;  // rows of a rank, for people: "8"; where ranks have unlike ones "12 + 8 + 4", or "4 to 12"
  // The rounds of its group, as this rank sees them: of one slice after the other. Under dp and mp there is one round
  // of the rank's own rows in each.
  std::vector<Round> rounds(int rank) const;
  int count_rounds() const;  // how many these are, of every rank
  // The sizes of the same rounds, in a time that grows with the ranks of a group and not with their square.
  struct RoundSize {
    int64_t rows;     // of all ranges together
    int64_t longest;  // of the ranges
  };
  std::vector<RoundSize> round_sizes(int rank) const;
  // The rows of a round of this rank's group, as indexes in the step.
  std::vector<int64_t> indexes(const Round& round, int rank) const;

 private:
  int first_of_group(int rank) const { return rank / model_ranks_ * model_ranks_; }
  int parts() const { return shared_rows_ ? ranks_ / model_ranks_ : ranks_; }
  int part_of(int rank) const { return shared_rows_ ? rank / model_ranks_ : rank; }
  Slice in_all_slices(int rank) const;         // of()
  Slice in_slice(int rank, int number) const;  // of these
  void add_rounds_of(int slice, int rank, std::vector<Round>& all) const;

  Rounds rounds_;
  bool shared_rows_;
  int ranks_, model_ranks_, micro_batches_;
  int slices_, first_slice_ = 0, end_slice_;  // of the step; those that this is about
  int64_t total_, row_group_, round_group_;
  std::vector<int64_t> ends_;  // of the parts; empty: of equal ones
};

}  // namespace owt
