// A communicator that runs a collective only when its event is waited for, as late as allowed. Code that uses a result
// without waiting, or a buffer that is still in use, reads old values.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "src/comm/communicator.h"
#include "src/system/check.h"

namespace owt {

class LateCommunicator : public Communicator {
 public:
  explicit LateCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  std::unique_ptr<Communicator> split(int) override { fail("not wanted here"); }
  Event run(const Call& call) override {
    return later([=, this] { inner_.run(call).wait(); });
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
