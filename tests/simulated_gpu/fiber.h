// Stackful fibers of one host thread, for the threads of a simulated block.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace simulated_gpu {

// A context to switch to: the host thread's own stack, or a fiber's.
struct Context {
  void* pointer = nullptr;  // saved stack pointer
  void* stack = nullptr;    // lowest address; of the host thread once it is known
  size_t stack_bytes = 0;
  void* sanitizer = nullptr;  // data of the sanitizer in use, if any, for this stack
};

// Runs `work` when it is resumed from its pool, until the work is done; then it can be used again.
class Fiber {
 public:
  Fiber(std::byte* stack, size_t stack_bytes, Context* scheduler);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // From the scheduler: runs until this fiber, or one that it switched to, yields or ends its work.
  void resume(const std::function<void()>& work);
  // From the fiber: back to the scheduler, or to another fiber at work; until it is resumed or switched to.
  void yield();
  void switch_to(Fiber& other) { switch_contexts(self_, other.self_); }
  bool working() const { return working_; }

 private:
  static void entry(Fiber* fiber);
  static void switch_contexts(Context& from, Context& to);

  Context self_;
  Context* scheduler_;
  const std::function<void()>* work_ = nullptr;
  bool working_ = false;
};

// Fibers of one host thread at a time, made when they are needed and used again.
class FiberPool {
 public:
  FiberPool();
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  Fiber* take();
  void give_back(Fiber* fiber) { idle_.push_back(fiber); }
  void move_to_this_thread() { scheduler_ = {}; }

 private:
  Context scheduler_;
  std::vector<std::byte*> slabs_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace simulated_gpu
