#include "tests/support/runs.h"

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/train/job.h"
#include "src/train/step.h"

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
)";

Settings small_settings(const std::string& recipe, const Overrides& changes) {
  Config config = Config::text(recipe, "small.toml");
  for (const auto& [key, value] : changes) config.set(key, value);
  return settings_from(config, "small");
}

SmallRun run_small(const std::string& recipe, int64_t steps, const Overrides& changes) {
  Job job;
  job.settings = small_settings(recipe, changes);
  job.plan = make_plan(job.settings.model, job.settings.plan_request());
  open_data(job, "");
  SmallRun result;
  result.planned_bytes = job.plan.bytes_per_step();
  result.bytes.resize(static_cast<size_t>(job.plan.ranks()));
  run_ranks(job.plan.ranks(), 1, [&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    RankModel model(job.settings.model, job.plan, comm.rank());
    Sgd sgd(job.settings.optimizer);
    Step step(job.plan, model, sgd, comm, nullptr, job.settings.run.seed);
    model.initialize(job.settings.run.seed);
    const auto batches = training_batches(job, comm.rank(), 0, 0);
    const double rate = job.settings.optimizer.learning_rate;
    for (int64_t i = 0; i < steps; ++i) {
      const StepResult all = step.train(batches->next(), i, {rate, rate}, false);
      if (comm.rank() == 0) result.losses.push_back(all.sums.loss / static_cast<double>(all.sums.rows));
    }
    result.bytes[static_cast<size_t>(comm.rank())] = comm.bytes();
    if (comm.rank() != 0) return;
    for (Param* param : model.params())
      result.weights[param->name].assign(param->value.data(), param->value.data() + param->value.elements());
  });
  return result;
}

}  // namespace owt
