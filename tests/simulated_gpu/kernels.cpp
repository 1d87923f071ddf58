#include "tests/simulated_gpu/kernels.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/simulated_gpu/fiber.h"
#include "tests/simulated_gpu/races.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/simulated_gpu/streams.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace simulated_gpu {
namespace {

constexpr int kLanes = 32;
constexpr size_t kNone = ~size_t{0};

[[noreturn]] void broken_kernel(const char* what) {
  std::fprintf(stderr,
               "simulated GPU: %s, in block (%u, %u, %u) of grid (%u, %u, %u), thread (%u, %u, %u) of block (%u, %u, "
               "%u)\n",
               what, blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z, threadIdx.x, threadIdx.y,
               threadIdx.z, blockDim.x, blockDim.y, blockDim.z);
  std::abort();
}

// The meetings of some threads, one after the other. Two events in turns, because a thread may arrive at the next
// meeting before another has left this one.
struct Meetings {
  char events[2] = {};
  bool odd = false;  // in the current meeting

  char* current() { return &events[odd ? 1 : 0]; }
};

struct Warp {
  WarpOperation operation = WarpOperation::kNone;
  int arrived = 0;
  Meetings syncs;
  uint64_t value[kLanes], result[kLanes], gathered[kLanes];
  int source[kLanes];
};

// One block at a time.
class BlockRunner {
 public:
  void move_to_this_thread() { pool_.move_to_this_thread(); }

  void run(const std::function<void()>& body, bool descending) {
    body_ = &body;
    release(&begin_);
    descending_ = descending;
    threads_.assign(static_cast<size_t>(blockDim.x) * blockDim.y * blockDim.z, {});
    if (warps_.size() * kLanes < threads_.size()) warps_.resize((threads_.size() + kLanes - 1) / kLanes);
    started_ = ended_ = at_barrier_ = 0;
    barrier_sum_ = 0;
    while (ended_ < threads_.size()) {
      if (started_ < threads_.size())
        resume(pool_.take());
      else if (const size_t thread = next_thread(); thread != kNone)
        resume(become(thread));
      else
        broken_kernel("a warp operation waits for lanes that have ended or wait elsewhere; all 32 must take part");
    }
    acquire(&end_);
    for (Fiber* fiber : ended_fibers_) pool_.give_back(fiber);
    ended_fibers_.clear();
  }

  int barrier(int value) {
    barrier_sum_ += value;
    ++at_barrier_;
    char* const event = barriers_.current();
    release(event);
    wait(State::kAtBarrier);
    acquire(event);
    return barrier_result_;
  }

  uint64_t exchange(WarpOperation operation, unsigned mask, uint64_t value, int source) {
    if (mask != ~0u) broken_kernel("a warp operation with a mask other than 0xffffffff is not simulated");
    const size_t first = current_ / kLanes * kLanes;
    Warp& warp = warps_[current_ / kLanes];
    const size_t lane = current_ - first;
    if (warp.arrived == 0) warp.operation = operation;
    if (warp.operation != operation) broken_kernel("the lanes of a warp wait at different warp operations");
    warp.value[lane] = value;
    warp.source[lane] = source;
    // Only __syncwarp() orders accesses to memory.
    char* const event = operation == WarpOperation::kSync ? warp.syncs.current() : nullptr;
    if (event) release(event);
    if (++warp.arrived < kLanes) {
      wait(State::kAtWarp);
    } else {
      complete(warp);
      for (size_t i = 0; i < kLanes; ++i) {
        const size_t thread = first + (descending_ ? kLanes - 1 - i : i);
        if (thread != current_) make_ready(thread);
      }
    }
    if (event) acquire(event);
    return warp.result[lane];
  }

  void gather(const void* mine, void* all, size_t bytes) {
    exchange(WarpOperation::kGather, ~0u, reinterpret_cast<uintptr_t>(mine), lane());
    for (size_t i = 0; i < kLanes; ++i)
      std::memcpy(static_cast<std::byte*>(all) + i * bytes,
                  reinterpret_cast<const void*>(warps_[current_ / kLanes].gathered[i]), bytes);
    exchange(WarpOperation::kLeave, ~0u, 0, lane());  // `mine` of other lanes must stay until all have copied it
  }

  int lane() const { return static_cast<int>(current_ % kLanes); }

 private:
  enum class State : uint8_t { kNew, kReady, kAtBarrier, kAtWarp, kEnded };
  struct Thread {
    Fiber* fiber = nullptr;
    State state = State::kNew;
  };

  static void complete(Warp& warp) {
    uint64_t ballot = 0;
    for (int i = 0; i < kLanes; ++i) ballot |= static_cast<uint64_t>(warp.value[i] != 0) << i;
    for (int i = 0; i < kLanes; ++i)
      warp.result[i] = warp.operation == WarpOperation::kBallot ? ballot : warp.value[warp.source[i]];
    if (warp.operation == WarpOperation::kGather) std::copy_n(warp.value, kLanes, warp.gathered);
    warp.arrived = 0;
    warp.syncs.odd = !warp.syncs.odd;
  }

  void resume(Fiber* fiber) {
    fiber_ = fiber;
    fiber->resume(start_threads_);
    if (fiber_->working()) return;
    if (finds_races())
      ended_fibers_.push_back(fiber_);
    else
      pool_.give_back(fiber_);
  }

  // Runs in a fiber: starts threads until one must wait. A kernel without synchronisation needs one fiber only, except
  // where each thread of the block must be one to ThreadSanitizer.
  void start_threads() {
    for (bool first = true; started_ < threads_.size() && (first || !finds_races()); first = false) {
      const size_t i = started_++;
      become(descending_ ? threads_.size() - 1 - i : i);
      acquire(&begin_);
      (*body_)();
      release(&end_);
      threads_[current_].state = State::kEnded;
      ++ended_;
    }
  }

