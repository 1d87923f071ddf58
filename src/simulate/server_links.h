// The links between simulated workers and their servers, by a virtual clock.
//
// Each of S servers has one S-th of every tensor, so together they act as one server with S links. If the workers
// serve, each of K has one K-th. A worker's own part does not travel, and each worker has one link in each direction
// for all messages.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "src/predict/virtual_clock.h"
#include "src/simulate/virtual_cluster.h"
#include "src/train/metrics.h"

namespace owt {

class ServerLinks {
 public:
  // Clock and cluster must outlive this, and this must outlive all messages.
  ServerLinks(VirtualClock& clock, const VirtualCluster& cluster, int workers);

  // Sends an empty message to the servers.
  void ask(std::function<void()> arrived);
  // Sends this many bytes to all servers, or from all of them. If workers serve, `bytes` includes the part that does
  // not travel.
  void push(int worker, int64_t bytes, std::function<void()> arrived);
  void pull(int worker, int64_t bytes, std::function<void()> arrived);

  // Bytes that a worker has sent or received, also as a server, since the last call.
  double take_handled(int worker) { return std::exchange(handled_[static_cast<size_t>(worker)], 0); }

  // Bytes sent so far.
  int64_t bytes_to_servers() const { return to_servers_; }
  int64_t bytes_to_workers() const { return to_workers_; }
  LinkBytes of_worker(int worker) const;
  std::optional<LinkBytes> of_each_server() const;  // unset: workers serve

 private:
  bool workers_serve() const { return cluster_.servers == kOnWorkers; }
  int64_t that_travel(int64_t bytes) const;
  void handle(int worker, int64_t sent);
  SharedLinks::Way way(int worker, bool to_servers) const;

  VirtualClock& clock_;
  const VirtualCluster& cluster_;
  size_t workers_;
  SharedLinks links_;
  std::vector<double> handled_;  // bytes, by worker
  int64_t to_servers_ = 0, to_workers_ = 0;
};

}  // namespace owt
