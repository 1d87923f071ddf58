#include "src/comm/bf16_transport.h"

#include <deque>
#include <initializer_list>
#include <map>
#include <tuple>

#include "src/core/conversions.h"
#include "src/core/dispatch.h"
#include "src/core/poison.h"

namespace owt {
namespace {

void widen(const Tensor& bf16, Tensor& f32, const Stream& stream) {
  dispatch(stream.device(), [&](auto tag) { widen_to_f32(tag, bf16, f32, stream); });
}

// The end of a call that was not finished when it returned. The stream converts the values to f32 when the event is
// waited for.
class Arrival : public Event::Pending {
 public:
  Arrival(Event arrived, const Tensor& half, const Tensor& whole, const Stream& stream)
      : arrived_(std::move(arrived)), half_(half), whole_(whole), stream_(stream) {}

  void wait() override { finished().wait(); }
  // Also starts the conversion, because a caller that learns that the event is done does not wait for it.
  bool done() const override { return arrived_.done() && finished().done(); }
  bool hold(void* queue) override { return stream_.device() != Device::kCpu && finished().hold(queue); }

 private:
  // Converts once: afterwards the tensor belongs to the caller again.
  const Event& finished() const {
    if (!half_.defined()) return widened_;
    stream_.wait(arrived_);  // also if it is done: the profiler's event reports in its wait
    if (whole_.defined()) widen(half_, whole_, stream_);
    poison(half_, stream_);
    widened_ = stream_.record();
    half_ = whole_ = Tensor();
    return widened_;
  }

  Event arrived_;
  mutable Tensor half_, whole_;
  Stream stream_;
  mutable Event widened_;
};

class Bf16Transport : public Communicator {
 public:
  Bf16Transport(Communicator& inner, Device device)
      : inner_(inner), device_(device), leaving_(device), arriving_(device) {}
  Bf16Transport(std::unique_ptr<Communicator> group, Device device) : Bf16Transport(*group, device) {
    owned_ = std::move(group);
  }

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  // Reused memory can make a recorded collective depend on one before the recording.
  bool records() const override { return ranks() == 1 && inner_.records(); }
  void host_barrier() override { inner_.host_barrier(); }
  Communicator& for_threads() override { return inner_.for_threads(); }
  void count_sent(int64_t bytes) override { inner_.count_sent(bytes); }
  void give_up() override { inner_.give_up(); }
  Communicator& unrounded() override { return inner_; }
  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<Bf16Transport>(inner_.split(color), device_);
  }

  // Every rank allocates the same memory, even if only the root sends or receives: allocating on a GPU must happen on
  // all ranks at the same time.
  Event run(const Call& call) override {
    if (!halves(call.whole())) return inner_.run(call);
    const bool message = is_message(call.collective);
    if (message && call.whole().device() != Device::kCpu) return on_its_route(call);
    Half& there = half_for(Direction::kThere, call.in.defined() ? call.in : call.out);
    Half& back = message || call.collective == Collective::kAllReduce
                     ? there
                     : half_for(Direction::kBack, call.out.defined() ? call.out : call.in);
    const Stream& stream = call.whole().device() == Device::kCpu ? host_ : leaving_;
    const Event rounded = leave(call.in, there.values, {there.free, back.free}, call.after, stream);
    return arrive(there, back, call.out, inner_.run(halved(call, there.values, back.values, rounded)));
  }

 private:
  enum class Direction { kThere, kBack };
  // The bf16 copy of an f32 tensor.
  struct Half {
    Tensor values;
    Event free;  // the end of the collective that last used it
  };
  using Halves = std::deque<Half>;
  // The messages to or from another rank, on a GPU. Each lane has its own queue and memory, so that no message waits
  // for a message of another route, nor for an allocation.
  struct Lane {
    Stream stream;
    Halves halves;  // used alternately
  };

