// The settings of a recipe, read and checked.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/augment.h"
#include "data/decoder_trial.h"
#include "data/order.h"
#include "data/shards.h"
#include "layers/conv_cpu/conv_algorithm.h"
#include "layers/loss/softmax_loss.h"
#include "src/net/model.h"
#include "src/parallel/optimizer.h"
#include "src/parallel/weight_ema.h"
#include "src/plan/plan.h"
#include "src/recipe/schedule.h"

namespace owt {

struct DataSettings {
  std::string format;            // cifar10 | cifar100 | shards | synthetic
  std::string dir;               // folder of the files; empty: not given
  int64_t batch = 0;             // rows of one step over all ranks; 0: batch_per_rank is used
  int64_t batch_per_rank = 0;    // rows of one rank; 0: batch is used
  int accumulate = 1;            // gradient accumulation: micro-batches of a step (PlanRequest::slices)
  std::string classes = "name";  // how labels are matched with outputs: name | number | data (data_identity.h)
  bool shuffle = true;
  Sampling sampling = Sampling::kUniform;  // kBalanced only with shuffle
  bool targets = false;  // a target for each class, from a table (data/relabelled.h): LossSettings::targets
  // Training images that are held out (data/held_out.h) and evaluated in training, as a share or a number; 0: none.
  double validation = 0;
  Shape image{32, 32, 3};  // H x W x C of the data set's images
  AugmentSettings augment;
  CropSettings crop;                          // shards only
  double max_corrupt = 0.001;                 // the fraction of training images that may be damaged, [0, 1]
  Decoder decoder = Decoder::kCpu;            // decodes training photographs on a GPU; shards only
  int loader_threads = 1;                     // per rank
  int64_t resident_bytes = int64_t{8} << 30;  // GPUs keep data sets up to this size in their memory
  int64_t train_images = 0, test_images = 0;  // synthetic data only
  uint64_t seed = 1;                          // for synthetic images

  // The split that is evaluated during training.
  Split evaluated() const { return validation > 0 ? Split::kValidation : Split::kTest; }
};

// A trained network whose outputs are targets of the loss (LossSettings::targets).
struct DistillSettings {
  std::string run;  // folder of the teacher's run; empty: there is no teacher
  // The layers whose outputs are compared (src/net/hint.h); empty: none are.
  std::string hint_teacher_layer{}, hint_layer{};
  double hint_weight = 1;
  std::string checkpoint{};  // empty: the one with the best top-1
  // Set by open_teacher() (src/train/teacher.h): the teacher's recipe and the file of its weights.
  std::shared_ptr<const struct Settings> teacher{};
  std::string weights{};
};

struct ParallelSettings {
  int workers = 1;
  Strategy strategy = kDefaultStrategy;
  bool automatic = false;  // "auto": see auto_strategy.h; `strategy` is a placeholder until the choice is made
  DenseUpdate dense_update = DenseUpdate::kStep;
  int model_ranks = 0;          // workers that share one copy of the split layers; 0: all
  std::vector<double> shares;   // PlanRequest::shares; empty: equal numbers of rows
  bool measure_shares = false;  // "measured": see measured_shares.h; `shares` are empty until they are measured
  std::vector<double> speeds;   // PlanRequest::speeds, once they are known
  DenseSplit split = DenseSplit::kOfStrategy;
  std::string scale_lr = "none";  // none | linear | sqrt: how the learning rate grows with the number of ranks
  int average_every = 1;    // one in this many steps averages the weights (PlanRequest); 1: every step sums gradients
  double average_from = 0;  // epochs of steps that sum gradients, before averaging starts
  int64_t bucket_bytes = 8 << 20;
  bool bf16_transport = false;  // wire = "bf16"
  StrategyOptions options;
  double timeout_s = 20;  // seconds of silence after which a process counts as lost
  double stall_s = 600;   // seconds without progress after which a process that seems to compute counts as hanging
};

// For runs whose workers may leave and join (owt launch --elastic).
struct ElasticSettings {
  bool on = false;            // not a key: the command says whether the workers may change
  int64_t mirror_every = 50;  // steps between copies of the run's state to memory (src/mirror)
};

struct RunSettings {
  uint64_t seed = 1;
  int64_t log_every = 20;               // steps between lines of metrics.jsonl
  bool tensorboard = false;             // also write TensorBoard events (event_file.h)
  int64_t eval_every_epochs = 1;        // 0: not by epochs; the end of the run is always evaluated
  int64_t eval_every_steps = 0;         // 0: not by steps
  int64_t patience = 0;                 // early stopping: evaluations without a new best that end the run; 0: off
  int64_t checkpoint_every_epochs = 1;  // 0: not by epochs; the end of the run is always saved
  int64_t checkpoint_every_steps = 0;   // 0: not by steps
  int keep_checkpoints = 3;             // number of latest checkpoints to keep; the best one is kept too
  ConvAlgorithm conv_algorithm = ConvAlgorithm::kAuto;  // on the CPU
  std::string device = "auto";                          // cpu | cuda | auto: cuda if there is a GPU
  Precision precision = Precision::kFp32;
  bool canonical = false;               // the same bits with every number of workers (core/canonical.h)
  bool deterministic = true;            // on a GPU, use only algorithms that give the same bits every time
  int64_t equality_every = 500;         // steps between comparisons of weights that ranks should hold equal; 0: never
  bool cuda_graph = true;               // on a GPU, record the step and replay it, if the communicator allows that
  bool cuda_graph_collectives = false;  // also with several GPUs; not tested on GPUs
  // auto | on | off: on a GPU, update dense layers during the backward pass of the layers before them
  std::string update_beside = "auto";

