#include <algorithm>
#include <charconv>
#include <filesystem>

#include "src/comm/launch.h"
#include "src/core/log.h"
#include "src/train/files/checkpoint_files.h"
#include "tools/commands.h"
#include "tools/recipes.h"

namespace owt {
namespace {

std::string listed(const std::vector<std::string>& words) {  // "a, b or c"
  std::string text = words.front();
  for (size_t i = 1; i < words.size(); ++i) text += (i + 1 < words.size() ? ", " : " or ") + words[i];
  return text;
}

namespace fs = std::filesystem;

// Where a folder that is no run folder has a recipe's name, the recipe is meant.
bool is_other_folder(const std::string& path) {
  if (!fs::is_directory(path)) return false;
  const std::vector<NamedRecipe> recipes = named_recipes();
  return std::none_of(recipes.begin(), recipes.end(), [&](const NamedRecipe& r) { return r.name == path; });
}

const std::string& checked_strategy(const std::string& name) {
  if (name != "auto") read_option("parallel", [&] { return strategy_from(name); });
  return name;
}

// As TOML. What the numbers may be is the recipe's to say.
std::string checked_shares(const Options& options) {
  for (const char* word : {"equal", "measured"})
    if (options.string("shares") == word) return word;
  std::string array;
  for (const double share : numbers_option(options, "shares", ", or measured or equal"))
    array += format("{}{}", array.empty() ? "[" : ", ", share);
  return array + "]";
}

}  // namespace

std::string config_file(const std::string& config) {
  const bool is_checkpoint = fs::is_regular_file(fs::path(config) / "state.json");  // RUN/checkpoints/step-...
  const fs::path of_run = fs::path(config) / (is_checkpoint ? "../.." : "") / kRunConfig;
  if (fs::is_regular_file(of_run)) return of_run.string();
  if (is_other_folder(config)) fail(config, " is no run folder: it holds no ", kRunConfig, "; name a recipe or a run");
  return find_recipe(config);
}

// Who means the recipe that a run folder's name hides is told so.
void tell_of_hidden_recipe(const std::string& config, const std::string& file) {
  for (const NamedRecipe& recipe : named_recipes())
    if (recipe.name == config && file == (fs::path(config) / kRunConfig).string())
      log_info("{} is the run folder here; the recipe of that name is {}", config, recipe.file);
}

void declare_shared(Options& options) {
  options.option(
      "workers", "K",
      "ranks, as threads of this process (default: the recipe's, else 1); under mpirun or srun every process is "
      "one, and this is their number");
  declare_device(options);
}

void declare_device(Options& options) {
  options.option("device", "NAME",
                 "cpu | cuda | auto: cuda where there is a GPU (default: the recipe's run.device, else auto)");
  options.option("precision", "NAME", "fp32 | tf32 (on GPUs) | bf16 (default: the recipe's run.precision, else fp32)");
  options.option(
      "threads", "T", "0",
      "compute threads of all workers of this host together; 0: $OMP_NUM_THREADS for each process, else all cores");
  declare_changes(options);
}

void declare_changes(Options& options) {
  options.repeated("set", "KEY=VALUE", "change a key of the recipe, e.g. --set data.batch=64; KEY= takes it out");
}

void declare_shares(Options& options) {
  options.option(
      "shares", "LIST",
      "2,1,1 (a positive number for each worker): the rows of a step are dealt to the workers in proportion; "
      "or measured: to how fast each computes at the start; or equal: as many for each (default: the recipe's, else "
      "equal)");
}

void declare_strategy(Options& options) {
  options.option(
      "parallel", "NAME",
      concat(strategy_list(), " | auto: the one with the least predicted step time (default: the recipe's, else ",
             name_of(kDefaultStrategy), ")"));
  declare_shares(options);
}

void declare_length(Options& options) {
  options.option("epochs", "N", "length of the run (schedule.epochs)");
  options.option("steps", "N",
                 "end after this many steps (schedule.max_steps); where there are epochs, the schedule stays theirs");
  options.option("seed", "S", "of weights, order, augmentation and dropout (run.seed)");
}

Overrides length_changes(const Options& options) {
  Overrides changes;
  if (options.given("epochs")) {
    options.number("epochs", {.low = 0});
    changes.emplace_back("schedule.epochs", options.string("epochs"));
  }
  if (options.given("steps"))
    changes.emplace_back("schedule.max_steps", std::to_string(options.integer("steps", {.low = 1})));
  if (options.given("seed")) changes.emplace_back("run.seed", std::to_string(options.integer("seed", {.low = 0})));
  return changes;
}

Overrides shared_overrides(const Options& options, const Overrides& more) {
  Overrides overrides;
  const auto choice = [&](const std::string& name, const std::string& key, const std::vector<std::string>& words) {
    if (!options.declares(name) || !options.given(name)) return;
    const std::string word = options.string(name);
    if (std::find(words.begin(), words.end(), word) == words.end())
      throw UsageError("--" + name + " " + word + ": wanted " + listed(words));
    overrides.emplace_back(key, word);
  };
  for (const std::string& change : options.list("set")) {
    const size_t equals = change.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--set " + change + ": wanted KEY=VALUE, e.g. --set schedule.epochs=3");
    overrides.emplace_back(change.substr(0, equals), change.substr(equals + 1));
  }
  choice("device", "run.device", {"cpu", "cuda", "auto"});
  choice("precision", "run.precision", {"fp32", "tf32", "bf16"});
  if (options.declares("workers") && options.given("workers"))
    overrides.emplace_back("parallel.workers", std::to_string(options.integer("workers", {.low = 1, .high = 4096})));
  else if (launch().several())
    overrides.emplace_back("parallel.workers", std::to_string(launch().ranks));
  if (options.declares("shares") && options.given("shares"))
    overrides.emplace_back("parallel.shares", checked_shares(options));
  if (options.declares("parallel"))
    for (const std::string& name : options.list("parallel"))
      overrides.emplace_back("parallel.strategy", checked_strategy(name));
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

Settings shared_settings(const Options& options, const Overrides& more) {
  const Overrides overrides = shared_overrides(options, more);
  const std::string file = config_file(options.string("CONFIG"));
  tell_of_hidden_recipe(options.string("CONFIG"), file);
  return read_settings(file, overrides);
}

Overrides changes_to_evaluate(const Options& options) {
  Config recipe = Config::file(config_file(options.string("CONFIG")));
  const int64_t its = recipe.has("parallel") ? recipe.table("parallel").integer("workers", 1) : 1;
  const int64_t others = launch().several() ? launch().ranks : its;
  const int64_t asked = options.given("workers") ? options.integer("workers", {.low = 1, .high = 4096}) : others;
  if (asked == its) return {};
  Overrides changes;
  std::vector<std::string> left_out;
  const auto leave_out = [&](const char* table, const char* key, const char* instead = "") {
    const std::string name = concat(table, ".", key);
    const std::vector<std::string> set = options.list("set");
    if (std::any_of(set.begin(), set.end(), [&](auto& word) { return word.starts_with(name + "="); })) return;
    if (!recipe.is_table(table) || !recipe.table(table).has(key)) return;
    changes.emplace_back(name, instead);
    left_out.push_back(name);
  };
  if (!options.given("shares")) leave_out("parallel", "shares");
  leave_out("parallel", "model_ranks");
  leave_out("ps", "servers");
  leave_out("ps", "tolerate_loss");
  leave_out("pipeline", "stages");
  const bool staged = recipe.is_table("parallel") && recipe.table("parallel").is_string("strategy") &&
                      recipe.table("parallel").string("strategy") == name_of(Strategy::kPipeline);
  if (staged && !options.given("parallel")) leave_out("parallel", "strategy", name_of(kPlainDataParallel));
  if (!left_out.empty())
    log_info("the recipe is for {} workers; left out, as no figure depends on it: {}", its, joined(left_out));
  return changes;
}

void declare_trained(Options& options) {
  options.positional("CONFIG", concat("a run folder, or the recipe: ", kFileOrName));
  options.option(
      "weights", "FILE",
      "safetensors file with the model's weights, or a run or checkpoint folder (default: where CONFIG is a "
      "run folder or its config.toml, those of the checkpoint with the best top-1 in training, or of the newest "
      "where none was evaluated; averaged ones where it has some)");
  options.option("data", "DIR", "the data set (default: the recipe's data.dir, else $OWT_DATA, else ./datasets)");
}

std::string run_folder_of(const Options& options) {
  const fs::path config = options.string("CONFIG");
  const fs::path folder = fs::is_directory(config) ? config : config.parent_path();
  return config_file(config.string()) == (folder / kRunConfig).string() ? (folder.empty() ? "." : folder.string()) : "";
}

std::string weights_option(const Options& options) {
  const std::string given = options.string("weights");
  if (!fs::is_directory(given)) return given;
  const bool is_checkpoint = fs::is_regular_file(fs::path(given) / "state.json");
  const auto checkpoint = is_checkpoint ? given : best_checkpoint(given).value_or("");
  if (checkpoint.empty()) fail("--weights ", given, ": the folder is no checkpoint and no run with one");
  return trained_weights_of(checkpoint);
}

std::string trained_weights(const Options& options) {
  if (options.given("weights")) return weights_option(options);
  const std::string run = run_folder_of(options);
  const auto best = run.empty() ? std::optional<std::string>() : best_checkpoint(run);
  if (!best)
    throw UsageError(
        concat("--weights FILE is missing, and ", options.string("CONFIG"), " is no run folder with checkpoints"));
  const std::string file = trained_weights_of(*best);
  log_info("with the {}weights of {}", fs::path(file).filename() == kEmaFile ? "averaged " : "", *best);
  return file;
}

void check_two_files(const Options& options, const std::string& a, const std::string& b) {
  if (!options.given(a) || !options.given(b)) return;
  const auto file = [&](const std::string& name) { return fs::weakly_canonical(fs::absolute(options.string(name))); };
  if (file(a) == file(b))
    throw UsageError(concat("--", a, " and --", b, " name the same file, ", options.string(a), "; name two"));
}

DeviceSpeed gpu_option(const Options& options) {
  return read_option("gpu", [&] { return device_speed(options.string("gpu")); });
}

std::vector<double> numbers_option(const Options& options, const std::string& name, const std::string& otherwise) {
  const std::string text = options.string(name);
  std::vector<double> numbers;
  for (const char *at = text.data(), *const end = at + text.size();; ++at) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (stop != end && *stop != ','))
      throw UsageError(concat("--", name, " ", text, ": wanted numbers, as 2,1,1", otherwise));
    numbers.push_back(number);
    if ((at = stop) == end) return numbers;
  }
}

