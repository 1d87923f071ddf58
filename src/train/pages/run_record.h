// A run as its folder tells of it, for people to look at: whatever file is missing or damaged is left out and named.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/train/files/run_state.h"
#include "src/train/pages/csv_table.h"
#include "src/train/pages/metrics_reader.h"

namespace owt {

struct RunRecord {
  std::string name;  // of the folder
  std::string folder;
  std::vector<std::pair<std::string, std::string>> settings{};  // of the whole recipe: "data.batch", "128"
  Metrics metrics{};
  CsvTable times{};                  // timing.csv
  std::string checkpoint{};          // folder of the newest; empty: none
  std::optional<RunState> state{};   // its state
  bool running = false;              // a process of this machine is at it
  std::vector<std::string> wrong{};  // what could not be read, and why
};

// A run folder that is read again while the run goes on.
class RunReader {
 public:
  // Throws Error where the folder holds no run: neither config.toml nor metrics.jsonl.
  explicit RunReader(const std::string& folder);

  // Looks at the files once more. True: something has changed. Of a folder that is not there any more what was read
  // stays.
  bool read();
  RunRecord record() const;  // with the metrics read so far

 private:
  void read_facts();
  void note_doubt(const std::string& doubt);

  RunRecord facts_;
  MetricsReader metrics_;
  std::string doubt_;  // which checkpoint is the newest
  bool gone_ = false;
};

// Throws Error where nothing of it can be read.
RunRecord read_run(const std::string& folder);

// Names by which the runs can be told apart: of their folders, as much of the paths as that takes.
void tell_apart(std::vector<RunRecord>& runs);

}  // namespace owt
