#include "src/comm/transfers.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "src/comm/chain.h"
#include "src/comm/shares.h"
#include "src/comm/sums.h"

namespace owt {
namespace {

constexpr int64_t kChunk = 512 << 10;  // bytes; one chunk is added while the next one is in transit
constexpr int64_t kLeastChunk = 64 << 10;
constexpr int64_t kMostScratch = 64 << 20;
constexpr int kInFlight = 4;      // chunks in transit between two ranks
constexpr int kSumsInFlight = 8;  // sums in transit on their way back

const std::byte* bytes_of(const Tensor& tensor) { return static_cast<const std::byte*>(tensor.raw()); }
std::byte* bytes_of(Tensor& tensor) { return static_cast<std::byte*>(tensor.raw()); }

void copy_unless_same(const std::byte* from, std::byte* to, int64_t bytes) {
  if (from != to && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Chunk `index` of a range, as a range; empty after its end.
Slice chunk_of(const Slice& range, int64_t chunk, int64_t index) {
  const int64_t begin = std::min(range.begin + index * chunk, range.end);
  return {begin, std::min(begin + chunk, range.end)};
}

int64_t chunks_in(int64_t items, int64_t chunk) { return (items + chunk - 1) / chunk; }

// Every rank sums its share of all ranks' tensors, chunk by chunk, while the next chunks are in transit.
class ShareSums {
 public:
  // shares: by rank, in elements of `all`; sum: the memory for this rank's share.
  ShareSums(GroupWire& wire, DType dtype, std::vector<Slice> shares, const std::byte* all, std::byte* sum)
      : wire_(wire), dtype_(dtype), size_(size_of(dtype)), shares_(std::move(shares)), all_(all), sum_(sum) {
    const int64_t fits = kMostScratch / ((wire.ranks() - 1) * kInFlight);
    chunk_ = std::clamp(fits, kLeastChunk, kChunk) / size_;
    int64_t largest = 0;
    for (const Slice& share : shares_) largest = std::max(largest, share.size());
    chunks_ = chunks_in(largest, chunk_);
    scratch_ = wire.scratch((wire.ranks() - 1) * std::min<int64_t>(kInFlight, chunks_) * chunk_ * size_);
  }

  // Calls summed(index) after each chunk, when this rank's parts of it have been sent.
  template <class Summed>
  void run(const Summed& summed) {
    for (int64_t i = 0; i < std::min<int64_t>(kInFlight, chunks_); ++i) post(i);
    for (int64_t i = 0; i < chunks_; ++i) {
      wire_.wait(slot(i).receives);
      add(i);
      wire_.wait(slot(i).sends);
      summed(i);
      if (i + kInFlight < chunks_) post(i + kInFlight);
    }
  }

  Slice chunk(int rank, int64_t index) const {  // in elements
    return chunk_of(shares_[static_cast<size_t>(rank)], chunk_, index);
  }

 private:
  struct ChunkRequests {
    Requests receives, sends;
  };

  ChunkRequests& slot(int64_t index) { return slots_[static_cast<size_t>(index % kInFlight)]; }

  // The chunk of the rank `step` after this one.
  std::byte* received(int64_t index, int step) const {
    return scratch_ + ((index % kInFlight) * (wire_.ranks() - 1) + step - 1) * chunk_ * size_;
  }

  void post(int64_t index) {
    const Slice mine = chunk(wire_.rank(), index);
    for (int step = 1; step < wire_.ranks(); ++step)
      wire_.receive(slot(index).receives, received(index, step), mine.size() * size_, wire_.after(step));
    for (int step = 1; step < wire_.ranks(); ++step) {
      const int to = wire_.before(step);
      const Slice theirs = chunk(to, index);
      wire_.send(slot(index).sends, all_ + theirs.begin * size_, theirs.size() * size_, to);
    }
  }

  void add(int64_t index) {
    const Slice mine = chunk(wire_.rank(), index);
    if (mine.size() == 0) return;
    std::vector<const void*> addends(static_cast<size_t>(wire_.ranks()));
    addends[static_cast<size_t>(wire_.rank())] = all_ + mine.begin * size_;
    for (int step = 1; step < wire_.ranks(); ++step)
      addends[static_cast<size_t>(wire_.after(step))] = received(index, step);
    const int64_t offset = mine.begin - shares_[static_cast<size_t>(wire_.rank())].begin;
    sum_up(Cpu{}, dtype_, addends, mine.size(), sum_ + offset * size_, Stream());
  }

  GroupWire& wire_;
  DType dtype_;
  int64_t size_;
  std::vector<Slice> shares_;
  const std::byte* all_;
  std::byte* sum_;
  int64_t chunk_ = 0, chunks_ = 0;  // elements of a chunk, and number of chunks
  std::byte* scratch_ = nullptr;
  std::array<ChunkRequests, kInFlight> slots_;
};

// A chain of ranks that begins at `first` and follows their numbers in a ring.
struct Chain {
  Chain(const GroupWire& wire, int first)
      : position((wire.rank() - first + wire.ranks()) % wire.ranks()),
        is_last(position == wire.ranks() - 1),
        next(wire.after(1)),
        previous(wire.before(1)) {}

  int position;
  bool is_last;
  int next, previous;
};

void send_all_reduce(GroupWire& wire, Tensor& sum) {
  std::byte* const all = bytes_of(sum);
  const int64_t size = size_of(sum.dtype());
  std::vector<Slice> shares;
  for (int r = 0; r < wire.ranks(); ++r) shares.push_back(share_of(sum.elements(), wire.ranks(), r));
  ShareSums sums(wire, sum.dtype(), shares, all, all + shares[static_cast<size_t>(wire.rank())].begin * size);
  std::array<Requests, kSumsInFlight> under_way;
  sums.run([&](int64_t index) {
    Requests& requests = under_way[static_cast<size_t>(index % kSumsInFlight)];
    wire.wait(requests);
    const Slice mine = sums.chunk(wire.rank(), index);
    for (int step = 1; step < wire.ranks(); ++step) {
      const int to = wire.after(step), from = wire.before(step);
      const Slice theirs = sums.chunk(from, index);
      wire.receive(requests, all + theirs.begin * size, theirs.size() * size, from, GroupWire::kSums);
      wire.send(requests, all + mine.begin * size, mine.size() * size, to, GroupWire::kSums);
    }
  });
  for (Requests& requests : under_way) wire.wait(requests);
}

void send_all_gather(GroupWire& wire, const Tensor& mine, Tensor& all) {
  Requests requests;
  for (int step = 1; step < wire.ranks(); ++step) {
    const int to = wire.after(step), from = wire.before(step);
    wire.receive(requests, bytes_of(all) + from * mine.bytes(), mine.bytes(), from);
    wire.send(requests, bytes_of(mine), mine.bytes(), to);
  }
  copy_unless_same(bytes_of(mine), bytes_of(all) + wire.rank() * mine.bytes(), mine.bytes());
  wire.wait(requests);
}

void send_reduce_scatter(GroupWire& wire, const Tensor& all, Tensor& mine) {
  std::vector<Slice> shares;
  for (int r = 0; r < wire.ranks(); ++r) shares.push_back({r * mine.elements(), (r + 1) * mine.elements()});
  ShareSums(wire, mine.dtype(), shares, bytes_of(all), bytes_of(mine)).run([](int64_t) {});
}

void send_all_to_all(GroupWire& wire, const Tensor& mine, Tensor& theirs) {
  const int64_t part = mine.bytes() / wire.ranks();
  Requests requests;
  for (int step = 1; step < wire.ranks(); ++step) {
    const int to = wire.after(step), from = wire.before(step);
    wire.receive(requests, bytes_of(theirs) + from * part, part, from);
    wire.send(requests, bytes_of(mine) + to * part, part, to);
  }
  copy_unless_same(bytes_of(mine) + wire.rank() * part, bytes_of(theirs) + wire.rank() * part, part);
  wire.wait(requests);
}

void send_broadcast(GroupWire& wire, const Tensor& from_root, Tensor& out, int root) {
  const Chain chain(wire, root);
  const bool is_root = chain.position == 0;
  const std::byte* const from = is_root ? bytes_of(from_root) : bytes_of(out);
  const Slice whole{0, out.bytes()};
  const int64_t size = chain_chunk(whole.size(), wire.ranks()), chunks = chunks_in(whole.size(), size);
  std::vector<Requests> receives(static_cast<size_t>(is_root ? 0 : chunks));
  Requests sends;
  const auto receive = [&](int64_t index) {
    const Slice chunk = chunk_of(whole, size, index);
    wire.receive(receives[static_cast<size_t>(index)], bytes_of(out) + chunk.begin, chunk.size(), chain.previous);
  };
  for (int64_t i = 0; !is_root && i < std::min<int64_t>(kInFlight, chunks); ++i) receive(i);
  for (int64_t i = 0; i < chunks; ++i) {
    if (!is_root) wire.wait(receives[static_cast<size_t>(i)]);
    if (!is_root && i + kInFlight < chunks) receive(i + kInFlight);
    if (chain.is_last) continue;
    if (i % kInFlight == 0) wire.wait(sends);
    const Slice chunk = chunk_of(whole, size, i);
    wire.send(sends, from + chunk.begin, chunk.size(), chain.next);
  }
  if (is_root) copy_unless_same(from, bytes_of(out), whole.size());
  wire.wait(sends);
}

void send_reduce(GroupWire& wire, const Tensor& mine, Tensor& sum_on_root, int root) {
  const Chain chain(wire, (root + 1) % wire.ranks());  // the root is its end
  const int64_t size = size_of(mine.dtype()), chunk = chain_chunk(mine.bytes(), wire.ranks()) / size;
  const Slice whole{0, mine.elements()};
  const int64_t chunks = chunks_in(whole.size(), chunk);
  const bool is_first = chain.position == 0;
  std::byte* const scratch = wire.scratch(is_first ? 0 : std::min<int64_t>(kInFlight, chunks) * chunk * size);
  std::array<Requests, kInFlight> receives, sends;
  const auto slot = [](int64_t index) { return static_cast<size_t>(index % kInFlight); };
  const auto memory = [&](int64_t index) { return scratch + (index % kInFlight) * chunk * size; };
  const auto receive = [&](int64_t index) {
    wire.wait(sends[slot(index)]);  // it used the same memory
    const int64_t bytes = chunk_of(whole, chunk, index).size() * size;
    wire.receive(receives[slot(index)], memory(index), bytes, chain.previous);
  };
  for (int64_t i = 0; !is_first && i < std::min<int64_t>(kInFlight, chunks); ++i) receive(i);
  for (int64_t i = 0; i < chunks; ++i) {
    const Slice range = chunk_of(whole, chunk, i);
    const std::byte* const own = bytes_of(mine) + range.begin * size;
    if (is_first) {
      wire.wait(sends[slot(i)]);
      wire.send(sends[slot(i)], own, range.size() * size, chain.next);
      continue;
    }
    wire.wait(receives[slot(i)]);
    std::byte* const sum = chain.is_last ? bytes_of(sum_on_root) + range.begin * size : memory(i);
    sum_up(Cpu{}, mine.dtype(), {memory(i), own}, range.size(), sum, Stream());
    if (!chain.is_last) wire.send(sends[slot(i)], sum, range.size() * size, chain.next);
    // A chunk's memory is free when it has been sent on. The previous chunk has had the most time for that.
    if (i >= 1 && i - 1 + kInFlight < chunks) receive(i - 1 + kInFlight);
  }
  for (Requests& requests : sends) wire.wait(requests);
}

}  // namespace

void GroupWire::send(Requests& requests, const std::byte* from, int64_t bytes, int to_rank, Tag tag) {
  for (int64_t sent = 0; sent < bytes; sent += kMostInRequest)
    thread_.links().send(requests, from + sent, std::min(kMostInRequest, bytes - sent),
                         group_.members[static_cast<size_t>(to_rank)], tag_of(group_, tag));
}

void GroupWire::receive(Requests& requests, std::byte* to, int64_t bytes, int from_rank, Tag tag) {
  for (int64_t received = 0; received < bytes; received += kMostInRequest)
    thread_.links().receive(requests, to + received, std::min(kMostInRequest, bytes - received),
                            group_.members[static_cast<size_t>(from_rank)], tag_of(group_, tag));
}

void transfer(GroupWire& wire, const Call& call) {
  Tensor out = call.out;
  switch (call.collective) {
    case Collective::kAllReduce:
      return send_all_reduce(wire, out);
    case Collective::kAllGather:
      return send_all_gather(wire, call.in, out);
    case Collective::kReduceScatter:
      return send_reduce_scatter(wire, call.in, out);
    case Collective::kBroadcast:
      return send_broadcast(wire, call.in, out, call.root);
    case Collective::kReduce:
      return send_reduce(wire, call.in, out, call.root);
    case Collective::kAllToAll:
      return send_all_to_all(wire, call.in, out);
    case Collective::kSend:
    case Collective::kReceive:
      break;
  }
}

}  // namespace owt
