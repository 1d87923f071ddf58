// The folder that a run writes: nothing in it changes, and it is not made, before the run can begin.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/config.h"
#include "src/core/files.h"
#include "src/train/job.h"

namespace owt {

class RunFolder {
 public:
  // Of rank 0. Throws Error where the folder cannot be written, where another run is writing there, where its metrics
  // are damaged, and where it holds a run without a checkpoint that has another model or data format.
  explicit RunFolder(const Job& job);

  // Logs in which keys the recipe differs from that of the run that is gone on with.
  void log_changes(const Job& job) const;
  // Makes the folder and log.txt and, if steps are left, writes config.toml and the facts of the data; older versions
  // of these files are kept beside them. Nobody else writes to the folder as long as this lives.
  void open(const Job& job, bool steps_are_left);

 private:
  void lock();
  void write_recipe(const Job& job) const;

  std::string folder_;
  bool had_run_;                  // when the command began
  std::optional<Config> before_;  // the recipe of the run that is gone on with
  std::unique_ptr<FileLock> lock_;
};

// "data.batch: 12 -> 24" for every key whose value is not the same; "none" stands for a key that is not there.
std::vector<std::string> differences(const Config& before, const Config& now);

}  // namespace owt
