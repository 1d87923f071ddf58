// Whole runs, as the program's subcommands start them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/parallel/compute_model.h"
#include "src/train/evaluation.h"
#include "src/train/report.h"
#include "src/train/settings.h"
#include "src/train/start_weights.h"
#include "src/train/virtual_run.h"

namespace owt {

struct TrainOptions {
  std::string data;         // folder; empty: see data_folder()
  std::string out;          // run folder; empty: that of the checkpoint to resume, else runs/<recipe>
  std::string resume;       // empty, "auto" (the run folder's newest checkpoint, or none), a run or a checkpoint folder
  bool can_resume = true;   // the command has --resume
  std::string stays{};      // for the log: what of the run's own recipe stays; may be empty
  StartWeights start{};     // not with resume
  bool other_data = false;  // with resume: the training images may be others than the run has seen
  int threads = 0;          // of all ranks together; 0: all cores
  bool timing = false;      // print the timing table at the end
};

struct TrainOutcome {
  bool finished = false;  // false: stopped on a signal, with a checkpoint
  std::string run_folder;
  Evaluation evaluation;  // of the final weights, where finished; on rank 0
};

// Trains, rank 0 writing the run folder, which does not change before weights, data and plan are there. Throws Error;
// never overwrites another run.
TrainOutcome train(Settings settings, const TrainOptions& options);

struct SimulateOptions {
  std::string data;  // TrainOptions'
  std::string out;   // run folder; empty: runs/<recipe>-simulated, and none where only times are wanted
  StartWeights start{};
  int threads = 0;  // that compute gradients; 0: one for each core
  VirtualCluster cluster{};
  std::string strategy{};  // of the planner; empty: a parameter server
  // How long a worker computes: what the settings' workers do with their rows by themselves.
  std::function<std::unique_ptr<ComputeModel>(const Settings&)> compute{};
};

struct SimulateOutcome {
  VirtualOutcome virtual_run{};
  std::string run_folder{};  // empty: none is written
  std::string compute{};     // where the times come from, for people
};

// The settings' workers with a parameter server, or under a strategy, simulated (virtual_run.h). Writes a run folder as
// train() does, whose times are virtual. Throws Error; never overwrites another run.
SimulateOutcome simulate(Settings settings, const SimulateOptions& options);

struct EvalOptions {
  std::string weights;  // safetensors file
  std::string data;     // folder; empty: see data_folder()
  int threads = 0;      // of all ranks together; 0: all cores
  EvaluationRequest request{};
  std::string run_folder{};  // for the data's facts (data_facts.h); empty: none
  std::string json{};        // a file that the caller writes; empty: none
};

// Accuracy of a weights file; on rank 0, which writes the files that are asked for.
Evaluation evaluate_file(Settings settings, const EvalOptions& options);

struct TimeOptions {
  int64_t steps = 30;            // timed, after a few that are not
  int threads = 0;               // of all ranks together; 0: all cores
  bool evaluation = false;       // the steps evaluate; false: they train
  bool keeps_gradients = false;  // PlanRequest's
  // The files that the caller will write the trace and the report to; empty: none.
  std::string trace{}, csv{};
  bool what_if = false;  // of training steps
  std::string links{};   // file of the planner; empty: none
};

struct TimeOutcome {
  TimingReport report;
  std::string bottleneck{};  // a sentence
  std::string what_if{};     // a table, where one is wanted
  std::string trace{};       // the text of the file, where one is wanted
};

// Times steps on made-up images. Logs the convolution algorithms that were measured. The outcome is rank 0's; where
// ranks are processes, the others return an empty one.
TimeOutcome time_steps(Settings settings, const TimeOptions& options);

// Before long work: throws Error, on all processes, where rank 0 could not write one of these files; an empty name is
// none.
void check_outputs(const std::vector<std::string>& files);

}  // namespace owt