  // A measurement may choose another algorithm in each run, with other bits.
  ConvAlgorithm conv_algorithm_of_run() const {
    return canonical && conv_algorithm == ConvAlgorithm::kAuto ? ConvAlgorithm::kByShape : conv_algorithm;
  }
};

struct Settings {
  std::string name;  // the recipe's file name without .toml
  Model model;
  DataSettings data;
  LossSettings loss;
  DistillSettings distill;
  OptimizerSettings optimizer;
  EmaSettings ema;
  ScheduleSettings schedule;
  ParallelSettings parallel;
  ElasticSettings elastic;
  RunSettings run;
  Config recipe = Config::text("");  // the whole recipe as one document, including model and overrides

  int64_t step_rows() const;         // rows of a full step
  int computing_ranks() const;       // the ranks that have rows of a step
  PlanRequest plan_request() const;  // for planning only; for the CPU, unless run.device is cuda
  // The device and precision of this process. Throws Error if the device is missing or does not support the precision.
  Compute compute() const;
  Plan plan_to_run() const;  // for compute()
  // The factor that scale_lr gives for the learning rate of the front part and of the back part: the batch of their
  // updates in units of one rank's rows.
  double front_rate_scale(const Plan& plan) const;
  double back_rate_scale(const Plan& plan) const;
  // The same steps and rates with fewer workers, if servers are separate ranks. Rows are dealt as evenly as possible.
  Settings without_workers(int lost) const;
};

std::string recipe_name(const std::string& file);  // the Settings::name of a recipe file

using Overrides = std::vector<std::pair<std::string, std::string>>;  // dotted key, value

// Reads a recipe, or a model file alone (with synthetic data and a batch of 64). Overrides apply after the files,
// except "model", which names another model file, relative to the recipe. Throws Error with file and line.
Settings read_settings(const std::string& path, const Overrides& overrides = {});
// The table [without_data] of a recipe, which read_settings() ignores: what changes if its data set is not there.
Overrides changes_without_data(const std::string& path);
// Reads settings from a file that is already parsed. path: its path, for relative paths in it and for the name.
Settings read_settings(Config file, const std::string& path, const Overrides& overrides = {});
Settings settings_from(Config recipe, const std::string& name);

}  // namespace owt
