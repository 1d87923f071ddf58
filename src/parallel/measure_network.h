// The network this run is on, measured.
#pragma once

#include "src/comm/bench.h"
#include "src/parallel/network.h"

namespace owt {

// From times that were measured among all ranks of the network.
Network measured_network(const std::vector<CollectiveTime>& times, int ranks, int hosts);

// Times collectives with a few sizes, in less than `seconds` unless links carry less than about 30 MB/s: a megabyte is
// always tried. all_to_all is taken to last as long as all_gather, which sends as much, and reduce as long as
// broadcast. To be called by all ranks; every rank gets the same.
Network measure_network(Communicator& comm, Device device = Device::kCpu, double seconds = 1);

}  // namespace owt
