// Whole runs, for the subcommands of the program.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/predict/compute_model.h"
#include "src/recipe/settings.h"
#include "src/report/report.h"
#include "src/simulate/virtual_cluster.h"
#include "src/simulate/virtual_outcome.h"
#include "src/train/evaluation.h"
#include "src/train/job.h"
#include "src/train/start_weights.h"

namespace owt {

struct TrainOptions {
  std::string data;  // folder; empty: see data_folder()
  std::string out;   // run folder; empty: the resumed checkpoint's, else runs/<recipe>
  // empty, "auto" (the run folder's latest checkpoint, or none), a run folder or a checkpoint folder
  std::string resume;
  bool can_resume = true;       // whether the command has --resume
  std::string stays{};          // for the log: settings kept from the run's own recipe; may be empty
  StartWeights start{};         // not with resume
  bool other_data = false;      // with resume: the training images may differ from the run's
  int threads = 0;              // threads of all ranks together; 0: all cores
  bool timing = false;          // print the timing table at the end
  RunMemory* memory = nullptr;  // null: the workers do not change (elastic_run.h)
};

struct TrainOutcome {
  bool finished = false;        // false: stopped by a signal, with a checkpoint
  bool workers_change = false;  // not finished; the state is in TrainOptions::memory
  bool left = false;            // this worker has left the run, which continues (elastic_run.h)
  std::string run_folder{};
  int64_t classes = 0;      // the model's outputs
  Evaluation evaluation{};  // result of the final weights, if finished; on rank 0
};

// Trains; rank 0 writes the run folder, which does not change before weights, data and plan are ready. Throws Error.
// Never overwrites another run.
TrainOutcome train(Settings settings, const TrainOptions& options);

struct SimulateOptions {
  std::string data;  // see TrainOptions
  std::string out;   // run folder; empty: runs/<recipe>-simulated, or none with times_only
  StartWeights start{};
  int threads = 0;  // threads that compute gradients; 0: one per core
  VirtualCluster cluster{};
  std::string strategy{};  // a strategy of the planner; empty: a parameter server
  // The computation time of workers with these settings, each alone with its rows.
  std::function<std::unique_ptr<ComputeModel>(const Settings&)> compute{};
};

struct SimulateOutcome {
  VirtualOutcome virtual_run{};
  std::string run_folder{};  // empty: none was written
  std::string compute{};     // source of the times, for people
};

// Simulates the settings' workers with a parameter server, or under a strategy (virtual_run.h). Writes a run folder as
// train() does, with virtual times. Throws Error. Never overwrites another run.
SimulateOutcome simulate(Settings settings, const SimulateOptions& options);

struct EvalOptions {
  std::string weights;  // safetensors file
  std::string data;     // folder; empty: see data_folder()
  int threads = 0;      // threads of all ranks together; 0: all cores
  EvaluationRequest request{};
  std::string run_folder{};  // for the data's facts (data_facts.h); empty: none
  std::string json{};        // a file that the caller writes; empty: none
};

// The accuracy of a weights file, on rank 0, which also writes the requested files.
Evaluation evaluate_file(Settings settings, const EvalOptions& options);

struct TimeOptions {
  int64_t steps = 30;            // timed steps, after a few others
  int threads = 0;               // threads of all ranks together; 0: all cores
  bool evaluation = false;       // time evaluation instead of training
  bool keeps_gradients = false;  // see PlanRequest
  // Files to which the caller will write the trace and the report; empty: none.
  std::string trace{}, csv{};
  bool what_if = false;  // training steps only
  std::string links{};   // file of the planner; empty: none
};

struct TimeOutcome {
  TimingReport report;
  std::string bottleneck{};  // a sentence
  std::string what_if{};     // a table, if requested
  std::string trace{};       // the text of the file, if requested
};

// Times steps on synthetic images. Logs the convolution algorithms that were measured. Rank 0 returns the outcome; if
// ranks are processes, the others return an empty one.
TimeOutcome time_steps(Settings settings, const TimeOptions& options);

// Call before long work: throws Error on all processes if rank 0 could not write one of these files. An empty name
// means no file.
void check_outputs(const std::vector<std::string>& files);

}  // namespace owt
