// The damaged records that a training run has met: each is told once, and too many end the run.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

// Shared by the ranks of a process; safe from many threads. Ranks that are processes have one each, and bring them
// together from time to time with news() and merge(), so that each record counts once for the whole run.
class CorruptRecords {
 public:
  enum class Told { kAtOnce, kWhenMerged };

  // most: that the run may meet.
  explicit CorruptRecords(int64_t most, Told told = Told::kAtOnce) : most_(most), told_at_(told) {}

  // Tells a record met for the first time. Throws Error, naming the cure, where that is one too many.
  void add(int64_t index, const CorruptRecord& error);
  int64_t count() const;

  // What this process has met since the last call, as a text.
  std::string news();
  // The news of all processes, by rank. Records that nobody has told yet are told here, with the rank, where `tells`.
  // Throws Error where all together are too many.
  void merge(const std::vector<std::string>& by_rank, bool tells);

 private:
  void check(int64_t count, const std::string& last) const;

  int64_t most_;
  Told told_at_;
  mutable std::mutex mutex_;
  std::set<int64_t> met_, merged_;
  std::map<int64_t, std::string> news_;  // index -> error
};

}  // namespace owt
