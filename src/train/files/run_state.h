// Where a run is, as state.json of a checkpoint (checkpoint_files.h) says it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace owt {

// What a schedule with a plateau (schedule.h) has seen of the evaluations so far.
struct Plateau {
  bool begun = false;  // there was one
  double best = 0;     // of them: top-1, or minus the loss
  int64_t waited = 0;  // evaluations since the best or the last fall
  int64_t falls = 0;   // of the rate
  bool operator==(const Plateau&) const = default;
};

struct RunState {
  int64_t step = 0;             // updates done
  int64_t epoch = 0;            // where to go on
  int64_t images_in_epoch = 0;  // of it done; older checkpoints count whole steps of it
  int64_t step_rows = 0;        // images of a full step
  int64_t images = 0;           // of the training split
  uint64_t data = 0;            // checksum of these images (Dataset::checksum()); 0: not noted
  int64_t evaluated_step = -1;  // of the newest evaluation; -1: none yet
  int64_t ema_step = -1;        // the last whose weights the averages (weight_ema.h) took in; -1: none are kept
  uint64_t seed = 0;
  double best_top1 = 0;    // fraction; of the best evaluation so far
  int64_t best_step = -1;  // its step; -1: none yet
  int64_t since_best = 0;  // evaluations after it
  int workers = 1;
  std::string strategy;
  std::string optimizer = "sgd";  // OptimizerSettings::name()
  // That the parameters before and behind the boundary have had; checkpoints of sgd may not say it, for which it is
  // nothing to go by.
  struct Updates {
    int64_t front = 0, back = 0;
    bool operator==(const Updates&) const = default;
  } updates{};
  std::vector<double> measured_shares{};  // of the workers' rows, for a resumed run; empty: none were measured
  Plateau plateau{};
  std::map<std::string, std::string> conv_choices;  // layer -> algorithm, so that a resumed run computes the same bits
  std::map<std::string, uint64_t> checksums;        // file -> xxHash64 of every other file of the checkpoint

  // JSON with a checksum over its own values.
  std::string to_json() const;
  // Throws Error naming `path` for anything but what to_json() wrote.
  static RunState from_json(const std::string& text, const std::string& path);
  bool operator==(const RunState&) const = default;
};

}  // namespace owt
