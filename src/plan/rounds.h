// A strategy is a list of rounds: which rows of which ranks make up one batch of the dense layers.
//
//   owt-a: 1 round, every rank's rows [0, B)               dense batch K*B
//   owt-b: K rounds, rank r's rows [0, B) in round r       dense batch B
//   owt-c: K rounds, rows [r*B/K, (r+1)*B/K) of every rank dense batch B
//   owt-d: as owt-a; columns travel instead of rows where that is less
//
// With gradient accumulation a step has several micro-batches ("slices"), computed one after the other. Micro-batch s
// is the s-th part of every rank's rows and has rounds of its own; the gradients add up.
// Source: Krizhevsky 2014, "One weird trick", schemes (a) to (c).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/shape.h"
#include "src/plan/strategy.h"

namespace owt {

struct RowRange {
  int rank;            // place in the model group
  int64_t begin, end;  // rows of that rank's local batch
  int64_t size() const { return end - begin; }
};
using Round = std::vector<RowRange>;  // the concatenated ranges are one dense batch
// Rounds that are in memory at the same time: one is computed while the next one travels.
constexpr int kRoundsAtOnce = 2;
int64_t rows_of(const Round& round);

// Divides `total` in proportion to shares, which are finite and not negative, and returns the ends of all parts in
// order. Each part is its quota total * share / sum, rounded down. The remaining units go to the parts with the largest
// remainders, the earlier part first among equals. The result depends on the numbers alone, so all ranks find the same.
// Equal shares give the parts of split(). This is the method of the largest remainder (Hamilton's method), so a smaller
// total may give a part more.
std::vector<int64_t> ends_of_parts(int64_t total, const std::vector<double>& shares);

// How the rows of one step are divided among the ranks: contiguous parts in rank order. Consecutive ranks that share
// one copy of the split layers form a model group. Under mp, mp-dense and pipeline every rank of a group has all rows
// of its group.
class StepRows {
 public:
  // model_ranks: ranks of a group, a divisor of ranks; 0: all ranks are one group. shares: one per rank, finite and not
  // negative; rows are dealt in proportion. Empty: equal shares, with one more row for the first ranks. If a group has
  // rows in common, its share is the smallest share of a member, which holds up the others. equal_parts: for
  // Rounds::kEqualParts. row_group, round_group: rows are dealt to ranks, and a rank's rows to rounds, in whole
  // groups of this size (core/row_groups.h); row_group is a multiple of round_group.
  StepRows(Strategy strategy, int ranks, int64_t step_rows, int model_ranks = 0, const std::vector<double>& shares = {},
           int equal_parts = 1, int slices = 1, int64_t row_group = 1, int64_t round_group = 1);

  int slices() const { return end_slice_ - first_slice_; }
  // The rows of one micro-batch alone; the functions below then describe these. If a rank has few rows, some of its
  // micro-batches are empty.
  StepRows slice(int number) const;
  // The first micro-batch in which every rank of this rank's model group has as many rows as in `slice`.
  int first_alike(int slice, int rank) const;

  Slice of(int rank) const;                 // the rank's rows, as indexes in the step; empty if its share is small
  int64_t total() const { return total_; }  // rows of the whole step
  int64_t most() const;                     // the largest number of rows of any rank
  int64_t least(int ranks) const;           // the smallest number of rows of the first `ranks` ranks
  int64_t most_beside(int rank) const;      // the largest number of rows in the model group of this rank
  bool alike() const;                       // no rank has more rows than rank 0
  int busiest_group() const;                // the first rank of the model group with the most rows
  std::string text() const;  // rows of a rank, for people: "8"; if they differ "12 + 8 + 4", or "4 to 12"
  // The rounds of this rank's group, from its point of view, micro-batch by micro-batch. Under dp and mp each
  // micro-batch has one round, of the rank's own rows.
  std::vector<Round> rounds(int rank) const;
  int count_rounds() const;  // the number of these rounds, the same for every rank
  // The sizes of the same rounds. The time grows with the ranks of a group, not with their square.
  struct RoundSize {
    int64_t rows;     // sum of all ranges
    int64_t longest;  // the longest range
  };
  std::vector<RoundSize> round_sizes(int rank) const;
  // The rows of a round of this rank's group, as indexes in the step.
  std::vector<int64_t> indexes(const Round& round, int rank) const;

 private:
  int first_of_group(int rank) const { return rank / model_ranks_ * model_ranks_; }
  int parts() const { return shared_rows_ ? ranks_ / model_ranks_ : ranks_; }
  int part_of(int rank) const { return shared_rows_ ? rank / model_ranks_ : rank; }
  Slice in_all_slices(int rank) const;         // the rank's rows in the whole step, whatever part this object describes
  Slice in_slice(int rank, int number) const;  // the rank's rows in one micro-batch, relative to in_all_slices()
  void add_rounds_of(int slice, int rank, std::vector<Round>& all) const;

  Rounds rounds_;
  bool shared_rows_;
  int ranks_, model_ranks_, equal_parts_;
  int slices_, first_slice_ = 0, end_slice_;  // micro-batches of the step; the range that this object describes
  int64_t total_, row_group_, round_group_;
  std::vector<int64_t> ends_;  // ends of the parts; empty: equal parts
};

}  // namespace owt
