// The checkpoints of a run, as folders on disk.
//
//   RUN/checkpoints/step-00005000/   complete: weights, optimizer, ..., state.json
//   RUN/checkpoints/latest           the name of the checkpoint to resume from
//   RUN/checkpoints/step-00005000.old   complete; exists only while another one of the same step replaces it
//   RUN/checkpoints/*.tmp            never loaded: being written or removed; the next save deletes it
//
// Checkpoints are written atomically: files in a .tmp folder, fsync of the files and the folder, rename of the folder,
// then replacement of `latest`. After a crash at any time, every earlier checkpoint can still be loaded.
//
// Checkpoints of steps after `latest` belong to an abandoned branch: the run was resumed from an earlier one. They are
// used only if named, and stay until the run has passed their step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/files/run_state.h"

namespace owt {

// The tensor files of a checkpoint: the weights that training resumes from, the optimizer state, and, if the run keeps
// them, the exponential moving averages of the weights.
constexpr const char* kWeightsFile = "weights.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kEmaFile = "ema.safetensors";

class CheckpointWriter {
 public:
  // Keeps the `keep` (>= 1) latest checkpoints and the best one.
  CheckpointWriter(const std::string& run_folder, int keep);

  // Makes this checkpoint of the run the latest one, since the run resumes from it. Logs which later checkpoints become
  // an abandoned branch.
  void resume_from(const std::string& checkpoint_folder) const;
  // Deletes remains of crashes and makes the .tmp folder of step `step`. The caller writes its files into the returned
  // folder with FileWriter, which syncs them, and keeps their checksums.
  std::string begin(int64_t step);
  // Removes what begin() made, because there is no room for the files. If the run continues, logs a warning with the
  // reason.
  void give_up(int64_t step, const std::string& why, bool run_continues);
  // Writes state.json and makes the checkpoint of begin() the latest one. Then removes checkpoints that are no longer
  // kept, and checkpoints of an abandoned branch between the previous latest one and this one. Returns the folder. All
  // files of state.checksums must exist.
  std::string commit(const RunState& state);
  // Stores an evaluation made after the checkpoint of this step was complete, atomically. If there is no room, logs a
  // warning and returns the reason; empty: stored.
  std::string note_evaluation(const RunState& state) const;

 private:
  void set_latest(const std::string& name) const;
  void remove_left_branch(int64_t after, int64_t before) const;
  void prune(const RunState& state) const;

  std::string folder_;  // RUN/checkpoints
  int keep_;
  int64_t begun_ = -1;  // a step; -1: none
};

// Whether a folder is a checkpoint, i.e. contains a state.json.
bool is_checkpoint(const std::string& folder);
// The folders of the run's complete checkpoints, oldest first.
std::vector<std::string> list_checkpoints(const std::string& run_folder);
// The folders up to the latest checkpoint, one per step, without abandoned branches.
std::vector<std::string> checkpoints_to_latest(const std::string& run_folder);
// The folder that `latest` names, or the complete checkpoint of its step. If it names none, the one with the highest
// step, with a warning; nothing if there is none.
std::optional<std::string> newest_checkpoint(const std::string& run_folder);
// The same, but returns the text of that warning instead of logging it.
std::optional<std::string> newest_checkpoint(const std::string& run_folder, std::string& doubt);
struct WholeCheckpoint {
  std::string folder;
  RunState state;
};
// The newest checkpoint whose files are intact. Logs a warning for each newer one that it skips. Nothing if there are
// no checkpoints; throws Error if none is intact.
std::optional<WholeCheckpoint> newest_whole_checkpoint(const std::string& run_folder);
// The checkpoint of the best evaluation that the newest intact checkpoint knows, if it still exists, is intact and of
// the same branch; else the newest intact one. Warns and throws as newest_whole_checkpoint() does.
std::optional<std::string> best_checkpoint(const std::string& run_folder);
// The file with the trained weights of a checkpoint, for every use but resuming: the averages if there are any.
std::string trained_weights_of(const std::string& checkpoint_folder);
// The absolute path of the run folder that contains a checkpoint; nothing if it was moved out of one.
std::optional<std::string> run_folder_of_checkpoint(const std::string& checkpoint_folder);
// Reads state.json of a checkpoint folder and checks the checksum of every file. Throws Error with the missing or
// damaged file and the other checkpoints.
RunState load_checkpoint_state(const std::string& checkpoint_folder);

}  // namespace owt
