#include "src/predict/bench.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <string>

#include "src/comm/launch.h"
#include "src/comm/on_host.h"
#include "src/core/profiler.h"

namespace owt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The maximum over the ranks, for every element.
std::vector<double> largest(Communicator& comm, const std::vector<double>& mine, Device device) {
  const std::vector<double> all = on_host::gather(comm, mine, device);
  std::vector<double> most(mine.size(), 0);
  for (size_t i = 0; i < all.size(); ++i) most[i % mine.size()] = std::max(most[i % mine.size()], all[i]);
  return most;
}

// A collective of zeros with root 0; for messages, one to the next rank and one from the previous rank. `bytes` is
// rounded up to equal shares.
std::vector<Call> calls_of(Communicator& comm, Collective collective, int64_t bytes, Device device) {
  const int ranks = comm.ranks();
  const int64_t share = std::max<int64_t>((bytes + 4 * ranks - 1) / (4 * ranks), 1);
  const auto zeros = [&](bool whole) {
    Tensor tensor({whole ? share * ranks : share}, DType::kF32, device);
    tensor.zero();
    return tensor;
  };
  Call call{collective, zeros(collective != Collective::kAllGather), zeros(collective != Collective::kReduceScatter)};
  if (collective == Collective::kSend) {
    std::vector<Route> ring;
    for (int r = 0; r < ranks; ++r) ring.push_back({r, (r + 1) % ranks, call.in.bytes()});
    comm.connect(ring);
    return {{Collective::kSend, call.in, {}, (comm.rank() + 1) % ranks},
            {Collective::kReceive, {}, call.out, (comm.rank() + ranks - 1) % ranks}};
  }
  if (collective == Collective::kAllReduce) call.out = call.in;
  if (collective == Collective::kBroadcast && comm.rank() != 0) call.in = Tensor();
  if (collective == Collective::kReduce && comm.rank() != 0) call.out = Tensor();
  return {call};
}

}  // namespace

std::vector<Collective> all_collectives() {
  return {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter, Collective::kBroadcast,
          Collective::kReduce,    Collective::kAllToAll,  Collective::kSend};
}

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * others;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return others;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSend:
    case Collective::kReceive:
      return 1;
  }
  return 1;
}

CollectiveTime time_collective(Communicator& comm, Collective collective, int64_t bytes, const BenchLimits& limits,
                               Device device) {
  const std::vector<Call> calls = calls_of(comm, collective, bytes, device);
  const auto start = [&] {
    std::vector<Event> ends;
    for (const Call& call : calls) ends.push_back(comm.run(call));
    return ends;
  };
  const auto timed = [&] {
    on_host::gather(comm, std::vector<double>{0}, device);  // a late rank must not count
    const auto begin = Clock::now();
    for (const Event& end : start()) end.wait();
    return seconds_since(begin);
  };
  CollectiveTime result{collective, calls.front().whole().bytes()};
  for (int i = 0; i < limits.warm_up; ++i) timed();
  const std::vector<Event> probes = start();
  const bool all_done = std::all_of(probes.begin(), probes.end(), [](const Event& probe) { return probe.done(); });
  const double under_way = all_done ? 0 : 1;
  for (const Event& probe : probes) probe.wait();
  // All ranks must agree on the number of calls and on whether they overlap.
  const std::vector<double> agreed = largest(comm, {timed(), under_way}, device);
  const double fit = limits.seconds / std::max(agreed[0], 1e-9);
  result.calls = static_cast<int>(std::clamp<double>(fit, limits.fewest_calls, limits.most_calls));
  result.overlaps = agreed[1] > 0;
  std::vector<double> seconds(static_cast<size_t>(result.calls));
  for (double& value : seconds) value = timed();
  result.seconds = median(largest(comm, seconds, device));
  return result;
}

int count_hosts(Communicator& comm, Device device) {
  const auto all = on_host::gather(comm, std::vector{std::hash<std::string>()(host_name())}, device);
  return static_cast<int>(std::set(all.begin(), all.end()).size());
}

}  // namespace owt
