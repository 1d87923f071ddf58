#include <algorithm>
#include <charconv>
#include <filesystem>

#include "src/comm/launch.h"
#include "src/files/checkpoint_files.h"
#include "src/system/log.h"
#include "src/train/job.h"
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

// If a folder that is no run folder has the name of a recipe, the recipe is used.
bool is_other_folder(const std::string& path) {
  if (!fs::is_directory(path)) return false;
  const std::vector<NamedRecipe> recipes = named_recipes();
  return std::none_of(recipes.begin(), recipes.end(), [&](const NamedRecipe& r) { return r.name == path; });
}

const std::string& checked_strategy(const std::string& name) {
  if (name != "auto") read_option("parallel", [&] { return strategy_from(name); });
  return name;
}

// The shares in TOML. The recipe checks the numbers.
std::string checked_shares(const Options& options) {
  for (const char* word : {"equal", "measured"})
    if (options.string("shares") == word) return word;
  std::string array;
  for (const double share : numbers_option(options, "shares", ", or measured or equal"))
    array += format("{}{}", array.empty() ? "[" : ", ", share);
  return array + "]";
}

}  // namespace

std::string config_file(const std::string& given) {
  const std::string config = with_latest(given);
  const fs::path of_run = fs::path(config) / (is_checkpoint(config) ? "../.." : "") / kRunConfig;
  if (fs::is_regular_file(of_run)) return of_run.string();
  if (is_other_folder(config)) fail(config, " is not a run folder: it has no ", kRunConfig, "; name a recipe or a run");
  return find_recipe(config);
}

void tell_of_hidden_recipe(const std::string& config, const std::string& file) {
  for (const NamedRecipe& recipe : named_recipes())
    if (recipe.name == config && file == (fs::path(config) / kRunConfig).string())
      log_info("{} means the run folder of that name; the recipe of that name is {}", config, recipe.file);
}

namespace {

void declare_workers(Options& options) {
  options.option("workers", "K",
                 "number of workers, as threads of this process (default: the recipe's, else 1); under mpirun, srun or "
                 "owt launch every process is a worker, and K must be their number");
}

void declare_precision(Options& options) {
  options.option("device", "NAME",
                 "cpu | cuda | auto: cuda if there is a GPU (default: the recipe's run.device, else auto)");
  options.option("precision", "NAME",
                 "fp32 | tf32 | bf16; tf32 is for GPUs (default: the recipe's run.precision, else fp32)");
}

}  // namespace

void declare_planned(Options& options) {
  declare_workers(options);
  declare_precision(options);
  declare_changes(options);
}

void declare_shared(Options& options) {
  declare_workers(options);
  declare_device(options);
}

void declare_device(Options& options) {
  declare_precision(options);
  options.option(
      "threads", "T", "0",
      "compute threads of this host, shared by its workers; 0: $OMP_NUM_THREADS for each process, else all cores");
  declare_changes(options);
}

void declare_changes(Options& options) {
  options.repeated("set", "KEY=VALUE", "change a key of the recipe, e.g. --set data.batch=64; KEY= removes it");
}

void declare_json(Options& options) { options.flag("json", "print the result as JSON instead"); }

void declare_shares(Options& options) {
  options.option(
      "shares", "LIST",
      "rows of a step for each worker: 2,1,1: in proportion to these positive numbers, one per worker; measured: in "
      "proportion to each worker's speed at the start; equal: evenly (default: the recipe's, else equal)");
}

void declare_strategy(Options& options) {
  options.option(
      "parallel", "NAME",
      concat(strategy_list(), " | auto: the strategy with the shortest predicted step (default: the recipe's, else ",
             name_of(kDefaultStrategy), ")"));
  declare_shares(options);
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
    const std::string key = change.substr(0, equals), value = change.substr(equals + 1);
    overrides.emplace_back(key, key == "model" && !value.empty() ? find_model(value) : value);
  }
  choice("device", "run.device", {"cpu", "cuda", "auto"});
  choice("precision", "run.precision", {"fp32", "tf32", "bf16"});
  if (options.declares("workers") && options.given("workers"))
    overrides.emplace_back("parallel.workers", std::to_string(options.integer("workers", {.low = 1, .high = 4096})));
  else if (launch().several() || launch().changes())
    overrides.emplace_back("parallel.workers", std::to_string(launch().ranks));
  if (options.declares("shares") && options.given("shares"))
    overrides.emplace_back("parallel.shares", checked_shares(options));
  if (options.declares("parallel"))
    for (const std::string& name : options.list("parallel"))
      overrides.emplace_back("parallel.strategy", checked_strategy(name));
  for (const Overrides& changes : {key_changes(options), more})
    overrides.insert(overrides.end(), changes.begin(), changes.end());
  return overrides;
}

