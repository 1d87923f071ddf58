// A communicator that counts the bytes sent, and reports the time of every collective to the profiler's open scope. A
// recorded collective's bytes count once. On a GPU the time is from the `ready` event to the end. Collectives that may
// be recorded into a graph are not reported there, since such events have no times.
#pragma once

#include "src/comm/communicator.h"
#include "src/core/profiler.h"

namespace owt {

class ProfiledCommunicator : public Communicator {
 public:
  // Both must outlive this object; profiler may be null.
  ProfiledCommunicator(Communicator& inner, Profiler* profiler) : inner_(inner), profiler_(profiler) {}
  // A group split off from `whole`: its bytes are counted in the whole.
  ProfiledCommunicator(std::unique_ptr<Communicator> inner, ProfiledCommunicator& whole)
      : inner_(*inner), profiler_(whole.profiler_), bytes_(whole.bytes_), owned_(std::move(inner)) {}

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  bool records() const override { return inner_.records(); }
  bool could_record() const override { return inner_.could_record(); }
  Event watched(const Event& end) override { return inner_.watched(end); }
  void host_barrier() override { inner_.host_barrier(); }
  Communicator& for_threads() override { return inner_.for_threads(); }
  void count_sent(int64_t bytes) override;
  void give_up() override { inner_.give_up(); }
  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<ProfiledCommunicator>(inner_.split(color), *this);
  }
  Event run(const Call& call) override;

  int64_t bytes() const { return *bytes_; }  // sent by this rank so far, including its groups

 private:
  void open(const std::vector<Route>& routes) override { inner_.connect(routes); }

  Communicator& inner_;
  Profiler* profiler_;
  std::shared_ptr<int64_t> bytes_ = std::make_shared<int64_t>(0);
  std::unique_ptr<Communicator> owned_;
};

}  // namespace owt
