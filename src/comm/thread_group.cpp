#include "src/comm/thread_group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "src/comm/shares.h"
#include "src/comm/sums.h"
#include "src/core/dispatch.h"
#include "src/core/memory.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kCopyGrain = 1 << 18;  // bytes per thread

std::byte* at(void* memory, int64_t bytes) { return static_cast<std::byte*>(memory) + bytes; }
const std::byte* at(const void* memory, int64_t bytes) { return static_cast<const std::byte*>(memory) + bytes; }

void copy(const void* from, void* to, int64_t bytes, const Stream& stream) {
  if (from == to) return;  // in place; other ranks may be reading it
  const auto copy_part = [&](int64_t begin, int64_t end) {
    dispatch(stream.device(), [&](auto tag) { copy_bytes(tag, at(from, begin), at(to, begin), end - begin, stream); });
  };
  if (stream.device() == Device::kCpu)
    parallel_for(bytes, kCopyGrain, copy_part);
  else
    copy_part(0, bytes);
}

// std::atomic::wait of libstdc++ yields the processor four times before it sleeps. Where other programs are busy, each
// yield costs a whole time slice of the scheduler.
void sleep_while_equal(const std::atomic<uint32_t>& value, uint32_t old) {
  while (value.load() == old) syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}

void wake_sleepers(const std::atomic<uint32_t>& value) {
  syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank, Device device)
      : group_(group), rank_(rank), device_(device), stream_(device) {}
  ThreadCommunicator(const ThreadGroup::Member& member, Device device)
      : ThreadCommunicator(*member.group, member.rank, device) {
    owned_ = member.group;
  }

  int rank() const override { return rank_; }
  int ranks() const override { return group_.ranks(); }
  void give_up() override { group_.messages->abort(); }
  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<ThreadCommunicator>(group_.split(rank_, color), device_);
  }

  // Posts the tensors and meets the other ranks. Does this rank's share of the work when all tensors are ready, and
  // meets them again, so that no tensor changes while another rank still reads it.
  Event run(const Call& call) override {
    const Device device = call.whole().device();
    const Stream& stream = device == Device::kCpu ? host_ : stream_;
    OWT_CHECK_EQ(device, stream.device(), "this communicator was made for another device");
    if (is_message(call.collective)) return group_.messages->run(call, rank_, stream);
    Post& mine = post(rank_);
    mine.in = call.in, mine.out = call.out, mine.ready = call.after;  // others may still wait for the last `done`
    // The host waits for its own tensors itself; only a GPU's queue can wait for another thread's events.
    if (device == Device::kCpu) call.after.wait(), mine.ready = Event();
    group_.host_barrier();
    for (const Post& other : group_.posts) stream.wait(other.ready);
    work(call, stream);
    mine.done = stream.record();
    group_.host_barrier();
    mine.in = mine.out = Tensor();  // otherwise their memory would last until the next collective
    for (const Post& other : group_.posts) stream.wait(other.done);
    return stream.record();
  }

 private:
  using Post = ThreadGroup::Post;

  Post& post(int rank) { return group_.posts[static_cast<size_t>(rank)]; }

  // This rank's share of the collective.
  void work(const Call& call, const Stream& stream) {
    const int64_t mine = call.in.bytes(), part = call.out.bytes() / ranks();
    Tensor out = call.out;
    switch (call.collective) {
      case Collective::kAllReduce:
      case Collective::kReduce:
        return sum_share(call, stream);
      case Collective::kReduceScatter:
        return sum_inputs(stream, out.dtype(), {rank_ * out.elements(), (rank_ + 1) * out.elements()}, out.raw());
      case Collective::kBroadcast:
        return copy(post(call.root).in.raw(), out.raw(), out.bytes(), stream);
      case Collective::kAllGather:
        for (int r = 0; r < ranks(); ++r) copy(post(r).in.raw(), at(out.raw(), r * mine), mine, stream);
        return;
      case Collective::kAllToAll:
        for (int r = 0; r < ranks(); ++r)
          copy(at(post(r).in.raw(), rank_ * part), at(out.raw(), r * part), part, stream);
        return;
      case Collective::kSend:
      case Collective::kReceive:
        break;
    }
  }

  // A share of the sum, into the root's tensor. all_reduce also copies it into the other tensors. No other rank touches
  // this range, so the tensor that takes the sum may be an addend.
  void sum_share(const Call& call, const Stream& stream) {
    const DType dtype = call.in.dtype();
    const Slice mine = share_of(call.in.elements(), ranks(), rank_);
    const int64_t offset = mine.begin * size_of(dtype);
    void* const sum = at(post(call.root).out.raw(), offset);
    sum_inputs(stream, dtype, mine, sum);
    if (call.collective == Collective::kReduce) return;
    for (int r = 0; r < ranks(); ++r)
      if (r != call.root) copy(sum, at(post(r).out.raw(), offset), mine.size() * size_of(dtype), stream);
  }

  // The sum over ranks of these elements of the inputs.
  void sum_inputs(const Stream& stream, DType dtype, const Slice& elements, void* sum) const {
    std::vector<const void*> addends;
    for (const Post& post : group_.posts) addends.push_back(at(post.in.raw(), elements.begin * size_of(dtype)));
    dispatch(stream.device(), [&](auto tag) { sum_up(tag, dtype, addends, elements.size(), sum, stream); });
  }

  std::shared_ptr<ThreadGroup> owned_;
  ThreadGroup& group_;
  int rank_;
  Device device_;
  Stream host_, stream_;
};

}  // namespace

