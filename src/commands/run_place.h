// The folder to which a command writes its run, and the checkpoint from which it resumes.
#pragma once

#include <string>
#include <vector>

#include "src/commands/run.h"
#include "src/files/run_state.h"

namespace owt {

// Found by rank 0 for all ranks, since others may see another disk.
struct RunPlace {
  std::string out;         // run folder
  std::string checkpoint;  // folder to resume from; empty: a new run
  bool same_run = false;   // the checkpoint is in `out`
  std::string state;       // state.json of the checkpoint; empty: none

  // The measured shares in the checkpoint, if any.
  std::vector<double> measured_shares() const;
};

// Collective over the processes of a launch; creates and changes no file. Throws Error if `out` contains another run,
// and if there is nothing to resume from, unless options.resume is "auto". When resuming a run, skips damaged
// checkpoints with a warning.
RunPlace find_place(const Settings& settings, const TrainOptions& options);

// The default run folder for a recipe of this name.
std::string default_run_folder(const std::string& name);

// Whether a run has begun in this folder: it has a log, metrics or checkpoints.
bool holds_run(const std::string& folder);

}  // namespace owt