std::string given_data(const Options& options) { return options.given("data") ? options.string("data") : ""; }

void declare_views(Options& options) {
  options.option("views", "N", "1",
                 "1 to 10 views of each image, whose probabilities are averaged: the centre, then the corners from the "
                 "upper left to the lower right, then these five mirrored (Krizhevsky et al. 2012: 10); or mirror: the "
                 "image and its mirror image, whose logits are averaged; or shift: these two with weight 1/2, and the "
                 "same a pixel up and left and a pixel down and right with 1/4 each (airbench, tta = 2)");
}

Views views_option(const Options& options, const Settings& settings) {
  const std::string views = options.string("views");
  if (views == "mirror") return Views::mirror();
  if (views != "shift" && views.find_first_not_of("0123456789") != std::string::npos)
    throw UsageError("--views " + views + ": wanted 1 to 10, mirror or shift");
  if (views != "shift") return Views(static_cast<int>(options.integer("views", {.low = 1, .high = kMostViews})));
  if (settings.data.format == "shards")
    throw UsageError(
        "--views shift is for images that are all of one size, and shards hold photographs; take --views 10");
  return Views::shift();
}

void declare_split(Options& options) {
  options.option("split", "NAME", "test",
                 "test | val | train; val: the training images that data.validation holds out of the others; all are "
                 "seen as test images are");
}

Split split_option(const Options& options, const Settings& settings) {
  const std::string name = options.string("split");
  for (const Split split : {Split::kTest, Split::kValidation, Split::kTrain}) {
    if (name != name_of(split)) continue;
    if (split == Split::kValidation && settings.data.validation == 0)
      throw UsageError(concat("--split val: ", options.string("CONFIG"),
                              " holds no validation images out; train with data.validation, e.g. --set "
                              "data.validation=0.1, or take another split",
                              settings.data.format == "shards" ? " (the folder val of shards is --split test)" : ""));
    return split;
  }
  throw UsageError("--split " + name + ": wanted test, val or train");
}

int shared_threads(const Options& options) {
  return static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
}

}  // namespace owt
