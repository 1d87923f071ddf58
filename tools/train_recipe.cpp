#include "tools/train_recipe.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "data/cifar.h"
#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/commands/run_place.h"
#include "src/files/checkpoint_files.h"
#include "src/system/config_values.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/texts.h"
#include "src/train/job.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

// A run whose recipe is needed, as rank 0 sees it.
struct RunAsked {
  std::string folder;      // empty: none
  bool is_config = false;  // CONFIG is this run, so its recipe is used
  std::string recipe;      // the text of its config.toml; empty: none
};

// The run folder of a run or a checkpoint; empty: a checkpoint outside of a run folder.
std::string run_of(const std::string& named) {
  return is_checkpoint(named) ? run_folder_of_checkpoint(named).value_or("") : named;
}

// The run of CONFIG, which may be its folder, a checkpoint in it, or its config.toml.
std::string run_named_by(const std::string& config) {
  const fs::path file = config_file(config);
  if (file.filename() != kRunConfig) return "";
  if (fs::is_directory(config)) return run_of(config);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  return holds_run(folder) ? folder : "";
}

std::string recipe_text(const std::string& folder) {
  const fs::path file = fs::path(folder) / kRunConfig;
  return !folder.empty() && fs::is_regular_file(file) ? read_file(file.string()) : "";
}

RunAsked find_run(const std::string& config, const std::string& resume, const std::string& out) {
  RunAsked run;
  run.folder = config.empty() ? run_of(resume) : run_named_by(config);
  run.is_config = config.empty() || !run.folder.empty();
  if (resume == "auto" && !config.empty() && fs::is_directory(config) && is_checkpoint(config))
    fail("CONFIG is the checkpoint ", config, ", but auto resumes from the newest; give --resume ", config);
  if (run.is_config) {
    run.recipe = recipe_text(run.folder);
    if (config.empty() && !fs::exists(resume)) fail("--resume ", resume, ": there is no such run or checkpoint folder");
    if (run.recipe.empty())
      fail(config.empty() ? resume : config, " is not in a run folder with a ", kRunConfig,
           "; name the recipe as CONFIG");
    return run;
  }
  if (resume.empty()) return run;
  run.folder = resume == "auto" ? out : run_of(resume);
  if (run.folder.empty() && resume == "auto") run.folder = default_run_folder(recipe_name(config_file(config)));
  const bool resumes = resume != "auto" || !list_checkpoints(run.folder).empty();
  if (resumes) run.recipe = recipe_text(run.folder);
  return run;
}

// A TOML string without its quotes.
std::string unquoted(const std::string& value) {
  const bool quoted =
      value.size() >= 2 && value.front() == value.back() && (value.front() == '"' || value.front() == '\'');
  return quoted ? value.substr(1, value.size() - 2) : value;
}

bool begins_with_any(const std::string& key, std::initializer_list<const char*> heads) {
  return std::any_of(heads.begin(), heads.end(), [&](const char* head) { return key.starts_with(head); });
}

using Values = std::map<std::string, std::string>;

constexpr const char *kWorkers = "parallel.workers", *kStrategy = "parallel.strategy";

std::string value_in(const Values& values, const std::string& key) {
  const auto found = values.find(key);
  if (found != values.end()) return unquoted(found->second);
  return key == kWorkers ? "1" : key == kStrategy ? name_of(kDefaultStrategy) : "";
}

// Whether the command line, or else the recipe, sets another value than the run's.
bool changes(const std::string& key, const Values& run, const Values& recipe, const Overrides& given) {
  std::string said = recipe.contains(key) ? value_in(recipe, key) : value_in(run, key);
  for (const auto& [other, value] : given)
    if (other == key) said = value;
  return said != value_in(run, key);
}

// Keys whose values do not fit another number of workers.
bool counts_workers(const std::string& key) {
  return key == "parallel.shares" || key == "parallel.model_ranks" || key == "pipeline.stages";
}

// Values of the run that recipe and command line do not set, about the division of work among workers. Values of one
// strategy do not apply to another.
Overrides kept_of_run(const Config& run_config, const Config& recipe, const Overrides& given) {
  const Values run = values_of(run_config), now = values_of(recipe);
  const bool other_strategy = changes(kStrategy, run, now, given), other_workers = changes(kWorkers, run, now, given);
  Overrides kept;
  for (const auto& [key, value] : run) {
    const bool on_line = std::any_of(given.begin(), given.end(), [&](const auto& each) { return each.first == key; });
    if (!begins_with_any(key, {"parallel.", "pipeline.", "ps."}) || on_line || now.contains(key)) continue;
    if (key != kWorkers && other_strategy) continue;
    if (counts_workers(key) && other_workers) continue;
    kept.emplace_back(key, value);
  }
  return kept;
}

