// A run as its folder describes it, for display. Files that are missing or damaged are left out and listed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/files/run_state.h"
#include "src/files/verification_record.h"
#include "src/report/pages/metrics_reader.h"
#include "src/system/csv.h"

namespace owt {

struct RunRecord {
  std::string name;  // name of the folder
  std::string folder;
  std::vector<std::pair<std::string, std::string>> settings{};  // the whole recipe: "data.batch", "128"
  Metrics metrics{};
  CsvTable times{};                                 // timing.csv
  std::vector<VerificationRecord> verifications{};  // what owt verify found
  std::string checkpoint{};                         // folder of the latest checkpoint; empty: none
  std::optional<RunState> state{};                  // state of that checkpoint
  bool running = false;                             // a process of this machine is running it
  int64_t changed = 0;                              // last change of metrics.jsonl, seconds since 1970; 0: unknown
  std::vector<std::string> wrong{};                 // what could not be read, and why
};

bool has_run_files(const std::string& folder);  // it contains config.toml or metrics.jsonl

// Reads a run folder repeatedly while the run continues.
class RunReader {
 public:
  // Throws Error if the folder contains no run: neither config.toml nor metrics.jsonl.
  explicit RunReader(const std::string& folder);

  // Checks the files again; true: something has changed. If the folder no longer exists, earlier data is kept.
  bool read();
  RunRecord record() const;  // includes the metrics read so far

 private:
  void read_facts();
  void note_doubt(const std::string& doubt);

  RunRecord facts_;
  MetricsReader metrics_;
  std::string doubt_;                           // about which checkpoint is the latest
  std::filesystem::file_time_type verified_{};  // last change of the folder of verifications
  bool gone_ = false;
};

// Throws Error if nothing can be read.
RunRecord read_run(const std::string& folder);

// Gives the runs different names: the end of each folder's path, as long as necessary.
void tell_apart(std::vector<RunRecord>& runs);

}  // namespace owt
