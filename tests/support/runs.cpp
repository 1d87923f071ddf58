#include "tests/support/runs.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "src/comm/threads.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_updates.h"
#include "src/train/job.h"
#include "src/train/whitening.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/models.h"

namespace owt {

const char* const kSmallRecipe = R"(
[model]
name = "small"
input = [3, 12, 12]
classes = 10
[[model.layer]]
name = "conv1"
type = "conv"
out = 16
kernel = 3
pad = 1
init = { type = "gaussian", std = 0.1 }
bias = { lr = 2.0, decay = 0.0 }
[[model.layer]]
name = "relu1"
type = "relu"
[[model.layer]]
name = "norm1"
type = "lrn"
size = 3
alpha = 0.01
[[model.layer]]
name = "pool1"
type = "max_pool"
kernel = 3
stride = 2
round = "up"
[[model.layer]]
name = "conv2"
type = "conv"
out = 16
kernel = 3
pad = 1
groups = 2
init = { type = "msra" }
[[model.layer]]
name = "relu2"
type = "relu"
[[model.layer]]
name = "drop2"
type = "dropout"
rate = 0.2
[[model.layer]]
name = "pool2"
type = "avg_pool"
kernel = 2
stride = 2
[[model.layer]]
name = "fc1"
type = "dense"
out = 22
[[model.layer]]
name = "relu3"
type = "relu"
[[model.layer]]
name = "drop3"
type = "dropout"
rate = 0.3
[[model.layer]]
name = "fc2"
type = "dense"
out = 17
[[model.layer]]
name = "relu4"
type = "relu"
[[model.layer]]
name = "fc3"
type = "dense"
out = 10
[data]
format = "synthetic"
side = 16
train_images = 100
test_images = 50
batch = 24
augment = { crop = 12, pad = 1, mirror = true, color = 0.1, scale = 0.02, mean = "pixel" }
[optimizer]
learning_rate = 0.02
momentum = 0.9
decay = 0.001
[schedule]
epochs = 20
[run]
seed = 7
device = "cpu"
)";

std::string cosine_recipe(int classes) {
  std::string recipe = kSmallRecipe;
  const auto replace = [&](const std::string& from, const std::string& to) {
    recipe.replace(recipe.find(from), from.size(), to);
  };
  replace("classes = 10", concat("classes = ", classes));
  replace("name = \"fc3\"\ntype = \"dense\"\nout = 10", concat("name = \"fc3\"\ntype = \"cosine\"\nout = ", classes));
  return recipe + "[loss]\nmargin = { type = \"arcface\", m = 0.3, scale = 8.0 }\n";
}

std::string recipe_of(const std::string& input, const std::string& data, const std::string& layers, double rate) {
  return concat("[model]\n", model_text(input, 10, layers), "[data]\nformat = \"synthetic\"\ntest_images = 10\n", data,
                "\n[optimizer]\nlearning_rate = ", rate, "\n[schedule]\nepochs = 20\n");
}

Overrides with_optimizer(const std::string& type) {
  if (type == "sgd") return {};
  if (type == "proximal") return {{"optimizer.type", type}, {"optimizer.momentum", ""}, {"optimizer.l1", "0.01"}};
  if (type == "muon") return {{"optimizer.type", type}, {"optimizer.learning_rate", "0.002"}};
  if (type == "muon_unit")
    return {{"optimizer.type", "muon"},
            {"optimizer.learning_rate", "0.02"},
            {"optimizer.unit_weights", "true"},
            {"optimizer.adjust_lr", "none"},
            {"optimizer.momentum", "0.6"},
            {"optimizer.ns_steps", "3"},
            {"optimizer.others.learning_rate", "0.002"}};
  return {{"optimizer.type", type},
          {"optimizer.momentum", ""},
          {"optimizer.learning_rate", type == "rmsprop_warmup" ? "0.01" : "0.002"},
          {"optimizer.eps", type == "rmsprop_warmup" ? "0.1" : "0.01"}};
}

Settings small_settings(const std::string& recipe, const Overrides& changes) {
  Config config = Config::text(recipe, "small.toml");
  for (const auto& [key, value] : changes) config.set(key, value);
  return settings_from(config, "small");
}