  void open(const std::vector<Route>& routes) override {
    inner_.connect(routes);
    if (device_ == Device::kCpu) return;
    for (const Route& route : routes) {
      if (route.from == rank()) lanes_.insert_or_assign({Direction::kThere, route.to}, lane_for(route));
      if (route.to == rank()) lanes_.insert_or_assign({Direction::kBack, route.from}, lane_for(route));
    }
    inner_.host_barrier();
  }

  Lane lane_for(const Route& route) const {
    Lane lane{Stream(device_), {}};
    for (int i = 0; i < route.under_way; ++i)
      lane.halves.push_back({Tensor({route.bytes / size_of(DType::kF32)}, DType::kBF16, device_), {}});
    return lane;
  }

  Event on_its_route(const Call& call) {
    Lane& lane = lanes_.at({call.in.defined() ? Direction::kThere : Direction::kBack, call.root});
    Half half = std::move(lane.halves.front());
    lane.halves.pop_front();
    const Tensor values = half.values.part(0, call.whole().shape());
    const Event rounded = leave(call.in, values, {half.free}, call.after, lane.stream);
    const Event arrived = inner_.run(halved(call, values, values, rounded));
    half.free = Event(std::make_shared<Arrival>(arrived, values, call.out, lane.stream));
    lane.halves.push_back(half);
    return half.free;
  }

  static Call halved(const Call& call, const Tensor& there, const Tensor& back, const Event& rounded) {
    return {call.collective, call.in.defined() ? there : Tensor(), call.out.defined() ? back : Tensor(), call.root,
            rounded};
  }

  bool halves(const Tensor& tensor) const { return tensor.dtype() == DType::kF32 && ranks() > 1; }

  Half& half_for(Direction direction, const Tensor& tensor) {
    Halves& alike = halves_[{direction, tensor.device(), tensor.elements()}];
    return tensor.device() == Device::kCpu ? free_half(alike, tensor) : next_half(alike, tensor);
  }

  static Half& free_half(Halves& alike, const Tensor& tensor) {
    for (Half& half : alike)
      if (half.free.done()) return half;
    return alike.emplace_back(Half{Tensor(tensor.shape(), DType::kBF16), {}});
  }

  // Two, used alternately: one is filled while the other is in transit. The choice depends only on the order of the
  // calls, so that all ranks allocate at the same time.
  Half& next_half(Halves& alike, const Tensor& tensor) {
    if (alike.size() < 2) {
      alike.push_front(Half{Tensor(tensor.shape(), DType::kBF16, tensor.device()), {}});
      inner_.host_barrier();
    } else {
      std::swap(alike[0], alike[1]);
    }
    return alike.front();
  }

  // Rounds `from`, if defined, into `to`. Nothing is sent before the memory is free.
  static Event leave(const Tensor& from, Tensor to, std::initializer_list<Event> free, const Event& ready,
                     const Stream& stream) {
    OWT_CHECK_EQ(to.device(), stream.device(), "this communicator was made for another device");
    stream.wait(ready);
    for (const Event& event : free) stream.wait(event);
    if (from.defined()) dispatch(stream.device(), [&](auto tag) { round_to_bf16(tag, from, to, stream); });
    return stream.record();
  }

  // Converts back into `to`, if defined.
  Event arrive(Half& there, Half& back, Tensor to, const Event& arrived) {
    Event done;
    if (back.values.device() != Device::kCpu) {
      arriving_.wait(arrived);
      if (to.defined()) widen(back.values, to, arriving_);
      poison(back.values, arriving_);
      done = arriving_.record();
    } else {
      const auto arrival = std::make_shared<Arrival>(arrived, back.values, to, host_);
      if (!arrival->done()) done = Event(arrival);
    }
    there.free = back.free = done;
    return done;
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  Device device_;
  Stream host_, leaving_, arriving_;
  std::map<std::tuple<Direction, Device, int64_t>, Halves> halves_;
  std::map<std::pair<Direction, int>, Lane> lanes_;
};

}  // namespace

std::unique_ptr<Communicator> make_bf16_transport(Communicator& inner, Device device) {
  return std::make_unique<Bf16Transport>(inner, device);
}

}  // namespace owt
