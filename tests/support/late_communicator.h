// A communicator whose collectives take place when their event is waited for: as late as they may. Who uses a result
// without waiting for it, or a buffer that is still under way, sees old values.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "src/comm/communicator.h"
#include "src/core/check.h"

namespace owt {

class LateCommunicator : public Communicator {
 public:
  explicit LateCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  std::unique_ptr<Communicator> split(int) override { fail("not wanted here"); }
  Event all_reduce(Tensor& sum, const Event& ready) override {
    return later([=, this]() mutable { inner_.all_reduce(sum, ready).wait(); });
  }
  Event all_gather(const Tensor& mine, Tensor& all, const Event& ready) override {
    return later([=, this]() mutable { inner_.all_gather(mine, all, ready).wait(); });
  }
  Event reduce_scatter(const Tensor& all, Tensor& mine, const Event& ready) override {
    return later([=, this]() mutable { inner_.reduce_scatter(all, mine, ready).wait(); });
  }
  Event broadcast(const Tensor& from_root, Tensor& out, int root, const Event& ready) override {
    return later([=, this]() mutable { inner_.broadcast(from_root, out, root, ready).wait(); });
  }
  Event reduce(const Tensor& mine, Tensor& sum_on_root, int root, const Event& ready) override {
    return later([=, this]() mutable { inner_.reduce(mine, sum_on_root, root, ready).wait(); });
  }
  Event all_to_all(const Tensor& mine, Tensor& theirs, const Event& ready) override {
    return later([=, this]() mutable { inner_.all_to_all(mine, theirs, ready).wait(); });
  }

 private:
  class Work : public Event::Pending {
   public:
    explicit Work(std::function<void()> work) : work_(std::move(work)) {}
    void wait() override {
      if (work_) std::exchange(work_, nullptr)();
    }
    bool done() const override { return !work_; }

   private:
    std::function<void()> work_;
  };
  static Event later(std::function<void()> work) { return Event(std::make_shared<Work>(std::move(work))); }

  Communicator& inner_;
};

}  // namespace owt
