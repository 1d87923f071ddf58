#include "src/recipe/settings.h"

#include <cmath>
#include <filesystem>
#include <optional>

#include "data/batch_memory.h"
#include "src/core/canonical.h"
#include "src/core/gpus.h"
#include "src/plan/beside_trial.h"
#include "src/plan/plan_updates.h"
#include "src/system/check.h"
#include "src/system/config_values.h"

namespace owt {
namespace {

constexpr const char* kWithoutData = "without_data";

// The settings for a model file alone, which can be planned and timed.
constexpr const char* kBareRecipe = R"(
[data]
format = "synthetic"
batch = 64
[optimizer]
learning_rate = 0.01
[schedule]
epochs = 1
)";

// model: the path of a model file to use instead of the recipe's, if any.
Config whole_recipe(Config file, const std::string& path, const std::optional<std::string>& model) {
  if (model && model->empty()) fail("--set model= names no file; name a model file, or leave it out");
  if (model && file.has("layer"))
    fail("--set model=", *model, ": ", path, " is a model file itself and names no other; give ", *model,
         " in its place, or a recipe");
  if (model) file.set("model", *model);
  if (file.has("layer")) {
    Config recipe = Config::text(kBareRecipe, path);
    recipe.put("model", file);
    return recipe;
  }
  if (file.is_string("model")) {
    const std::filesystem::path named = file.string("model");
    const auto found = named.is_absolute() ? named : std::filesystem::path(path).parent_path() / named;
    if (!std::filesystem::is_regular_file(found))
      file.error("model", concat("no model file ", found.string(), " (the path counts from this file)"));
    file.put("model", Config::file(found.string()));
  }
  return file;
}

double growth(const std::string& rule, double factor) {
  if (rule == "linear") return factor;
  return rule == "sqrt" ? std::sqrt(factor) : 1.0;
}

}  // namespace

// A batch is dealt as evenly as its row groups allow (StepRows). batch_per_rank is the rows of each worker, so it must
// be whole groups.
int64_t Settings::step_rows() const {
  const int64_t ranks = computing_ranks(), group = model.row_group, each = data.batch_per_rank;
  if (each == 0) return data.batch;
  const bool even = parallel.shares.empty() && !parallel.measure_shares && ranks > 1;
  if (even && !facts_of(parallel.strategy).shares_rows && each % group != 0) {
    const int64_t below = each / group * group;
    fail("batch_per_rank ", each, " cannot be dealt in groups of ", group, " rows (batch_norm's 'rows'); use ",
         below > 0 ? concat(below, " or ") : "", below + group, ", --shares, fewer workers, or smaller groups");
  }
  return each * ranks;
}

PlanRequest Settings::plan_request() const {
  PlanRequest request{parallel.workers, parallel.strategy, parallel.dense_update, step_rows(), parallel.bucket_bytes};
  request.model_ranks = parallel.model_ranks;
  request.split = parallel.split;
  request.bf16_transport = parallel.bf16_transport;
  request.shares = parallel.shares;
  request.speeds = parallel.speeds;
  request.average_every = parallel.average_every;
  request.average_from = parallel.average_from;
  request.norm_sums = optimizer.norm_sums();
  request.ema_every = ema.on() ? ema.every : 0;
  request.lookahead = ema.lookahead;
  request.optimizer_states = static_cast<int>(optimizer.states().size());
  request.options = parallel.options;
  request.slices = data.accumulate;
  request.loss = loss;
  if (run.update_beside != "auto") request.beside_from = run.update_beside == "on" ? 1 : kNeverBeside;
  request.on.precision = run.precision;
  if (run.canonical) request.on.canonical_rows = canonical_rows(step_rows());
  if (run.device == "cuda") request.on.device = Device::kCuda;  // planned for, even if this machine has no GPU
  const int64_t value_bytes = size_of(activation_type(run.precision));
  const BatchMemory batches =
      memory_beside_images(data.augment, data.image, model.input, value_bytes, data.targets ? model.classes : 0);
  request.batch_row_bytes = batches.row_bytes;
  request.batch_bytes = batches.bytes;
  request.mirror_every = elastic.on ? elastic.mirror_every : 0;
  return request;
}

Compute Settings::compute() const {
  Compute on{device_from(run.device), run.precision};
  on.deterministic = run.deterministic;
  if (run.canonical) on.canonical_rows = canonical_rows(step_rows());
  if (on.device == Device::kCpu && on.precision == Precision::kTf32)
    fail("precision '", name_of(on.precision), "' is for GPUs, and the device is the CPU",
         run.device == "cpu" ? "" : concat(" (", find_gpus().why_none, ")"), "; use --precision fp32");
  return on;
}

Plan Settings::plan_to_run() const {
  PlanRequest request = plan_request();
  request.on = compute();
  const Plan plan = make_plan(model, request);
  if (acting_strategy(plan).cpu_only && plan.request.on.device != Device::kCpu)
    fail("strategy '", name_of(request.strategy), "' works on the CPU only; add --device cpu, or use dp");
  return plan;
}

// The scaling of the original number of workers stays in the rate.
Settings Settings::without_workers(int lost) const {
  Settings left = *this;
  left.data.batch = step_rows();
  left.data.batch_per_rank = 0;
  left.parallel.workers -= lost;
  const auto scale = [](const Settings& of) { return growth(of.parallel.scale_lr, of.computing_ranks()); };
  left.optimizer.learning_rate *= scale(*this) / scale(left);
  return left;
}

double Settings::front_rate_scale(const Plan& plan) const { return growth(parallel.scale_lr, plan.computing_ranks()); }

double Settings::back_rate_scale(const Plan& plan) const {
  return growth(parallel.scale_lr, plan.computing_ranks() / static_cast<double>(back_updates(plan)));
}

std::string recipe_name(const std::string& file) { return std::filesystem::path(file).stem().string(); }

Settings read_settings(const std::string& path, const Overrides& overrides) {
  return read_settings(Config::file(path), path, overrides);
}

Overrides changes_without_data(const std::string& path) {
  const std::map<std::string, std::string> values = values_of(Config::file(path).table(kWithoutData));
  return {values.begin(), values.end()};
}

Settings read_settings(Config file, const std::string& path, const Overrides& overrides) {
  std::optional<std::string> model;
  for (const auto& [key, value] : overrides)
    if (key == "model") model = value;
  Config recipe = whole_recipe(std::move(file), path, model);
  if (recipe.is_table(kWithoutData)) recipe.set(kWithoutData, "");
  for (const auto& [key, value] : overrides)
    if (key != "model") recipe.set(key, value);
  return settings_from(recipe, recipe_name(path));
}

}  // namespace owt
