// Runs work on many threads and returns the results in order; a bounded number of results is in memory.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "src/system/joined_threads.h"

namespace owt {

template <class Result>
class InOrder {
 public:
  // Calls work(0), work(1), ... work(items - 1) once each, on `threads` own threads. At most `window` results wait to
  // be taken. No work is started while the waiting results have `most_bytes` (Result::bytes()) together. Throws Error
  // if the threads cannot be started.
  InOrder(int64_t items, int threads, std::function<Result(int64_t)> work, int64_t window, int64_t most_bytes)
      : items_(items), window_(window), most_bytes_(most_bytes), work_(std::move(work)) {
    threads_.start(
        threads, "thread", "use fewer --threads", [this](int) { run(); }, [this] { stop(); });
  }
  ~InOrder() {
    stop();
    threads_.join();
  }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

  // The next result, or nullopt if it takes longer than `patience`. Throws the exception of any work. For one thread,
  // which calls it at most `items` times.
  std::optional<Result> next(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, patience, [&] { return error_ || (!results_.empty() && results_.front()); });
    if (error_) std::rethrow_exception(error_);
    if (results_.empty() || !results_.front()) return std::nullopt;
    std::optional<Result> result = std::move(results_.front());
    results_.pop_front();
    ++taken_;
    bytes_ -= result->bytes();
    lock.unlock();
    room_.notify_all();
    return result;
  }

 private:
  void stop() {  // work that has not started never starts
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
  }

  bool may_begin() const {
    // The next result to be taken has always been started, so no thread waits forever.
    return begun_ == taken_ || (begun_ < taken_ + window_ && bytes_ < most_bytes_);
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [&] { return stopped_ || begun_ == items_ || may_begin(); });
      if (stopped_ || begun_ == items_) return;
      const int64_t item = begun_++;
      results_.emplace_back();
      lock.unlock();
      std::optional<Result> result;
      std::exception_ptr error;
      try {
        result = work_(item);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) {
        error_ = error;
        stopped_ = true;
        room_.notify_all();
      } else {
        bytes_ += result->bytes();
        results_[item - taken_] = std::move(result);
      }
      if (error || item == taken_) ready_.notify_one();
    }
  }

  const int64_t items_, window_, most_bytes_;
  const std::function<Result(int64_t)> work_;
  std::mutex mutex_;
  std::condition_variable ready_, room_;
  int64_t begun_ = 0, taken_ = 0, bytes_ = 0;
  std::deque<std::optional<Result>> results_;  // for items taken_ to begun_ - 1
  bool stopped_ = false;
  std::exception_ptr error_;
  JoinedThreads threads_;
};

}  // namespace owt
