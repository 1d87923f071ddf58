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
  // Of rank 0. Throws Error where the folder could not be written, another run is writing there, or one has begun there
  // that is none of this job's model and data.
  explicit RunFolder(const Job& job);

  // Logs in which keys the recipe differs from that of the run that is gone on with.
  void log_changes(const Job& job) const;
  // Makes the folder, log.txt, and, unless nothing is left to do, config.toml and what is known of the data, beside
  // what stood there before. Nobody else writes to the folder as long as this lives.
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
