// The damaged records that a training run has met: each is told once, and too many end the run.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "data/dataset.h"

namespace owt {

// Shared by the ranks of a process; safe from many threads.
class CorruptRecords {
 public:
  explicit CorruptRecords(int64_t most) : most_(most) {}  // that the run may meet

  // Logs a record met for the first time. Throws Error, naming the cure, where that is one too many.
  void add(int64_t index, const CorruptRecord& error);
  int64_t count() const;

 private:
  int64_t most_;
  mutable std::mutex mutex_;
  std::set<int64_t> met_;
};

}  // namespace owt