  // Returns the thread's fiber, which is null before the thread has waited.
  Fiber* become(size_t thread) {
    current_ = thread;
    const auto index = static_cast<unsigned>(thread);
    if (blockDim.y == 1 && blockDim.z == 1)
      threadIdx = {index, 0, 0};  // most blocks; divisions take long
    else
      threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y, index / blockDim.x / blockDim.y};
    return threads_[thread].fiber;
  }

  // Once all threads have started, a waiting thread switches to the next one itself, or continues if that is its own.
  void wait(State state) {
    threads_[current_].state = state;
    threads_[current_].fiber = fiber_;
    const size_t next = started_ < threads_.size() ? kNone : next_thread();
    if (next == kNone) {
      fiber_->yield();
    } else if (next != current_) {
      Fiber* const from = std::exchange(fiber_, become(next));
      from->switch_to(*fiber_);
    }
  }

  void make_ready(size_t thread) {
    threads_[thread].state = State::kReady;
    ready_.push_back(thread);
  }

  // The next thread that can run, or kNone. The barrier opens when all threads that have not ended wait there.
  size_t next_thread() {
    if (ready_.empty() && at_barrier_ > 0 && at_barrier_ == threads_.size() - ended_) release_barrier();
    if (ready_.empty()) return kNone;
    const size_t thread = ready_[ready_begin_++];
    if (ready_begin_ == ready_.size()) {
      ready_.clear();
      ready_begin_ = 0;
    }
    return thread;
  }

  void release_barrier() {
    descending_ = !descending_;
    barriers_.odd = !barriers_.odd;
    barrier_result_ = barrier_sum_;
    barrier_sum_ = 0;
    at_barrier_ = 0;
    for (size_t i = 0; i < threads_.size(); ++i) {
      const size_t thread = descending_ ? threads_.size() - 1 - i : i;
      if (threads_[thread].state == State::kAtBarrier) make_ready(thread);
    }
  }

  FiberPool pool_;
  const std::function<void()> start_threads_ = [this] { start_threads(); };
  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<size_t> ready_;
  std::vector<Fiber*> ended_fibers_;  // not used twice by a block, if each thread must be one to ThreadSanitizer
  size_t ready_begin_ = 0;
  Fiber* fiber_ = nullptr;
  size_t current_ = 0, started_ = 0, ended_ = 0, at_barrier_ = 0;
  int barrier_sum_ = 0, barrier_result_ = 0;
  Meetings barriers_;
  char begin_ = 0, end_ = 0;  // events of the block
  bool descending_ = false;
};

// The runners of the host threads. A stream has one thread, and a runner has the stacks of a thousand fibers, which are
// slow to map. So the runners of threads that have ended are reused.
class Runners {
 public:
  static BlockRunner& of_this_thread() {
    thread_local Runners lent;
    return *lent.runner_;
  }

 private:
  struct Idle {
    std::mutex mutex;
    std::vector<std::unique_ptr<BlockRunner>> runners;
  };
  static Idle& idle() {
    static Idle& idle = *new Idle;  // never destroyed: streams may still work while the program exits
    return idle;
  }

  Runners() {
    const std::lock_guard lock(idle().mutex);
    if (idle().runners.empty()) {
      runner_ = std::make_unique<BlockRunner>();
    } else {
      runner_ = std::move(idle().runners.back());
      idle().runners.pop_back();
      runner_->move_to_this_thread();
    }
  }
  ~Runners() {
    const std::lock_guard lock(idle().mutex);
    idle().runners.push_back(std::move(runner_));
  }

  std::unique_ptr<BlockRunner> runner_;
};

BlockRunner& runner() { return Runners::of_this_thread(); }

void run_grid(dim3 grid, dim3 block, const std::function<void()>& body) {
  static std::atomic<unsigned> kernels{0};
  const bool descending = kernels++ % 2 == 1;
  gridDim = grid;
  blockDim = block;
  const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t index = descending ? blocks - 1 - i : i;
    blockIdx.x = static_cast<unsigned>(index % grid.x);
    blockIdx.y = static_cast<unsigned>(index / grid.x % grid.y);
    blockIdx.z = static_cast<unsigned>(index / grid.x / grid.y);
    runner().run(body, (i % 2 == 1) != descending);
  }
}

bool acceptable(dim3 grid, dim3 block) {
  const uint64_t threads = static_cast<uint64_t>(block.x) * block.y * block.z;
  return threads >= 1 && threads <= 1024 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 && grid.x >= 1 &&
         grid.x <= 0x7fffffffu && grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535;
}

}  // namespace

void launch_kernel(cudaStream_t stream, dim3 grid, dim3 block, const void* kernel, std::function<void()> body) {
  int stream_device = -1, current_device = -1;
  if (cudaStreamGetDevice(stream, &stream_device) != cudaSuccess || cudaGetDevice(&current_device) != cudaSuccess)
    return;  // reported
  if (!acceptable(grid, block))
    report(cudaErrorInvalidConfiguration);
  else if (stream_device != current_device)
    report(cudaErrorInvalidResourceHandle);
  else
    report(enqueue(stream, {"kernel", kernel}, [grid, block, body = std::move(body)] { run_grid(grid, block, body); }));
}

void block_barrier() { runner().barrier(0); }
int block_sum(int value) { return runner().barrier(value); }

uint64_t warp_exchange(WarpOperation operation, unsigned mask, uint64_t value, int source) {
  return runner().exchange(operation, mask, value, source);
}

void warp_gather(const void* mine, void* all, size_t bytes) { runner().gather(mine, all, bytes); }

int lane_of_thread() { return runner().lane(); }

}  // namespace simulated_gpu
