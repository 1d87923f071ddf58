#include "src/comm/half_wire.h"

#include <deque>
#include <map>
#include <tuple>

#include "src/core/conversions.h"
#include "src/core/dispatch.h"

namespace owt {
namespace {

void widen(const Tensor& bf16, Tensor& f32, const Stream& stream) {
  dispatch(stream.device(), [&](auto tag) { widen_to_f32(tag, bf16, f32, stream); });
}

// The end of a collective on the CPU that was under way when its call returned.
class Arrival : public Event::Pending {
 public:
  Arrival(Event arrived, const Tensor& half, const Tensor& whole)
      : arrived_(std::move(arrived)), half_(half), whole_(whole) {}

  void wait() override { finish(); }
  // Whoever hears that it is done will not wait any more.
  bool done() const override {
    if (!arrived_.done()) return false;
    finish();
    return true;
  }

 private:
  void finish() const {
    arrived_.wait();  // also of one that is done: whoever counts it may do so there
    // Once: then the tensor belongs to the caller again.
    if (whole_.defined()) widen(half_, whole_, Stream());
    half_ = whole_ = Tensor();
  }

  Event arrived_;
  mutable Tensor half_, whole_;
};

class HalfWire : public Communicator {
 public:
  HalfWire(Communicator& inner, Device device) : inner_(inner), device_(device), leaving_(device), arriving_(device) {}
  HalfWire(std::unique_ptr<Communicator> group, Device device) : HalfWire(*group, device) { owned_ = std::move(group); }

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  // Memory that is reused lets a recorded collective depend on one before the recording.
  bool records() const override { return ranks() == 1 && inner_.records(); }
  void meet() override { inner_.meet(); }
  Communicator& unrounded() override { return inner_; }
  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<HalfWire>(inner_.split(color), device_);
  }

  // Memory is made alike on every rank, also where a root alone brings or gets something, because making it on a GPU is
  // for all ranks at the same time.
  Event run(const Call& call) override {
    if (!halves(call.whole())) return inner_.run(call);
    const bool in_place = call.collective == Collective::kAllReduce;
    Half& there = half_for(Way::kThere, call.in.defined() ? call.in : call.out);
    Half& back = in_place ? there : half_for(Way::kBack, call.out.defined() ? call.out : call.in);
    const Event rounded = leave(call.in, there, back, call.after);
    const auto used = [](const Tensor& whole, const Half& half) { return whole.defined() ? half.values : Tensor(); };
    const Call halved{call.collective, used(call.in, there), used(call.out, back), call.root, rounded};
    return arrive(there, back, call.out, inner_.run(halved));
  }

 private:
  enum class Way { kThere, kBack };
  // What travels in a f32 tensor's place.
  struct Half {
    Tensor values;
    Event free;  // the collective that last used it has ended
  };
  using Halves = std::deque<Half>;

  bool halves(const Tensor& tensor) const { return tensor.dtype() == DType::kF32 && ranks() > 1; }

  Half& half_for(Way way, const Tensor& tensor) {
    Halves& alike = halves_[{way, tensor.device(), tensor.elements()}];
    return tensor.device() == Device::kCpu ? free_half(alike, tensor) : next_half(alike, tensor);
  }

  static Half& free_half(Halves& alike, const Tensor& tensor) {
    for (Half& half : alike)
      if (half.free.done()) return half;
    return alike.emplace_back(Half{Tensor(tensor.shape(), DType::kBF16), {}});
  }

  // Two in turn: one is rounded into while the other is still under way. The choice depends on nothing but the order of
  // the calls, so that all ranks make memory at the same time.
  Half& next_half(Halves& alike, const Tensor& tensor) {
    if (alike.size() < 2) {
      alike.push_front(Half{Tensor(tensor.shape(), DType::kBF16, tensor.device()), {}});
      inner_.meet();
    } else {
      std::swap(alike[0], alike[1]);
    }
    return alike.front();
  }

  // Rounds `from`, where there is one, into there; nothing is sent to `there` and `back` before they are free.
  Event leave(const Tensor& from, Half& there, const Half& back, const Event& ready) {
    const Stream& stream = there.values.device() == Device::kCpu ? host_ : leaving_;
    OWT_CHECK_EQ(there.values.device(), stream.device(), "this communicator was made for another device");
    stream.wait(ready);
    stream.wait(there.free);
    stream.wait(back.free);
    if (from.defined()) dispatch(stream.device(), [&](auto tag) { round_to_bf16(tag, from, there.values, stream); });
    return stream.record();
  }

  // Widens back into `to`, where there is one.
  Event arrive(Half& there, Half& back, Tensor to, const Event& arrived) {
    Event done;
    if (back.values.device() != Device::kCpu) {
      arriving_.wait(arrived);
      if (to.defined()) widen(back.values, to, arriving_);
      done = arriving_.record();
    } else {
      const auto arrival = std::make_shared<Arrival>(arrived, back.values, to);
      if (!arrival->done()) done = Event(arrival);
    }
    there.free = back.free = done;
    return done;
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  Device device_;
  Stream host_, leaving_, arriving_;
  std::map<std::tuple<Way, Device, int64_t>, Halves> halves_;
};

}  // namespace

std::unique_ptr<Communicator> make_half_wire(Communicator& inner, Device device) {
  return std::make_unique<HalfWire>(inner, device);
}

}  // namespace owt
