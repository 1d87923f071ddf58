#include "src/commands/run_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "src/commands/run_place.h"
#include "src/roster/membership.h"
#include "src/system/config_values.h"
#include "src/system/kept_files.h"
#include "src/system/log.h"
#include "src/train/data_facts.h"
#include "src/train/metrics.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Where workers change, rank 0 of the world before may be ending.
constexpr auto kPatienceWithRankBefore = std::chrono::seconds(8);
constexpr auto kTryLockAgain = std::chrono::milliseconds(20);

std::string file_in(const std::string& folder, const char* name) { return (fs::path(folder) / name).string(); }

// Checks the closest existing parent of a folder that must be created.
void check_can_be_written(const std::string& folder) {
  std::error_code none;
  fs::path there = fs::absolute(folder).lexically_normal();
  while (!fs::exists(there, none) && there.has_relative_path()) there = there.parent_path();
  if (!writable_folder(there.string()))
    fail("cannot write to the run folder ", folder, ": ", there.string(),
         fs::is_directory(there, none) ? " cannot be written to" : " is no folder", "; choose another --out");
}

std::optional<Config> recipe_in(const std::string& folder) {
  const std::string path = file_in(folder, "config.toml");
  if (!fs::is_regular_file(path)) return {};
  try {
    return Config::file(path);
  } catch (const Error& e) {
    log_warn("{}; changes of the recipe since then are unknown", e.what());
    return {};
  }
}

// The folder of the run that the job resumes, or begins anew, if it has one.
std::string folder_before(const Job& job) {
  if (!job.resumes()) return holds_run(job.run_folder) ? job.run_folder : "";
  return job.same_run ? job.run_folder : run_folder_of_checkpoint(job.resume_checkpoint).value_or("");
}

// Without a checkpoint, only the recipe shows which run the folder belongs to.
void check_same_model(const std::optional<Config>& before, const Job& job) {
  if (!before)
    fail("the run folder ", job.run_folder, " holds a log, no checkpoint and no recipe that shows which run it is; ",
         "choose another --out, or remove it");
  for (const std::string& change : differences(*before, job.settings.recipe))
    if (change.starts_with("model.") || change.starts_with("data.format"))
      fail("the run folder ", job.run_folder, " holds the log of another run (", change,
           "), which has no checkpoint; choose another --out, or remove it");
}

}  // namespace

std::vector<std::string> differences(const Config& before, const Config& now) {
  const auto old_values = values_of(before), new_values = values_of(now);
  std::set<std::string> keys;
  for (const auto* values : {&old_values, &new_values})
    for (const auto& [key, value] : *values) keys.insert(key);
  const auto value_in = [](const std::map<std::string, std::string>& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("none") : found->second;
  };
  std::vector<std::string> changes;
  for (const std::string& key : keys)
    if (const std::string from = value_in(old_values, key), to = value_in(new_values, key); from != to)
      changes.push_back(concat(key, ": ", from, " -> ", to));
  return changes;
}

RunFolder::RunFolder(const Job& job)
    : folder_(job.run_folder),
      had_run_(holds_run(job.run_folder)),
      patience_(job.continues ? kPatienceWithRankBefore : std::chrono::seconds(0)) {
  check_can_be_written(folder_);
  if (fs::exists(file_in(folder_, "log.txt"))) lock();
  check_metrics(file_in(folder_, "metrics.jsonl"));
  if (const std::string before = folder_before(job); !before.empty()) before_ = recipe_in(before);
  if (!job.resumes() && had_run_) check_same_model(before_, job);
}

void RunFolder::lock() {
  const std::string file = file_in(folder_, "log.txt");
  lock_ = std::make_unique<FileLock>(file);
  for (const auto end = Clock::now() + patience_; lock_->held_by_another() && Clock::now() < end;) {
    std::this_thread::sleep_for(kTryLockAgain);
    lock_ = std::make_unique<FileLock>(file);
  }
  if (lock_->held_by_another())
    fail("another run is writing to the run folder ", folder_, "; wait until it has ended, or choose another --out");
}

void RunFolder::log_changes(const Job& job) const {
  if (!before_) return;
  std::vector<std::string> changes = differences(*before_, job.settings.recipe);
  // What follows from other workers is logged with the plan.
  if (job.continues) std::erase_if(changes, [](const std::string& change) { return change.starts_with("parallel."); });
  if (changes.empty()) return;
  log_info("the recipe has changed since the run started:");
  for (const std::string& change : changes) log_info("  {}", change);
}

void RunFolder::open(const Job& job, bool steps_are_left) {
  std::error_code code;
  fs::create_directories(folder_, code);
  if (code) fail("cannot make the run folder ", folder_, ": ", code.message(), "; choose another --out");
  if (!lock_) {
    lock();
    if (!had_run_ && holds_run(folder_))
      fail("another run has begun in the run folder ", folder_, " meanwhile; choose another --out");
  }
  if (steps_are_left) write_recipe(job);
  if (job.memory)
    write_file_atomically(file_in(folder_, kRosterFile), run_address().text() + '\n');
  else
    fs::remove(file_in(folder_, kRosterFile), code);
  log_to_file(file_in(folder_, "log.txt"));  // last, so a folder with a log has a recipe
}

void RunFolder::write_recipe(const Job& job) const {
  const auto there = recipe_in(folder_);
  if (job.continues) {  // only the division of work has changed
    write_file_atomically(file_in(folder_, "config.toml"), job.settings.recipe.to_toml());
  } else if (!there || !differences(*there, job.settings.recipe).empty()) {
    const std::string kept = write_keeping_old(file_in(folder_, "config.toml"), job.settings.recipe.to_toml());
    if (!kept.empty()) log_info("the previous recipe is kept as {}", kept);
  }
  if (job.train) write_data_facts(folder_, {job.statistics, job.class_lines});
}

}  // namespace owt
