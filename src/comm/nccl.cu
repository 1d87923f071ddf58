#include "src/comm/nccl.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/comm/nccl_link.h"
#include "src/comm/on_host.h"
#include "src/comm/solo.h"
#include "src/core/cuda.h"

namespace owt {
namespace {

constexpr int kEagerPolls = 200;
constexpr auto kPollEvery = std::chrono::microseconds(50);

ncclDataType_t element(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kU8:
      return ncclUint8;
    case DType::kI64:
      return ncclInt64;
    case DType::kF64:
      return ncclFloat64;
  }
  return ncclUint8;
}

size_t elements(const Tensor& tensor) { return static_cast<size_t>(tensor.elements()); }

bool is_recorded(const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  OWT_CUDA(cudaStreamIsCapturing(cuda_stream(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

// The end of a collective. The host waits by polling, so that a broken link ends the wait.
class NcclEvent : public Event::Pending {
 public:
  NcclEvent(Event inner, std::shared_ptr<NcclFailure> failure)
      : inner_(std::move(inner)), failure_(std::move(failure)) {}

  void wait() override {
    for (int polls = 0; !done(); ++polls) {
      failure_->check();
      if (polls < kEagerPolls)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kPollEvery);
    }
  }
  bool done() const override {
    if (!inner_.done()) return false;
    failure_->check();  // an aborted collective ends too
    return true;
  }
  bool hold(void* queue) override {
    failure_->check();
    return inner_.hold(queue);
  }
  double ms_since(const Event::Pending& earlier) const override {
    const auto* other = dynamic_cast<const NcclEvent*>(&earlier);
    return inner_.pending()->ms_since(other ? *other->inner_.pending() : earlier);
  }

 private:
  Event inner_;
  std::shared_ptr<NcclFailure> failure_;
};

class NcclCommunicator : public Communicator {
 public:
  // Split groups queue their work in the same stream, so that no rank can start them in another order.
  NcclCommunicator(const NcclMember& member, const Stream& stream) : stream_(stream), link_(member) {}
  ~NcclCommunicator() override {
    for (RouteEnd& lane : lanes_) lane.link.reset();  // in the same order on all ranks
  }

  int rank() const override { return link_.member().rank; }
  int ranks() const override { return link_.member().ranks; }
  bool records() const override { return false; }
  bool could_record() const override { return true; }
  Event watched(const Event& end) override {
    link_.expect(end);
    return Event(std::make_shared<NcclEvent>(end, link_.failure()));
  }
  void host_barrier() override {
    if (link_.member().here.group) link_.member().here.group->host_barrier();
  }

  std::unique_ptr<Communicator> split(int color) override {
    const std::vector<ColorAndId> colors =
        on_host::gather<ColorAndId>(*this, {{color, make_nccl_id(Cuda{})}}, Device::kCuda);
    NcclMember part = link_.member();
    part.rank = part.ranks = 0;
    for (int r = 0; r < ranks(); ++r) {
      const ColorAndId& each = colors[static_cast<size_t>(r)];
      if (each.color != color) continue;
      if (part.ranks == 0) part.id = each.id;  // the first rank's id
      if (r < rank()) ++part.rank;
      ++part.ranks;
    }
    if (part.here.group) part.here = part.here.group->split(part.here.rank, color);
    if (part.ranks == 1) return make_solo_communicator(Device::kCuda);
    return std::make_unique<NcclCommunicator>(part, stream_);
  }

  Event run(const Call& call) override {
    OWT_CHECK_EQ(call.whole().device(), Device::kCuda, "NCCL moves tensors on GPUs only");
    if (!is_message(call.collective)) return run(call, stream_, link_);
    const RouteEnd& lane = *std::find_if(lanes_.begin(), lanes_.end(), [&](const RouteEnd& lane) {
      return lane.peer == call.root && lane.sends == (call.collective == Collective::kSend);
    });
    return run(call, lane.stream, *lane.link);
  }

 private:
  struct ColorAndId {  // shown to the other ranks in split()
    int color = 0;
    NcclId id;
  };
  // One end of a route. NCCL runs the work of a communicator in order, so each route has its own communicator of two
  // ranks; the sender is rank 0.
  struct RouteEnd {
    bool sends;
    int peer;
    Stream stream;
    std::unique_ptr<NcclLink> link;
  };

  void open(const std::vector<Route>& routes) override {
    std::vector<NcclId> made(routes.size());
    for (size_t i = 0; i < routes.size(); ++i)
      if (routes[i].from == rank()) made[i] = make_nccl_id(Cuda{});
    const std::vector<NcclId> ids = on_host::gather(*this, made, Device::kCuda);
    for (size_t i = 0; i < routes.size(); ++i)
      open(routes[i], ids[static_cast<size_t>(routes[i].from) * made.size() + i]);
    host_barrier();
  }

  void open(const Route& route, const NcclId& id) {
    const bool sends = route.from == rank();
    const int peer = sends ? route.to : route.from;
    if (!sends && route.to != rank()) return;
    for (const RouteEnd& lane : lanes_)
      if (lane.sends == sends && lane.peer == peer) return;  // a lane serves any size
    const NcclMember member{sends ? 0 : 1, 2, id, link_.member().aborted, link_.member().patience};
    lanes_.push_back({sends, peer, Stream(Device::kCuda), std::make_unique<NcclLink>(member)});
  }

  // With nothing to move, no rank calls NCCL.
  Event run(const Call& call, const Stream& stream, NcclLink& link) const {
    stream.wait(call.after);
    const bool recording = is_recorded(stream);
    const auto queue_call = [&](ncclComm_t comm) { queue(call, comm, cuda_stream(stream)); };
    if (call.whole().bytes() > 0) recording ? link.record(queue_call) : link.run(queue_call);
    const Event done = stream.record();
    if (recording) return done;
    link.expect(done);
    return Event(std::make_shared<NcclEvent>(done, link.failure()));
  }

  void queue(const Call& call, ncclComm_t comm, cudaStream_t stream) const {
    const Tensor& in = call.in;
    Tensor out = call.out;
    const ncclDataType_t type = element(call.whole());
    switch (call.collective) {
      case Collective::kAllReduce:
        return OWT_NCCL(ncclAllReduce(in.raw(), out.raw(), elements(in), type, ncclSum, comm, stream));
      case Collective::kAllGather:
        return OWT_NCCL(ncclAllGather(in.raw(), out.raw(), elements(in), type, comm, stream));
      case Collective::kReduceScatter:
        return OWT_NCCL(ncclReduceScatter(in.raw(), out.raw(), elements(out), type, ncclSum, comm, stream));
      case Collective::kBroadcast: {
        const void* const from = in.defined() ? in.raw() : out.raw();
        return OWT_NCCL(ncclBroadcast(from, out.raw(), elements(out), type, call.root, comm, stream));
      }
      case Collective::kReduce: {
        void* const sum = out.defined() ? out.raw() : nullptr;
        return OWT_NCCL(ncclReduce(in.raw(), sum, elements(in), type, ncclSum, call.root, comm, stream));
      }
      case Collective::kAllToAll:
        return exchange_parts(in, out, comm, stream);
      case Collective::kSend:
        return OWT_NCCL(ncclSend(in.raw(), elements(in), type, 1, comm, stream));
      case Collective::kReceive:
        return OWT_NCCL(ncclRecv(out.raw(), elements(out), type, 0, comm, stream));
    }
  }

  void exchange_parts(const Tensor& mine, Tensor& theirs, ncclComm_t comm, cudaStream_t stream) const {
    OWT_NCCL(ncclGroupStart());
    try {
      for (int r = 0; r < ranks(); ++r) exchange_part(r, mine, theirs, comm, stream);
    } catch (const Error&) {
      ncclGroupEnd();  // otherwise the thread's next calls would join the group
      throw;
    }
    OWT_NCCL(ncclGroupEnd());
  }

  void exchange_part(int other, const Tensor& mine, Tensor& theirs, ncclComm_t comm, cudaStream_t stream) const {
    const int64_t part = mine.bytes() / ranks();
    const auto* from = static_cast<const std::byte*>(mine.raw()) + other * part;
    auto* to = static_cast<std::byte*>(theirs.raw()) + other * part;
    OWT_NCCL(ncclSend(from, static_cast<size_t>(part), ncclUint8, other, comm, stream));
    OWT_NCCL(ncclRecv(to, static_cast<size_t>(part), ncclUint8, other, comm, stream));
  }

  Stream stream_;
  NcclLink link_;
  std::vector<RouteEnd> lanes_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Cuda, const NcclMember& member) {
  return std::make_unique<NcclCommunicator>(member, Stream(Device::kCuda));
}

}  // namespace owt
