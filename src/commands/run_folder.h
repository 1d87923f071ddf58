// The folder that a run writes. It is not created or changed before the run can begin.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/system/config.h"
#include "src/system/files.h"
#include "src/train/job.h"

namespace owt {

constexpr const char* kRosterFile = "roster";  // where the run's roster is: RunAddress::text() and a newline

class RunFolder {
 public:
  // Runs on rank 0. Throws Error if the folder cannot be written, if another run is writing to it, or if its metrics
  // are damaged. Also throws if it contains a run without a checkpoint that has another model or data format.
  explicit RunFolder(const Job& job);

  // Logs the differences between the recipe and the resumed run's recipe.
  void log_changes(const Job& job) const;
  // Creates the folder and log.txt, and where workers may change kRosterFile. If steps are left, writes config.toml and
  // the facts of the data; earlier versions of these files are kept beside them. No other process writes to the folder
  // during the lifetime of this object.
  void open(const Job& job, bool steps_are_left);

 private:
  void lock();
  void write_recipe(const Job& job) const;

  std::string folder_;
  bool had_run_;                   // at the start of the command
  std::optional<Config> before_;   // recipe of the resumed run
  std::chrono::seconds patience_;  // with another process that has the folder
  std::unique_ptr<FileLock> lock_;
};

// "data.batch: 12 -> 24" for every key whose value differs; "none" stands for a missing key.
std::vector<std::string> differences(const Config& before, const Config& now);

}  // namespace owt
