// The damaged records that a training run has met. Each is reported once, and too many end the run.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

// Shared by the ranks of a process; may be used from many threads. Ranks that are processes have one each, and merge
// them from time to time with news() and merge(), so that each record counts once for the whole run.
class CorruptRecords {
 public:
  enum class Report { kAtOnce, kWhenMerged };

  // most: the maximum number in a run.
  explicit CorruptRecords(int64_t most, Report report = Report::kAtOnce) : most_(most), report_(report) {}

  // Reports a record met for the first time. Throws Error with the cure if that exceeds the maximum.
  void add(int64_t index, const CorruptRecord& error);
  int64_t count() const;

  // The records that this process has met since the last call, as text.
  std::string news();
  // Merges the news of all processes, by rank. If `reports`, reports records that were not reported yet, with the rank.
  // Throws Error if the total exceeds the maximum.
  void merge(const std::vector<std::string>& by_rank, bool reports);

 private:
  void check(int64_t count, const std::string& last) const;

  int64_t most_;
  Report report_;
  mutable std::mutex mutex_;
  std::set<int64_t> met_, merged_;
  std::map<int64_t, std::string> news_;  // index -> error
};

}  // namespace owt
