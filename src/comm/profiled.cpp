#include "src/comm/profiled.h"

#include "src/comm/losses.h"

namespace owt {
namespace {

double host_ms_since(Profiler::Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Profiler::Clock::now() - begin).count();
}

// Reports a collective on the CPU that was still under way when its call returned.
class Reported : public Event::Pending {
 public:
  Reported(Event inner, Profiler* profiler, Profiler::Clock::time_point begin, int64_t bytes)
      : inner_(std::move(inner)), profiler_(profiler), begin_(begin), bytes_(bytes) {}

  void wait() override {
    inner_.wait();
    if (profiler_) profiler_->add_transfer(inner_.ms() > 0 ? inner_.ms() : host_ms_since(begin_), bytes_);
    profiler_ = nullptr;
  }
  bool done() const override { return inner_.done(); }

 private:
  Event inner_;
  Profiler* profiler_;
  Profiler::Clock::time_point begin_;
  int64_t bytes_;
};

}  // namespace

template <class Call>
Event ProfiledCommunicator::counted(Collective collective, const Tensor& whole, const Event& ready, const Call& call) {
  const auto begin = Profiler::Clock::now();
  if (whole.device() == Device::kCuda) note_collective(described(collective));
  const Event event = call();
  const int64_t sent = bytes_sent(collective, whole.bytes(), ranks());
  *bytes_ += sent;
  if (!profiler_) return event;
  if (whole.device() == Device::kCuda) {
    if (!records()) profiler_->add_transfer(ready, event, sent);
    return event;
  }
  if (!event.done()) return Event(std::make_shared<Reported>(event, profiler_, begin, sent));
  profiler_->add_transfer(host_ms_since(begin), sent);
  return event;
}

Event ProfiledCommunicator::all_reduce(Tensor& sum, const Event& ready) {
  return counted(Collective::kAllReduce, sum, ready, [&] { return inner_.all_reduce(sum, ready); });
}

Event ProfiledCommunicator::all_gather(const Tensor& mine, Tensor& all, const Event& ready) {
  return counted(Collective::kAllGather, all, ready, [&] { return inner_.all_gather(mine, all, ready); });
}

Event ProfiledCommunicator::reduce_scatter(const Tensor& all, Tensor& mine, const Event& ready) {
  return counted(Collective::kReduceScatter, all, ready, [&] { return inner_.reduce_scatter(all, mine, ready); });
}

Event ProfiledCommunicator::broadcast(const Tensor& from_root, Tensor& out, int root, const Event& ready) {
  return counted(Collective::kBroadcast, out, ready, [&] { return inner_.broadcast(from_root, out, root, ready); });
}

Event ProfiledCommunicator::reduce(const Tensor& mine, Tensor& sum_on_root, int root, const Event& ready) {
  return counted(Collective::kReduce, mine, ready, [&] { return inner_.reduce(mine, sum_on_root, root, ready); });
}

Event ProfiledCommunicator::all_to_all(const Tensor& mine, Tensor& theirs, const Event& ready) {
  return counted(Collective::kAllToAll, mine, ready, [&] { return inner_.all_to_all(mine, theirs, ready); });
}

}  // namespace owt
