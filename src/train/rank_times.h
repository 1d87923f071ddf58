// What the profilers of ranks measured, as data: a typical step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"

namespace owt {

// What is about a layer's passes and updates: "conv1 backward"; other rows have their name alone: "gradients".
bool belongs_to_layer(Phase phase);
std::string text_of_row(const std::string& name, Phase phase);

// Of one row of the profiler, per step; see Profiler::Row.
struct RowTimes {
  std::string name;
  Phase phase = Phase::kForward;
  double ms = 0, transfer_ms = 0;
  int64_t bytes = 0;
  double own_ms = 0;

  // Of a transfer, where it could not be timed by itself what it was waited for.
  double taken_ms() const { return transfer_ms > 0 ? transfer_ms : ms; }
  bool operator==(const RowTimes&) const = default;
};

struct RankTimes {
  std::vector<RowTimes> rows{};
  double step_ms = 0;
  int64_t steps = 0;     // recorded
  int64_t period = 1;    // see rank_times()
  LoaderTimes loader{};  // of a step; zeros: nobody made batches, or it was not measured
  std::string host{};    // where the rank runs

  const RowTimes* find(const std::string& name, Phase phase) const;  // null: there is no such row
  double data_ms() const;                                            // that the rank waited for batches
  double exposed_ms() const;                                         // that it waited for transfers
  double busy_ms() const { return step_ms - exposed_ms(); }
  double rest_ms() const;  // in no row

  std::string text() const;                             // for the other ranks
  static RankTimes from_text(const std::string& text);  // Throws Error for what text() has not made.
  bool operator==(const RankTimes&) const = default;
};

// Of the rank whose step takes longest.
double longest_step_ms(std::span<const RankTimes> ranks);
// How long the transfer takes when all who take part are ready: the least of their times, since whoever comes early
// waits for the others. Where it could not be timed by itself, what it was waited for.
double transfer_ms_of(
    std::span<const RankTimes> ranks, const std::string& name,
    const std::function<bool(int rank)>& takes_part = [](int) { return true; });
// Whether ranks compute while a collective is under way: some took longer than they were waited for.
bool transfers_overlap(std::span<const RankTimes> ranks);

// A part of the longest way through a step, on which everything waits for what is before it.
struct PathPart {
  std::string row;  // as a trace names its spans: "conv1 backward", "gradients", "data wait"; between them "host"
  int rank = 0;     // that was busy, or came to the transfer last
  bool transfers = false;
  double begin_ms = 0, end_ms = 0;
};

// The median over the recorded steps of each figure by itself; they add up to the step only nearly. period: where not
// all steps do the same, they repeat after so many; then means over as many steps in a row stand for the steps.
RankTimes rank_times(const Profiler& profiler, int64_t period = 1);

// Of all ranks.
struct StepTimes {
  std::vector<RankTimes> medians{};  // by rank
  // By rank: means over the middle half of the steps, by how long they took; those of the rows add up to the step.
  std::vector<RankTimes> middle{};
  // The mean over the same steps of the rank that is busy for longest in each, since the others wait for it. Where
  // ranks are late by turns, all of them wait for transfers in the mean, but nobody for the transfers' sake.
  RankTimes longest{};

  bool empty() const { return medians.empty(); }
  double transfer_ms(const std::string& name) const;  // as transfer_ms_of(), of the ranks and the longest
};
// Collective. loader: of a step.
StepTimes gather_times(Communicator& comm, const Profiler& profiler, int64_t period, Device device,
                       const LoaderTimes& loader = {});

}  // namespace owt
