// The checkpoints of a run, as folders on disk.
//
//   RUN/checkpoints/step-00005000/   complete: weights, optimizer, ..., state.json
//   RUN/checkpoints/latest           the name of the one to go on from
//   RUN/checkpoints/step-00005000.old   complete; only while another of the same step takes its place
//   RUN/checkpoints/*.tmp            never loaded: being written or being removed; cleared by the next save
//
// A checkpoint is written in a .tmp folder, its files and the folder are synced, and the folder is renamed;
// then `latest` is replaced. So whatever instant a crash hits, what was loadable before still is.
//
// Checkpoints of steps after `latest` belong to a branch that was left by resuming from an older one: they are not gone
// on from unless named, and stay until the run has passed their step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/train/files/run_state.h"

namespace owt {

// The tensors of a checkpoint: the weights that training goes on from, the state of the optimizer, and, of a run that
// keeps them, the exponential averages of the weights.
constexpr const char* kWeightsFile = "weights.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kEmaFile = "ema.safetensors";

class CheckpointWriter {
 public:
  // Keeps the newest `keep` (>= 1) checkpoints and the best one.
  CheckpointWriter(const std::string& run_folder, int keep);

  // The run goes on from this checkpoint, which is one of its own: it becomes the latest. Logs which later ones are
  // left.
  void go_on_from(const std::string& checkpoint_folder) const;
  // Clears what crashes left and makes the .tmp folder of step `step`. The caller writes its files into the
  // folder returned, with FileWriter, which syncs them, and notes their checksums.
  std::string begin(int64_t step);
  // Removes what begin() made, where there is no room for its files; a warning says why where the run goes on.
  void give_up(int64_t step, const std::string& why, bool goes_on);
  // Writes state.json and makes the checkpoint of begin() the latest; then removes the ones no longer kept, and those
  // of a branch that was left whose steps lie between the latest before and this one.
  // Returns its folder. Every file of state.checksums must be there.
  std::string commit(const RunState& state);
  // Notes an evaluation that came after the checkpoint of this step was complete. At every moment the old state or the
  // new one is there. Returns why there is no room for that, which a warning says; empty: it is noted.
  std::string note_evaluation(const RunState& state) const;

 private:
  void set_latest(const std::string& name) const;
  void remove_left_branch(int64_t after, int64_t before) const;
  void prune(const RunState& state) const;

  std::string folder_;  // RUN/checkpoints
  int keep_;
  int64_t begun_ = -1;  // step; -1: none
};

// Whether a folder is a checkpoint: it holds a state.json.
bool is_checkpoint(const std::string& folder);
// Complete checkpoints of the run, oldest first, as folders.
std::vector<std::string> list_checkpoints(const std::string& run_folder);
// The same up to the latest, one of each step: without those of a branch that was left.
std::vector<std::string> checkpoints_to_latest(const std::string& run_folder);
// The folder that `latest` names, or the complete one of its step. Where it names none, the one with the highest step,
// with a warning; nothing where there is none.
std::optional<std::string> newest_checkpoint(const std::string& run_folder);
// The same; the text of that warning is left to the caller.
std::optional<std::string> newest_checkpoint(const std::string& run_folder, std::string& doubt);
struct WholeCheckpoint {
  std::string folder;
  RunState state;
};
// The newest checkpoint whose files are as they were written. Of each newer one, which is passed over, a warning says
// what is wrong with it. Nothing where there are none. Throws Error where none is whole.
std::optional<WholeCheckpoint> newest_whole_checkpoint(const std::string& run_folder);
// The checkpoint of the best evaluation that the newest whole one knows of, where it is still there, whole and no other
// branch's; else that newest one. Warns of the others, and throws, as newest_whole_checkpoint().
std::optional<std::string> best_checkpoint(const std::string& run_folder);
// The file of a checkpoint with the weights for everybody but who goes on with the run: the averages, where there are
// some.
std::string trained_weights_of(const std::string& checkpoint_folder);
// The run folder that a checkpoint lies in, as an absolute path; nothing where it was moved out of one.
std::optional<std::string> run_folder_of_checkpoint(const std::string& checkpoint_folder);
// Reads state.json of a checkpoint folder and checks every file against its checksum. Throws Error naming the
// file that is missing or damaged and the other checkpoints to choose from.
RunState load_checkpoint_state(const std::string& checkpoint_folder);

}  // namespace owt
