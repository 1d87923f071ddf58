#include "src/comm/thread_group.h"

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
  if (from == to) return;  // in place; and others may be reading it
  const auto copy_part = [&](int64_t begin, int64_t end) {
    dispatch(stream.device(), [&](auto tag) { copy_bytes(tag, at(from, begin), at(to, begin), end - begin, stream); });
  };
  if (stream.device() == Device::kCpu)
    parallel_for(bytes, kCopyGrain, copy_part);
  else
    copy_part(0, bytes);
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank, Device device)
      : group_(group), rank_(rank), device_(device), stream_(device) {}
  ThreadCommunicator(const ThreadGroup::Place& place, Device device)
      : ThreadCommunicator(*place.group, place.rank, device) {
    owned_ = place.group;
  }

  int rank() const override { return rank_; }
  int ranks() const override { return group_.ranks(); }
  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<ThreadCommunicator>(group_.split(rank_, color), device_);
  }

  Event all_reduce(Tensor& sum, const Event& ready) override {
    return together(sum.device(), {}, sum, ready, [&](const Stream& stream) {
      const Slice mine = share(sum.elements());
      const int64_t offset = mine.begin * size_of(sum.dtype()), bytes = mine.size() * size_of(sum.dtype());
      std::vector<const void*> addends;
      for (Post& post : group_.posts) addends.push_back(at(post.out.raw(), offset));
      // Nobody else touches this range, so rank 0's tensor may take the sum.
      void* const total = at(group_.posts[0].out.raw(), offset);
      sum_up_on(stream, sum.dtype(), addends, mine.size(), total);
      for (int r = 1; r < ranks(); ++r) copy(total, at(post(r).out.raw(), offset), bytes, stream);
    });
  }

  Event all_gather(const Tensor& mine, Tensor& all, const Event& ready) override {
    OWT_CHECK_EQ(all.bytes(), mine.bytes() * ranks());
    return together(all.device(), mine, {}, ready, [&](const Stream& stream) {
      for (int r = 0; r < ranks(); ++r) copy(post(r).in.raw(), at(all.raw(), r * mine.bytes()), mine.bytes(), stream);
    });
  }

  Event reduce_scatter(const Tensor& all, Tensor& mine, const Event& ready) override {
    OWT_CHECK_EQ(all.bytes(), mine.bytes() * ranks());
    return together(all.device(), all, {}, ready, [&](const Stream& stream) {
      sum_inputs(stream, mine.dtype(), rank_ * mine.bytes(), mine.elements(), mine.raw());
    });
  }

  Event broadcast(const Tensor& from_root, Tensor& out, int root, const Event& ready) override {
    return together(out.device(), from_root, {}, ready,
                    [&](const Stream& stream) { copy(post(root).in.raw(), out.raw(), out.bytes(), stream); });
  }

  Event reduce(const Tensor& mine, Tensor& sum_on_root, int root, const Event& ready) override {
    return together(mine.device(), mine, rank_ == root ? sum_on_root : Tensor(), ready, [&](const Stream& stream) {
      const Slice part = share(mine.elements());
      const int64_t offset = part.begin * size_of(mine.dtype());
      sum_inputs(stream, mine.dtype(), offset, part.size(), at(post(root).out.raw(), offset));
    });
  }

  Event all_to_all(const Tensor& mine, Tensor& theirs, const Event& ready) override {
    OWT_CHECK_EQ(mine.bytes() % ranks(), 0);
    OWT_CHECK_EQ(theirs.bytes(), mine.bytes());
    const int64_t part = mine.bytes() / ranks();
    return together(mine.device(), mine, {}, ready, [&](const Stream& stream) {
      for (int r = 0; r < ranks(); ++r)
        copy(at(post(r).in.raw(), rank_ * part), at(theirs.raw(), r * part), part, stream);
    });
  }

 private:
  using Post = ThreadGroup::Post;

  Post& post(int rank) { return group_.posts[static_cast<size_t>(rank)]; }

  // Posts the tensors, meets the others, does this rank's share of the work when all tensors are ready, and meets them
  // again, so that no tensor changes while another rank still reads it.
  template <class Work>
  Event together(Device device, const Tensor& in, const Tensor& out, const Event& ready, const Work& work) {
    const Stream& stream = device == Device::kCpu ? host_ : stream_;
    OWT_CHECK_EQ(device, stream.device(), "this communicator was made for another device");
    Post& mine = post(rank_);
    mine.in = in;
    mine.out = out;
    mine.ready = ready;
    // The host waits for its own tensors itself; only the queue of a GPU can wait for another thread's.
    if (device == Device::kCpu) ready.wait(), mine.ready = Event();
    group_.meet();
    for (const Post& other : group_.posts) stream.wait(other.ready);
    work(stream);
    mine.done = stream.record();
    group_.meet();
    mine.in = mine.out = Tensor();  // else their memory would last until the next collective
    for (const Post& other : group_.posts) stream.wait(other.done);
    return stream.record();
  }

  Slice share(int64_t elements) const { return share_of(elements, ranks(), rank_); }

  // The sum over ranks of `elements` elements from byte `offset` of their inputs.
  void sum_inputs(const Stream& stream, DType dtype, int64_t offset, int64_t elements, void* sum) const {
    std::vector<const void*> addends;
    for (const Post& post : group_.posts) addends.push_back(at(post.in.raw(), offset));
    sum_up_on(stream, dtype, addends, elements, sum);
  }

  static void sum_up_on(const Stream& stream, DType dtype, const std::vector<const void*>& addends, int64_t elements,
                        void* sum) {
    dispatch(stream.device(), [&](auto tag) { sum_up(tag, dtype, addends, elements, sum, stream); });
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

void ThreadGroup::meet() {
  const uint32_t phase = phase_.load();
  check();
  if (arrived_.fetch_add(1) + 1 == ranks()) {
    arrived_.store(0);
    phase_.fetch_add(1);
    phase_.notify_all();
  } else {
    for (int i = 0; i < spins_ && phase_.load() == phase; ++i) __builtin_ia32_pause();
    while (phase_.load() == phase) phase_.wait(phase);
  }
  check();
}

void ThreadGroup::abort() {
  aborted_.store(true);
  phase_.fetch_add(1);
  phase_.notify_all();
  const std::lock_guard lock(parts_mutex_);
  for (const auto& part : parts_)
    if (const auto group = part.lock()) group->abort();
}

ThreadGroup::Place ThreadGroup::split(int rank, int color) {
  joining_[static_cast<size_t>(rank)] = {color, nullptr};
  meet();
  int first = -1, members = 0;
  Place place;
  for (int r = 0; r < ranks(); ++r) {
    if (joining_[static_cast<size_t>(r)].color != color) continue;
    if (first < 0) first = r;
    if (r < rank) ++place.rank;
    ++members;
  }
  if (first == rank) {
    const auto made = std::make_shared<ThreadGroup>(members, spin_);
    const std::lock_guard lock(parts_mutex_);
    parts_.push_back(made);
    joining_[static_cast<size_t>(rank)].made = made;
  }
  meet();  // an abort until now is thrown here, a later one reaches the parts
  place.group = joining_[static_cast<size_t>(first)].made;
  meet();  // nobody joins the next groups before all have seen these
  return place;
}

void ThreadGroup::check() const {
  if (aborted()) throw Aborted("another rank failed");
}

std::unique_ptr<Communicator> make_thread_communicator(ThreadGroup& group, int rank, Device device) {
  return std::make_unique<ThreadCommunicator>(group, rank, device);
}

}  // namespace owt