std::string recipe_for_data(const Options& options, const std::string& file, const Overrides& overrides) {
  if (!options.declares("data") || !options.given("data") || !is_model_file(file)) return file;
  for (const auto& [key, value] : overrides)
    if (key == "data.format") return file;
  const std::vector<NamedRecipe> recipes = recipes_of_model(file);
  if (recipes.size() == 1) {
    log_info("{} is a model; its recipe is {}", options.string("CONFIG"), recipes.front().file);
    return recipes.front().file;
  }
  std::string names;
  for (const NamedRecipe& recipe : recipes) names += (names.empty() ? "" : ", ") + recipe.name;
  const std::string model = options.string("CONFIG"), data = options.string("data");
  if (!recipes.empty()) fail(model, " is a model, and several recipes are for it: ", names, "; name one of them");
  fail(model, " is a model, which does not say how to read --data ", data, " and how to train: name a recipe and give ",
       "it this model, e.g. imagenet_resnet18 --set model=", model, " --data ", data, " (owt recipes lists them)");
}

Settings shared_settings(const Options& options, const Overrides& more) {
  const Overrides overrides = shared_overrides(options, more);
  const std::string file = recipe_for_data(options, config_file(options.string("CONFIG")), overrides);
  tell_of_hidden_recipe(options.string("CONFIG"), file);
  const Config recipe = Config::file(file);
  return read_settings(recipe, file, with_consequences(options, recipe, overrides));
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
    log_info("the recipe is for {} workers; ignored, because no result depends on it: {}", its, joined(left_out));
  return changes;
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

std::string given_data(const Options& options, const Settings& settings) {
  if (!options.given("data")) return "";
  if (settings.data.format == "synthetic")
    throw UsageError(concat("--data ", options.string("data"),
                            " is not read: ", options.given("CONFIG") ? options.string("CONFIG") : "the recipe",
                            " draws its images (data.format is \"synthetic\"); leave it out, or take a recipe that "
                            "reads data"));
  return options.string("data");
}

Overrides with_classes(const Options& options, Overrides changes) {
  if (options.given("classes")) changes.emplace_back("data.classes", checked_classes(options));
  return changes;
}

std::string checked_classes(const Options& options) {
  const std::string word = options.string("classes");
  const bool may_be_data = options.declares("steps");  // true for commands that train
  if (word != "number" && !(word == "data" && may_be_data))
    throw UsageError(concat("--classes ", word, ": wanted ", may_be_data ? "data or number" : "number"));
  return word;
}

void tell_of_drawn_images(const Options& options, const Settings& settings) {
  if (!options.given("CONFIG")) return;
  const std::string config = options.string("CONFIG");
  if (launch().rank == 0 && settings.data.format == "synthetic" && is_model_file(config_file(config)))
    log_info("{} is a model and names no data: training on {} images that are drawn; --data DIR takes yours", config,
             settings.data.train_images);
}

void declare_classes(Options& options, ClassesOf use) {
  const std::string number =
      "number: label i means output i, whatever the classes are called; the data may have fewer classes than the model";
  const char* const otherwise =
      " (default: labels are matched by the class names that the run recorded; without them the data must have as many "
      "classes as the model)";
  if (use == ClassesOf::kTraining)
    options.option("classes", "data|number",
                   concat("data: the model gets the classes of the data; its last layer gets as many outputs, ",
                          "with random weights; ", number, otherwise));
  else
    options.option("classes", "number", concat(number, otherwise));
}

int shared_threads(const Options& options) {
  return static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
}

void declare_image_workers(Options& options) {
  options.option("workers", "K", "1",
                 "number of workers, as threads of this process, each with a copy of the network and a part of the "
                 "images; the output is the same for every K");
}

int image_workers(const Options& options) {
  const auto workers = static_cast<int>(options.integer("workers", {.low = 1, .high = 4096}));
  if (workers > 1 && launch().several())
    throw UsageError(concat("--workers ", workers, ": these workers are threads of one process, and ", launch().by,
                            " has started ", launch().ranks, "; start one process"));
  return workers;
}

}  // namespace owt
