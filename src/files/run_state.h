// The position of a run, stored in state.json of a checkpoint (checkpoint_files.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace owt {

// The state of a plateau schedule (schedule.h): what it has seen in evaluations.
struct Plateau {
  bool begun = false;  // whether there was an evaluation
  double best = 0;     // best value: top-1, or minus the loss
  int64_t waited = 0;  // evaluations since the best one or the last decrease
  int64_t falls = 0;   // number of decreases of the rate
  bool operator==(const Plateau&) const = default;
};

struct RunState {
  int64_t step = 0;             // updates done
  int64_t epoch = 0;            // the epoch to continue in
  int64_t images_in_epoch = 0;  // images done in that epoch; old checkpoints count whole steps instead
  int64_t step_rows = 0;        // images of a full step
  int64_t images = 0;           // images of the training split
  uint64_t data = 0;            // checksum of these images (Dataset::checksum()); 0: unknown
  int64_t evaluated_step = -1;  // step of the latest evaluation; -1: none yet
  int64_t ema_step = -1;        // step of the last update of the averages (weight_ema.h); -1: none are kept
  uint64_t seed = 0;
  double best_top1 = 0;    // best top-1 accuracy so far, a fraction
  int64_t best_step = -1;  // step of the best evaluation; -1: none yet
  int64_t since_best = 0;  // evaluations after the best one
  int workers = 1;
  std::string strategy;
  std::string optimizer = "sgd";  // OptimizerSettings::name()
  // The number of updates of the front part's and the back part's parameters. Checkpoints with sgd may lack it, since
  // sgd does not depend on it.
  struct UpdateCounts {
    int64_t front = 0, back = 0;
    bool operator==(const UpdateCounts&) const = default;
  } updates{};
  std::vector<double> measured_shares{};  // shares of the workers' rows, for a resumed run; empty: not measured
  std::string decoder{};                  // "cpu" or "gpu" if a trial has chosen it (data/decoder_trial.h); else empty
  Plateau plateau{};
  std::map<std::string, std::string> conv_choices;  // layer -> algorithm, so that a resumed run computes the same bits
  std::map<std::string, uint64_t> checksums;        // file -> xxHash64, for all other files of the checkpoint

  // JSON with a checksum of its own values.
  std::string to_json() const;
  // Throws Error with `path` if the text was not written by to_json().
  static RunState from_json(const std::string& text, const std::string& path);
  bool operator==(const RunState&) const = default;
};

}  // namespace owt
