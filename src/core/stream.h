// Streams and events: the order of work on a device without blocking the host.
#pragma once

#include <memory>

#include "src/core/device.h"

namespace owt {

// A point in a queue of work. A default event is already done.
class Event {
 public:
  // Work that may still be under way.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual void wait() = 0;  // blocks the host; throws what the work threw
    virtual bool done() const = 0;
  };

  Event() = default;
  explicit Event(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}

  void wait() const {
    if (pending_) pending_->wait();
  }
  bool done() const { return !pending_ || pending_->done(); }

 private:
  std::shared_ptr<Pending> pending_;
};

// A queue of work on one device. On the CPU work runs at once, in the thread that asks for it.
class Stream {
 public:
  explicit Stream(Device device = Device::kCpu) : device_(device) {}

  Device device() const { return device_; }
  Event record() const { return {}; }                    // done when all work queued so far is done
  void wait(const Event& event) const { event.wait(); }  // later work starts after the event
  void synchronize() const {}                            // blocks the host until the queue is empty

 private:
  Device device_;
};

}  // namespace owt
