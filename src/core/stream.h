// Streams and events: the order of work on a device without blocking the host.
#pragma once

#include <memory>

#include "src/core/device.h"

namespace owt {

// A point in a queue of work. A default event is done.
class Event {
 public:
  // Work that may not be finished.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual void wait() = 0;  // blocks the host; throws what the work threw
    virtual bool done() const = 0;
    // Makes a device's queue wait instead of the host; `queue` is Stream::native(). Returns false if it cannot.
    virtual bool hold(void* queue) {
      static_cast<void>(queue);
      return false;
    }
    // Milliseconds that the work took, once done; 0 if not measured.
    virtual double ms() const { return 0; }
    // Milliseconds from an earlier event of the same device to this one, both done; 0 if not measured.
    virtual double ms_since(const Pending& earlier) const {
      static_cast<void>(earlier);
      return 0;
    }
  };

  Event() = default;
  explicit Event(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}

  void wait() const {
    if (pending_) pending_->wait();
  }
  bool done() const { return !pending_ || pending_->done(); }
  bool hold(void* queue) const { return !pending_ || pending_->hold(queue); }
  double ms() const { return pending_ ? pending_->ms() : 0; }
  double ms_since(const Event& earlier) const {
    return pending_ && earlier.pending_ ? pending_->ms_since(*earlier.pending_) : 0;
  }
  const Pending* pending() const { return pending_.get(); }

 private:
  std::shared_ptr<Pending> pending_;
};

// Which work a GPU starts first if it has room for only some of it.
enum class Priority { kNormal, kLow };

// A queue of work on one device. On the CPU work runs at once, in the calling thread. Copies share the queue.
class Stream {
 public:
  // The implementation for devices other than the CPU.
  class Queue {
   public:
    virtual ~Queue() = default;
    virtual Event record() = 0;
    virtual void wait(const Event& event) = 0;
    virtual void synchronize() = 0;
    virtual void* native() = 0;
  };

  // On a GPU: the GPU of the calling host thread.
  explicit Stream(Device device = Device::kCpu, Priority priority = Priority::kNormal);

  Device device() const { return device_; }
  Event record() const { return queue_ ? queue_->record() : Event(); }  // done when all work queued so far is done
  void wait(const Event& event) const {                                 // later work starts after the event
    if (queue_)
      queue_->wait(event);
    else
      event.wait();
  }
  void synchronize() const {  // blocks the host until the queue is empty
    if (queue_) queue_->synchronize();
  }
  void* native() const { return queue_ ? queue_->native() : nullptr; }  // cudaStream_t

 private:
  Device device_;
  std::shared_ptr<Queue> queue_;
};

std::shared_ptr<Stream::Queue> make_queue(Cpu, Priority priority);  // null: runs at once
std::shared_ptr<Stream::Queue> make_queue(Cuda, Priority priority);

}  // namespace owt
