// Where the threads that make images spend their time: a clock for each stage of an image.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "data/batch.h"

namespace owt {

enum class LoadStage { kRead, kDecode, kResize, kAugment, kMix };  // in the order of an image's way
constexpr int kLoadStages = 5;
const char* name_of(LoadStage stage);
using StageSeconds = std::array<double, kLoadStages>;  // index: LoadStage

// The stages of one thread, for the clock's lifetime. Threads without a clock measure nothing.
class StageClock {
 public:
  StageClock() { current_ = this; }
  ~StageClock() { current_ = nullptr; }
  StageClock(const StageClock&) = delete;
  StageClock& operator=(const StageClock&) = delete;

  // The time since the calling thread's previous call, or since its clock began, belongs to this stage.
  static void end(LoadStage stage) {
    if (current_) current_->add(stage);
  }
  const StageSeconds& seconds() const { return seconds_; }  // wall-clock time
  // Seconds since the clock began.
  double whole() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  void add(LoadStage stage) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<size_t>(stage)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

  static inline constinit thread_local StageClock* current_ = nullptr;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  StageSeconds seconds_{};
};

// The work of loader threads: sums over threads.
struct LoadWork {
  int64_t images = 0;
  LoaderTimes times{};
  // Wall-clock seconds, in all and in each stage. They include interruptions by other programs.
  double staged_s = 0;
  StageSeconds stage_s{};

  LoadWork& operator+=(const LoadWork& other);
  LoadWork operator-(const LoadWork& earlier) const;
};

// The work of all loaders that share it; may be used from many threads.
class LoadRecord {
 public:
  void add(const LoadWork& work) {
    const std::lock_guard lock(mutex_);
    total_ += work;
  }
  LoadWork total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  mutable std::mutex mutex_;
  LoadWork total_;
};

}  // namespace owt