namespace {

// To draw all images takes as long as two steps. What is drawn does not depend on the keys left out here.
void open_data_once(Job& job, const std::string& recipe, const Overrides& changes) {
  static std::map<std::string, Job>& opened = *new std::map<std::string, Job>;
  std::string key = recipe;
  for (const auto& [name, value] : changes)
    if (!name.starts_with("parallel.") && !name.starts_with("optimizer.") && name != "run.device")
      key += concat(name, "=", value, "\n");
  const auto [at, is_new] = opened.try_emplace(key);
  if (is_new) {
    at->second.settings = job.settings;
    open_data(at->second, job.settings.data.dir);
  }
  Job data = at->second;
  data.settings = std::move(job.settings);
  data.plan = std::move(job.plan);
  job = std::move(data);
}

void add_parts(const RankModel& model, SmallRun& run) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (const Param* param : model.params()) {
    std::vector<float>& whole = run.whole_weights[param->name];
    whole.resize(static_cast<size_t>(param->full_shape.elements()));
    const int64_t first = param->part.begin * param->full_shape.row_elements();
    if (!param->columns && param->part.size() > 0) std::ranges::copy(download(param->value), whole.begin() + first);
  }
}

}  // namespace

SmallRun run_small(const std::string& recipe, int64_t steps, const Overrides& changes, int64_t beside_from,
                   bool keeps_gradients, std::optional<StepKind> kind) {
  Job job;
  job.settings = small_settings(recipe, changes);
  job.plan = job.settings.plan_to_run();
  job.plan.request.beside_from = beside_from;
  job.plan.request.keeps_gradients = keeps_gradients;
  open_data_once(job, recipe, changes);
  SmallRun run;
  run.bytes.resize(static_cast<size_t>(job.plan.ranks()));
  run.planned_of_ranks.resize(run.bytes.size());
  const auto body = [&](Communicator& inner) {
    Worker worker(job.settings, job.plan, inner);
    auto& [profiler, comm, model, optimizer, step, teacher] = worker;
    model.initialize(job.settings.run.seed);
    whiten(job, model);
    const auto batches = training_batches(job, comm.rank(), 0, 0);
    step.feed_from(*batches);
    const Schedule schedule(job.settings.schedule);
    // The device limits the number of steps in flight.
    int64_t finished = 0, planned = 0, planned_here = 0, bytes_of_smaller = 0;
    const auto finish = [&] {
      const StepResult all = step.finish();
      ++finished;
      if (comm.rank() != 0) return;
      run.losses.push_back(all.sums.loss / static_cast<double>(all.sums.rows));
      run.sampled_classes.push_back(all.sampled_classes);
      if (job.plan.has_norms()) run.gradient_norms.push_back(all.gradient_norm);
    };
    for (int64_t i = 0; i < steps; ++i) {
      if (i - finished == step.most_in_flight()) finish();
      const double rate = job.settings.optimizer.learning_rate * schedule.rate(i, batches->steps_per_epoch());
      const Batch& batch = batches->next(step.stream());
      const int64_t before = comm.bytes();
      const double biases = job.settings.optimizer.learning_rate * schedule.bias_rate(i, batches->steps_per_epoch());
      Step::Rates rates{rate, rate, biases, biases};
      rates.sgd_share =
          job.settings.optimizer.sgd_share(static_cast<double>(i) / static_cast<double>(batches->steps_per_epoch()));
      step.start_training(batch, i, rates, false, kind);
      if (batch.step_rows != job.plan.request.step_rows) {
        bytes_of_smaller += comm.bytes() - before;
        continue;
      }
      planned += busiest_link(job.plan, kind.value_or(kind_of(job.plan, i)));
      planned_here += bytes_in(job.plan, kind.value_or(kind_of(job.plan, i)), comm.rank());
    }
    while (finished < steps) finish();
    run.bytes[static_cast<size_t>(comm.rank())] = comm.bytes() - bytes_of_smaller;
    run.planned_of_ranks[static_cast<size_t>(comm.rank())] = planned_here;
    add_parts(model, run);
    if (comm.rank() != 0) return;
    run.planned_bytes = planned;
    for (Param* param : model.params()) {
      run.weights[param->name] = download(param->value);
      if (param->copy16.defined()) run.copies16[param->name] = download(param->copy16);
    }
  };
  run_ranks(job.plan.ranks(), 1, body, job.plan.request.on.device);
  return run;
}

}  // namespace owt
