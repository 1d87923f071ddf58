#include "src/comm/profiled.h"

#include "src/comm/lost_ranks.h"

namespace owt {
namespace {

double host_ms_since(Profiler::Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Profiler::Clock::now() - begin).count();
}

// Reports a collective on the CPU that was not finished when its call returned.
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

void ProfiledCommunicator::count_sent(int64_t bytes) {
  *bytes_ += bytes;
  if (profiler_) profiler_->add_transfer(0, bytes);
}

Event ProfiledCommunicator::run(const Call& call) {
  const auto begin = Profiler::Clock::now();
  const bool on_gpu = call.whole().device() == Device::kCuda;
  if (on_gpu && !is_message(call.collective)) note_collective(described(call.collective), /*under_way=*/false);
  const Event event = inner_.run(call);
  const int64_t sent = bytes_sent(call.collective, call.whole().bytes(), ranks());
  *bytes_ += sent;
  if (!profiler_) return event;
  if (on_gpu) {
    if (!records()) profiler_->add_transfer(call.after, event, sent);
    return event;
  }
  const double call_ms = host_ms_since(begin), own_ms = is_message(call.collective) ? call_ms : 0;
  const bool done = event.done();
  profiler_->add_transfer(done ? call_ms : 0, done ? sent : 0, own_ms);
  return done ? event : Event(std::make_shared<Reported>(event, profiler_, begin, sent));
}

}  // namespace owt