ThreadGroup::ThreadGroup(int ranks, bool spin)
    : posts(static_cast<size_t>(ranks)), spin_(spin), spins_(spin ? 4000 : 0), joining_(static_cast<size_t>(ranks)) {}

void ThreadGroup::host_barrier() {
  const uint32_t phase = phase_.load();
  check();
  if (arrived_.fetch_add(1) + 1 == ranks()) {
    arrived_.store(0);
    phase_.fetch_add(1);
    wake_sleepers(phase_);
  } else {
    for (int i = 0; i < spins_ && phase_.load() == phase; ++i) __builtin_ia32_pause();
    sleep_while_equal(phase_, phase);
  }
  check();
}

void ThreadGroup::abort() {
  aborted_.store(true);
  phase_.fetch_add(1);
  wake_sleepers(phase_);
  messages->abort();
  const std::lock_guard lock(parts_mutex_);
  for (const auto& part : parts_)
    if (const auto group = part.lock()) group->abort();
}

ThreadGroup::Member ThreadGroup::split(int rank, int color) {
  joining_[static_cast<size_t>(rank)] = {color, nullptr};
  host_barrier();
  int first = -1, members = 0;
  Member member;
  for (int r = 0; r < ranks(); ++r) {
    if (joining_[static_cast<size_t>(r)].color != color) continue;
    if (first < 0) first = r;
    if (r < rank) ++member.rank;
    ++members;
  }
  if (first == rank) {
    const auto made = std::make_shared<ThreadGroup>(members, spin_);
    const std::lock_guard lock(parts_mutex_);
    parts_.push_back(made);
    joining_[static_cast<size_t>(rank)].made = made;
  }
  host_barrier();  // an abort before this point is thrown here; a later one reaches the parts
  member.group = joining_[static_cast<size_t>(first)].made;
  host_barrier();  // no rank may join the next groups before all have read these
  return member;
}

void ThreadGroup::check() const {
  if (aborted()) throw Aborted("another rank failed");
}

std::unique_ptr<Communicator> make_thread_communicator(ThreadGroup& group, int rank, Device device) {
  return std::make_unique<ThreadCommunicator>(group, rank, device);
}

}  // namespace owt
