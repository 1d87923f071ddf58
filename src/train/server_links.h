// The links between virtual workers and their servers, in the time of a virtual clock.
//
// Each of S servers has an S-th of every tensor, so that they take turns in nothing and are one server with S links.
// Where workers serve, each has a K-th, which does not travel to itself, and one link each way for all that does.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "src/parallel/virtual_clock.h"
#include "src/train/metrics.h"
#include "src/train/virtual_cluster.h"

namespace owt {

class ServerLinks {
 public:
  // Both must outlive this, and this all messages.
  ServerLinks(VirtualClock& clock, const VirtualCluster& cluster, int workers);

  // A message of no size to the servers.
  void ask(std::function<void()> arrived);
  // Messages of so many bytes to all servers, or from all of them; where workers serve, with the part that does not
  // travel.
  void push(int worker, int64_t bytes, std::function<void()> arrived);
  void pull(int worker, int64_t bytes, std::function<void()> arrived);

  // That a worker has sent or received, as a server too, since this was asked last.
  double take_handled(int worker) { return std::exchange(handled_[static_cast<size_t>(worker)], 0); }

  // That have left.
  int64_t bytes_to_servers() const { return to_servers_; }
  int64_t bytes_to_workers() const { return to_workers_; }
  LinkBytes of_worker(int worker) const;
  std::optional<LinkBytes> of_each_server() const;  // none: workers serve

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
