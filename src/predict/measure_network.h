// Measures the network of this run.
#pragma once

#include "src/predict/bench.h"
#include "src/predict/network.h"

namespace owt {

// Makes a network from times measured among all its ranks.
Network measured_network(const std::vector<CollectiveTime>& times, int ranks, int hosts);

// Times collectives of a few sizes, in less than `seconds` unless links carry less than about 30 MB/s; a megabyte is
// always tried. All-to-all is assumed to take as long as all-gather, which sends as much, and reduce as long as
// broadcast. Collective; every rank gets the same result.
Network measure_network(Communicator& comm, Device device = Device::kCpu, double seconds = 1);

}  // namespace owt
