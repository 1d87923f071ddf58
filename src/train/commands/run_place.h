// Where a command writes its run, and what it goes on from.
#pragma once

#include <string>
#include <vector>

#include "src/train/commands/run.h"
#include "src/train/files/run_state.h"

namespace owt {

// What rank 0 has found, for all ranks: the others may see another disk.
struct RunPlace {
  std::string out;         // run folder
  std::string checkpoint;  // folder to go on from; empty: from the beginning
  bool same_run = false;   // the checkpoint lies in `out`
  std::string state;       // state.json of the checkpoint; empty: none

  // Those of the checkpoint, where they were measured for it.
  std::vector<double> measured_shares() const;
};

// Collective over the processes of a launch; makes and changes no file. Throws Error where `out` holds another run, and
// where there is nothing to go on from but options.resume is "auto". Of a run, a damaged checkpoint is passed over with
// a warning.
RunPlace find_place(const Settings& settings, const TrainOptions& options);

// Of the run of a recipe of this name, where nobody says another one.
std::string default_run_folder(const std::string& name);

// Whether a run has begun in this folder: it has a log, metrics or checkpoints.
bool holds_run(const std::string& folder);

}  // namespace owt
