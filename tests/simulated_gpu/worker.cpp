#include "tests/simulated_gpu/worker.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <random>

#include "tests/simulated_gpu/memory.h"

namespace simulated_gpu {
namespace {

// Random delays before the operations of one worker; none without a seed.
class Jitter {
 public:
  explicit Jitter(uint64_t worker) {
    if (const char* seed = std::getenv("OWT_SIMULATED_GPU_JITTER"))
      random_.emplace(std::strtoull(seed, nullptr, 10) * 1000003 + worker);
  }

  void delay() {
    if (random_ && (*random_)() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds((*random_)() % 400));
  }

 private:
  std::optional<std::mt19937_64> random_;
};

}  // namespace

void Mark::set() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    time_ = Clock::now();
  }
  changed_.notify_all();
}

void Mark::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}

bool Mark::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

Mark::Clock::time_point Mark::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

Worker::Worker() {
  static std::atomic<uint64_t> workers{0};
  queue_->number = workers++;
  std::thread([queue = queue_] { work(*queue); }).detach();
}

Worker::~Worker() {
  const std::lock_guard lock(queue_->mutex);
  queue_->closed = true;
  queue_->grown.notify_one();
}

void Worker::push(std::function<void()> work) { push_operation({std::move(work), true}); }
void Worker::push_set(std::shared_ptr<Mark> mark) {
  push_operation({[mark = std::move(mark)] { mark->set(); }, false});
}
void Worker::push_wait(std::shared_ptr<Mark> mark) {
  push_operation({[mark = std::move(mark)] { mark->wait(); }, false});
}

void Worker::push_operation(Operation operation) {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->waiting.push_back(std::move(operation));
    ++queue_->pushed;
  }
  queue_->grown.notify_one();
}

void Worker::drain() const {
  std::unique_lock lock(queue_->mutex);
  const uint64_t last = queue_->pushed;
  while (queue_->finished < last) {
    queue_->wanted = std::min(queue_->wanted, last);
    queue_->reached.wait(lock);
  }
  close_unused_memory();
}

bool Worker::idle() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->finished == queue_->pushed;
}

void Worker::work(Queue& queue) {
  Jitter jitter(queue.number);
  std::unique_lock lock(queue.mutex);
  for (;;) {
    queue.grown.wait(lock, [&] { return !queue.waiting.empty() || queue.closed; });
    if (queue.waiting.empty()) return;
    Operation operation = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    lock.unlock();
    jitter.delay();
    {
      std::optional<MemoryAccess> access;
      if (operation.touches_memory) access.emplace();
      operation.run();
      operation.run = nullptr;
    }
    lock.lock();
    if (++queue.finished < queue.wanted) continue;
    queue.wanted = Queue::kNone;
    queue.reached.notify_all();
  }
}

}  // namespace simulated_gpu
