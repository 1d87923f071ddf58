// Everything a recipe says, read and checked.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/augment.h"
#include "data/shards.h"
#include "layers/conv_algorithm.h"
#include "layers/softmax_loss.h"
#include "src/net/model.h"
#include "src/parallel/plan.h"
#include "src/train/optimizer.h"
#include "src/train/schedule.h"
#include "src/train/weight_ema.h"

namespace owt {

struct DataSettings {
  std::string format;            // cifar10 | cifar100 | shards | synthetic
  std::string dir;               // where the files are; empty: not said
  int64_t batch = 0;             // rows of one step over all ranks; 0: batch_per_rank says
  int64_t batch_per_rank = 0;    // rows of one rank; 0: batch says
  int accumulate = 1;            // slices of a step, which are computed one after the other (PlanRequest::slices)
  std::string classes = "name";  // how labels are matched with outputs: name | number | data (data_identity.h)
  bool shuffle = true;
  double validation = 0;   // held out of the training images (data/held_out.h), and evaluated in training; 0: nothing
  Shape image{32, 32, 3};  // as the data set gives it: H x W x C
  AugmentSettings augment;
  CropSettings crop;                          // shards only
  double max_corrupt = 0.001;                 // share of the training images that may be damaged, [0, 1]
  int loader_threads = 1;                     // of each rank
  int64_t resident_bytes = int64_t{8} << 30;  // on a GPU, data sets up to this size are kept in its memory
  int64_t train_images = 0, test_images = 0;  // synthetic only
  uint64_t seed = 1;                          // of synthetic images

  Split evaluated() const { return validation > 0 ? Split::kValidation : Split::kTest; }  // in training
};

struct ParallelSettings {
  int workers = 1;
  Strategy strategy = kDefaultStrategy;
  bool automatic = false;  // "auto": see auto_strategy.h; until that is settled, `strategy` stands in
  DenseUpdate dense_update = DenseUpdate::kStep;
  int model_ranks = 0;          // workers that share one copy of the split layers; 0: all
  std::vector<double> shares;   // PlanRequest's; empty: as many rows for each worker
  bool measure_shares = false;  // "measured": see measured_shares.h; until that is settled, `shares` are empty
  std::vector<double> speeds;   // PlanRequest's, once they are known
  DenseSplit split = DenseSplit::kOfStrategy;
  std::string scale_lr = "none";  // none | linear | sqrt: how the rate grows with the number of ranks
  int average_every = 1;          // steps of which one averages the weights (PlanRequest); 1: every step sums gradients
  double average_from = 0;        // epochs of steps that sum gradients before that
  int64_t bucket_bytes = 8 << 20;
  bool half_wire = false;  // wire = "bf16"
  PipelineRequest pipeline;
  ConsistencyRules server;      // of ps
  FilterSettings push_filters;  // of ps
  int servers = 0;              // of ps: ranks that serve and compute nothing, the last ones; 0: every worker serves
  bool tolerate_loss = false;   // of ps with servers apart: workers may be lost
  double timeout_s = 20;        // silence after which a process counts as lost
  double stall_s = 600;         // without a sign of work, after which a process that seems to compute counts as hanging
};

struct RunSettings {
  uint64_t seed = 1;
  int64_t log_every = 20;                               // steps between lines of metrics.jsonl
  bool tensorboard = false;                             // write event_file.h, too
  int64_t eval_every_epochs = 1;                        // 0: not by epochs; the end of the run is always evaluated
  int64_t eval_every_steps = 0;                         // 0: not by steps
  int64_t patience = 0;                                 // evaluations without a better one that end the run; 0: none do
  int64_t checkpoint_every_epochs = 1;                  // 0: not by epochs; the end of the run is always kept
  int64_t checkpoint_every_steps = 0;                   // 0: not by steps
  int keep_checkpoints = 3;                             // the newest; the best one is kept besides
  ConvAlgorithm conv_algorithm = ConvAlgorithm::kAuto;  // of the CPU
  std::string device = "auto";                          // cpu | cuda | auto: cuda where there is a GPU
  Precision precision = Precision::kFp32;
  bool deterministic = true;     // on a GPU, only algorithms that give the same bits every time
  int64_t equality_every = 500;  // steps between comparisons of the weights that ranks should hold alike; 0: never
  bool cuda_graph = true;        // on a GPU, record the step and replay it, where the communicator allows that
  bool cuda_graph_collectives = false;  // with several GPUs too; not tried on GPUs yet
};

struct Settings {
  std::string name;  // of the recipe: its file name without .toml
  Model model;
  DataSettings data;
  LossSettings loss;
  OptimizerSettings optimizer;
  EmaSettings ema;
  ScheduleSettings schedule;
  ParallelSettings parallel;
  RunSettings run;
  Config recipe = Config::text("");  // the whole of it as one document, model and overrides included

  int64_t step_rows() const;         // of a full step
  int computing_ranks() const;       // those that have rows of it
  PlanRequest plan_request() const;  // to look at; for the CPU, unless run.device is cuda
  // Where and how this process computes. Throws Error where the device is not there or does not know the precision.
  Compute compute() const;
  Plan plan_to_run(bool whole_logits = false) const;  // on compute(); see PlanRequest
  // Factor on the learning rate that scale_lr asks for, of the layers before and behind the boundary: the batch they
  // update on, in units of one rank's rows.
  double front_rate_scale(const Plan& plan) const;
  double back_rate_scale(const Plan& plan) const;
  // The same steps and rates with so many workers less, where servers are apart: rows are dealt as evenly as possible.
  Settings without_workers(int lost) const;
};

// Throws Error for filters that want another optimizer.
void check_filters(const FilterSettings& filters, const OptimizerSettings& optimizer);

std::string recipe_name(const std::string& file);  // Settings::name of what is read from it

using Overrides = std::vector<std::pair<std::string, std::string>>;  // dotted key, value

// Reads a recipe, or a model file on its own (then with synthetic data and a batch of 64). Overrides act after the
// files, but for "model", which names another model file, its path counting from the recipe. Throws Error naming file
// and line.
Settings read_settings(const std::string& path, const Overrides& overrides = {});
// The same of a file that is read already. path: where it is from, for paths within it and the name.
Settings read_settings(Config file, const std::string& path, const Overrides& overrides = {});
Settings settings_from(Config recipe, const std::string& name);

}  // namespace owt