// Values of the run's own recipe that are dropped because the command line changes the number of workers.
Overrides left_out_of_run(const Config& run_config, const Overrides& given) {
  const Values run = values_of(run_config);
  Overrides left_out;
  if (!changes(kWorkers, run, run, given)) return left_out;
  for (const auto& [key, value] : run)
    if (counts_workers(key)) left_out.emplace_back(key, "");
  return left_out;
}

std::string listed(const Overrides& changes) {
  std::vector<std::string> words;
  for (const auto& [key, value] : changes) words.push_back(concat(key, " = ", value));
  return joined(words);
}

void tell_of_missing_data(const DataSettings& missing, const std::string& folder, const DataSettings& instead,
                          const Overrides& changes) {
  if (launch().rank > 0) return;
  const CifarKind kind = missing.format == "cifar100" ? CifarKind::k100 : CifarKind::k10;
  log_info("no {} data in {}: training on {} instead ({}){}", missing.format, folder,
           instead.format == "synthetic" ? concat(instead.train_images, " drawn images") : instead.format + " data",
           listed(changes),
           missing.format == "shards" ? "" : concat("; to fetch the data: ", fetch_command(folder, kind)));
}

// A data set that the user names must exist.
Settings settings_of_recipe(const Options& options, const Config& recipe, const std::string& file,
                            const Overrides& given) {
  const Overrides overrides = with_consequences(options, recipe, given);
  const Settings settings = read_settings(file, overrides);
  if (options.given("data") || !settings.data.dir.empty()) return settings;
  const Overrides changes = changes_without_data(file);
  if (changes.empty()) return settings;
  const std::string folder = data_folder(settings.data, "");
  const auto found = [&] { return has_images(settings.data, folder, Split::kTrain) ? "found" : ""; };
  if (!from_rank_0(found).empty()) return settings;
  Overrides both = changes;
  both.insert(both.end(), overrides.begin(), overrides.end());
  Settings instead = read_settings(file, both);
  tell_of_missing_data(settings.data, folder, instead.data, changes);
  return instead;
}

}  // namespace

TrainRecipe train_recipe(const Options& options, const Overrides& changes) {
  const auto text = [&](const char* name) { return options.given(name) ? options.string(name) : std::string(); };
  const std::string resume = with_latest(text("resume")), out = text("out");
  std::string config = with_latest(text("CONFIG"));
  Overrides overrides = shared_overrides(options, changes);
  if (!config.empty() && options.given("data"))
    if (const std::string named = config_file(config), file = recipe_for_data(options, named, overrides); file != named)
      config = file;
  if (config.empty() && (resume.empty() || resume == "auto"))
    throw UsageError(concat("missing CONFIG: a recipe, or a run folder", resume.empty() ? "" : " to resume",
                            "; without it, --resume RUN resumes a run (see 'owt train --help')"));
  const std::vector<std::string> found = unpacked(from_rank_0([&] {
    const RunAsked run = find_run(config, resume, out);
    return packed({run.folder, run.is_config ? "config" : "", run.recipe});
  }));
  const RunAsked run{found.at(0), !found.at(1).empty(), found.at(2)};
  const std::string its_file = (fs::path(run.folder) / kRunConfig).string();
  if (run.is_config) {
    if (!config.empty()) tell_of_hidden_recipe(config, its_file);
    const Overrides left_out = left_out_of_run(Config::text(run.recipe, its_file), overrides);
    overrides.insert(overrides.begin(), left_out.begin(), left_out.end());
    const Config recipe = Config::text(run.recipe, its_file);
    return {read_settings(recipe, its_file, with_consequences(options, recipe, overrides)), run.folder, ""};
  }
  const std::string file = config_file(config);
  const Config recipe = Config::file(file);
  if (run.recipe.empty()) return {settings_of_recipe(options, recipe, file, overrides), "", ""};
  const Overrides kept = kept_of_run(Config::text(run.recipe, its_file), recipe, overrides);
  overrides.insert(overrides.begin(), kept.begin(), kept.end());
  return {settings_of_recipe(options, recipe, file, overrides), "",
          kept.empty()
              ? ""
              : concat("kept from the run, because neither the recipe nor the command line sets them: ", listed(kept))};
}

}  // namespace owt
