#include "src/predict/measure_network.h"
#include "src/comm/on_host.h"

#include <algorithm>

namespace owt {
namespace {

// A size below a link's burst looks faster than it is, so one larger size is always tried.
constexpr int64_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};
constexpr int64_t kAlways = 1 << 20;

// Measures the link between the consecutive ranks of a host. The result is the mean over hosts, so all ranks get the
// same.
Link measure_local_link(Communicator& comm, int ranks_per_host, const BenchLimits& limits, Device device) {
  const auto host = comm.split(comm.rank() / ranks_per_host);
  const auto time = [&](int64_t bytes) {
    return time_collective(*host, Collective::kAllGather, bytes, limits, device).seconds;
  };
  const double latency = time(kSizes[0]) / (ranks_per_host - 1);
  const auto sent = static_cast<double>(bytes_sent(Collective::kAllGather, kAlways, ranks_per_host));
  const std::vector<double> sums = on_host::sum(comm, {latency, sent / time(kAlways)}, device);
  return {sums[0] / comm.ranks(), sums[1] / comm.ranks()};
}

}  // namespace

Network measured_network(const std::vector<CollectiveTime>& times, int ranks, int hosts) {
  Network network;
  network.hosts = hosts;
  network.ranks_per_host = ranks / hosts;
  network.measured_ranks = ranks;
  network.measured_hosts = hosts;
  network.overlaps = false;
  for (const CollectiveTime& time : times) {
    // On a busy machine a few bytes may appear to take longer than many; their time is then limited to the time of more
    // bytes.
    double seconds = std::max(time.seconds, 1e-9);
    for (const CollectiveTime& other : times)
      if (other.collective == time.collective && other.bytes > time.bytes)
        seconds = std::min(seconds, std::max(other.seconds, 1e-9));
    network.measured[time.collective].add(time.bytes, seconds);
    network.overlaps = network.overlaps || time.overlaps;
  }
  return network;
}

Network measure_network(Communicator& comm, Device device, double seconds) {
  const int hosts = count_hosts(comm, device);
  const BenchLimits limits{.warm_up = 1, .most_calls = 10, .fewest_calls = 2, .seconds = seconds / 50};
  std::vector<CollectiveTime> times;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter, Collective::kBroadcast})
    for (const int64_t bytes : kSizes) {
      if (comm.ranks() == 1) continue;
      // Times are the same on all ranks, and so are these decisions. At least five calls must fit.
      const double expected =
          bytes > kAlways ? times.back().seconds * static_cast<double>(bytes) / static_cast<double>(times.back().bytes)
                          : 0;
      if (5 * expected > seconds / 6) continue;
      times.push_back(time_collective(comm, collective, bytes, limits, device));
    }
  Network network = measured_network(times, comm.ranks(), comm.ranks() % hosts == 0 ? hosts : comm.ranks());
  if (comm.ranks() == 1) return network;
  network.measured[Collective::kAllToAll] = network.measured[Collective::kAllGather];
  network.measured[Collective::kReduce] = network.measured[Collective::kBroadcast];
  if (network.hosts > 1 && network.ranks_per_host > 1)
    network.local = measure_local_link(comm, network.ranks_per_host, limits, device);
  return network;
}

}  // namespace owt
