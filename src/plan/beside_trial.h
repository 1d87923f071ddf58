// Chooses by measurement whether recorded steps update large dense layers beside the backward pass of the layers before
// them, or together with all other layers after it. Both orders give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace owt {

// PlanRequest::beside_from of plans that update no layer beside the backward pass.
constexpr int64_t kNeverBeside = std::numeric_limits<int64_t>::max();

class BesideTrial {
 public:
  static constexpr size_t kTimesOfEach = 8;
  static constexpr size_t kMostSteps = 400;  // the trial ends after these in any case

  // in_flight: the number of steps that may be started before the first one ends.
  explicit BesideTrial(size_t in_flight) : in_flight_(in_flight) {}

  // Whether the next step, a full one, updates beside. Until the trial is over, blocks of in_flight steps alternate, so
  // that every slot has replays of both graphs and a change of the clock rate affects both.
  bool next();
  bool over() const { return over_; }
  bool beside() const { return beside_; }  // the order of steps that are not part of the trial
  // The time of a step that was replayed. Returns true if it has ended the trial.
  bool add(bool beside, double ms);
  std::string text() const;  // the result, for people

 private:
  void choose();

  size_t in_flight_, started_ = 0;
  bool beside_ = true, over_ = false;
  std::array<std::vector<double>, 2> times_;  // milliseconds: after, beside
};

}  // namespace owt
