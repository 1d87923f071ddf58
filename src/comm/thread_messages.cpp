#include "src/comm/thread_messages.h"

#include <chrono>

namespace owt {

// The result of a message, shared by both ends.
class ThreadMessages::Delivery : public Event::Pending {
 public:
  explicit Delivery(std::shared_ptr<ThreadMessages> all) : all_(std::move(all)) {}

  void wait() override { copied().wait(); }
  bool done() const override {
    {
      const std::lock_guard lock(all_->mutex_);
      if (!copied_) return all_->check(), false;
    }
    return copied_->done();
  }
  bool hold(void* queue) override { return copied().hold(queue); }
  double ms() const override { return ms_; }
  double ms_since(const Event::Pending& earlier) const override {
    return copied_ && copied_->pending() ? copied_->pending()->ms_since(earlier) : 0;
  }

  // ms: duration of the copy, if it is over.
  void finish(const Event& copied, const std::string& error, double ms) {
    const std::lock_guard lock(all_->mutex_);
    ms_ = ms;
    copied_ = copied;
    error_ = error;
    all_->delivered_.notify_all();
  }

 private:
  // Waits until both ends have called.
  const Event& copied() const {
    std::unique_lock lock(all_->mutex_);
    while (!copied_) {
      all_->check();
      all_->delivered_.wait(lock);
    }
    if (!error_.empty()) throw Error(error_);
    return *copied_;
  }

  std::shared_ptr<ThreadMessages> all_;
  std::optional<Event> copied_;
  std::string error_;
  double ms_ = 0;
};

Event ThreadMessages::run(const Call& call, int rank, const Stream& stream) {
  const bool sends = call.collective == Collective::kSend;
  const auto route = sends ? std::pair(rank, call.root) : std::pair(call.root, rank);
  stream.wait(call.after);
  End mine{call.whole(), stream.record()};
  const std::optional<End> other = other_end(sends, route, mine);
  if (!other) return Event(mine.delivery);
  const Tensor from = sends ? mine.tensor : other->tensor;
  Tensor to = sends ? other->tensor : mine.tensor;
  const auto begin = std::chrono::steady_clock::now();
  std::string error;
  if (from.bytes() == to.bytes()) {
    stream.wait(other->ready);
    to.copy_from(from, stream);
  } else {
    error = wrong_size(route.first, std::to_string(from.bytes()), to.bytes());
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  other->delivery->finish(stream.record(), error, took.count());
  return Event(other->delivery);
}

// The other end that has waited longest for this one; none: this end waits.
std::optional<ThreadMessages::End> ThreadMessages::other_end(bool sends, std::pair<int, int> route, End& mine) {
  const std::lock_guard lock(mutex_);
  check();
  std::deque<End>& others = (sends ? wanted_ : sent_)[route];
  if (others.empty()) {
    mine.delivery = std::make_shared<Delivery>(shared_from_this());
    (sends ? sent_ : wanted_)[route].push_back(mine);
    return {};
  }
  const End first = std::move(others.front());
  others.pop_front();
  return first;
}

void ThreadMessages::abort() {
  Ends sent, wanted;  // waiting ends refer to this and would keep it alive
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  sent.swap(sent_);
  wanted.swap(wanted_);
  delivered_.notify_all();
}

void ThreadMessages::check() const {
  if (aborted_) throw Aborted("another rank failed");
}

}  // namespace owt
