#include "src/comm/threads.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "src/core/log.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements of a sum per thread

// What a rank brings to the collective under way. Handles, so that the memory outlives a rank that fails
// meanwhile.
struct Post {
  Tensor in, out;
};

class ThreadGroup {
 public:
  ThreadGroup(int ranks, bool spin) : posts(static_cast<size_t>(ranks)), ranks_(ranks), spins_(spin ? 4000 : 0) {}

  // All ranks have come, and what they wrote before is visible to all. Throws Aborted when a rank failed.
  void meet() {
    const uint32_t phase = phase_.load();
    check();
    if (arrived_.fetch_add(1) + 1 == ranks_) {
      arrived_.store(0);
      phase_.fetch_add(1);
      phase_.notify_all();
    } else {
      for (int i = 0; i < spins_ && phase_.load() == phase; ++i) __builtin_ia32_pause();
      while (phase_.load() == phase) phase_.wait(phase);
    }
    check();
  }

  void abort() {
    aborted_.store(true);
    phase_.fetch_add(1);
    phase_.notify_all();
  }

  std::vector<Post> posts;

 private:
  void check() const {
    if (aborted_.load()) throw Aborted("another rank failed");
  }

  int ranks_, spins_;
  std::atomic<uint32_t> phase_{0};
  std::atomic<int> arrived_{0};
  std::atomic<bool> aborted_{false};
};

// Every collective: post the tensors, meet, read the others' (each rank does its share of the sums), meet
// again, so that no tensor changes while another rank still reads it.
class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank, int ranks) : group_(group), rank_(rank), ranks_(ranks) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  Event all_reduce(Tensor& sum, const Event& ready) override {
    if (ranks_ == 1) return ready;
    together({}, sum, ready, [&] {
      const Slice mine = split(sum.elements(), ranks_, rank_);
      std::vector<float*> all;
      for (Post& post : group_.posts) all.push_back(post.out.data() + mine.begin);
      parallel_for(mine.size(), kGrain, [&](int64_t begin, int64_t end) {
        // Nobody else touches this range, so rank 0's copy may hold the growing sum.
        add_up({all.begin(), all.end()}, begin, end, all[0]);
        for (size_t r = 1; r < all.size(); ++r) std::copy(all[0] + begin, all[0] + end, all[r] + begin);
      });
    });
    return {};
  }

  Event all_gather(const Tensor& mine, Tensor& all, const Event& ready) override {
    OWT_CHECK_EQ(all.bytes(), mine.bytes() * ranks_);
    together(mine, {}, ready, [&] {
      for (int r = 0; r < ranks_; ++r) copy(input(r).raw(), all, r * mine.bytes(), mine.bytes());
    });
    return {};
  }

  Event reduce_scatter(const Tensor& all, Tensor& mine, const Event& ready) override {
    OWT_CHECK_EQ(all.bytes(), mine.bytes() * ranks_);
    together(all, {}, ready, [&] {
      sum_inputs({rank_ * mine.elements(), (rank_ + 1) * mine.elements()}, mine.data());
    });
    return {};
  }

  Event broadcast(const Tensor& from_root, Tensor& out, int root, const Event& ready) override {
    together(from_root, {}, ready, [&] { copy(input(root).raw(), out, 0, out.bytes()); });
    return {};
  }

  Event reduce(const Tensor& mine, Tensor& sum_on_root, int root, const Event& ready) override {
    together(mine, rank_ == root ? sum_on_root : Tensor(), ready, [&] {
      const Slice share = split(mine.elements(), ranks_, rank_);
      sum_inputs(share, group_.posts[static_cast<size_t>(root)].out.data() + share.begin);
    });
    return {};
  }

  Event all_to_all(const Tensor& mine, Tensor& theirs, const Event& ready) override {
    OWT_CHECK_EQ(mine.bytes() % ranks_, 0);
    const int64_t part = mine.bytes() / ranks_;
    together(mine, {}, ready, [&] {
      for (int r = 0; r < ranks_; ++r)
        copy(static_cast<const std::byte*>(input(r).raw()) + rank_ * part, theirs, r * part, part);
    });
    return {};
  }

 private:
  template <class Work>
  void together(const Tensor& in, const Tensor& out, const Event& ready, const Work& work) {
    ready.wait();
    group_.posts[static_cast<size_t>(rank_)] = {in, out};
    group_.meet();
    work();
    group_.meet();
  }

  const Tensor& input(int rank) const { return group_.posts[static_cast<size_t>(rank)].in; }

  // out[i] = values[0][i] + values[1][i] + ... in this order, a cache-sized block at a time; out may be
  // values[0].
  static void add_up(const std::vector<const float*>& values, int64_t begin, int64_t end, float* out) {
    constexpr int64_t kBlock = 4096;
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t last = std::min(end, first + kBlock);
      if (out != values[0]) std::copy(values[0] + first, values[0] + last, out + first);
      for (size_t r = 1; r < values.size(); ++r) {
        const float* more = values[r];
        for (int64_t i = first; i < last; ++i) out[i] += more[i];
      }
    }
  }

  // out[i] = the sum over ranks of element range.begin + i of their inputs.
  void sum_inputs(Slice range, float* out) const {
    std::vector<const float*> all;
    for (const Post& post : group_.posts) all.push_back(post.in.data() + range.begin);
    parallel_for(range.size(), kGrain, [&](int64_t begin, int64_t end) { add_up(all, begin, end, out); });
  }

  static void copy(const void* from, Tensor& to, int64_t offset, int64_t bytes) {
    if (bytes == 0) return;
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to.raw()) + offset;
    parallel_for(bytes, 1 << 18, [&](int64_t begin, int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
    });
  }

  ThreadGroup& group_;
  int rank_, ranks_;
};

}  // namespace

void run_ranks(int ranks, int team, const std::function<void(Communicator&)>& body) {
  OWT_CHECK(ranks >= 1);
  // Waiting ranks may spin a little where every rank has cores of its own; otherwise they would keep others
  // from work.
  ThreadGroup group(ranks, ranks * team <= hardware_cores());
  std::mutex mutex;
  std::exception_ptr failure;
  bool consequence = false;  // `failure` is only an Aborted
  const auto run = [&](int rank) {
    set_team_size(team);
    log_quiet(rank != 0);
    ThreadCommunicator communicator(group, rank, ranks);
    try {
      body(communicator);
    } catch (...) {
      bool aborted = false;
      try {
        throw;
      } catch (const Aborted&) {
        aborted = true;
      } catch (...) {
      }
      const std::lock_guard lock(mutex);
      if (!failure || (consequence && !aborted)) failure = std::current_exception(), consequence = aborted;
      group.abort();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  } catch (const std::system_error& e) {
    group.abort();
    for (std::thread& thread : threads) thread.join();
    fail("cannot start worker ", threads.size(), " of ", ranks, ": ", e.what(), "; use fewer workers");
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace owt
