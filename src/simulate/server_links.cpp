#include "src/simulate/server_links.h"

namespace owt {
namespace {

// The outgoing and the incoming link of every worker; then, if servers are separate, the links of all servers together.
std::vector<double> bandwidths(const VirtualCluster& cluster, int workers) {
  std::vector<double> links(2 * static_cast<size_t>(workers), cluster.link.bytes_per_s);
  if (cluster.servers != kOnWorkers) links.insert(links.end(), 2, cluster.link.bytes_per_s * cluster.servers);
  return links;
}

size_t out_of(size_t each) { return 2 * each; }
size_t into(size_t each) { return 2 * each + 1; }

}  // namespace

ServerLinks::ServerLinks(VirtualClock& clock, const VirtualCluster& cluster, int workers)
    : clock_(clock),
      cluster_(cluster),
      workers_(static_cast<size_t>(workers)),
      links_(clock, bandwidths(cluster, workers)),
      handled_(workers_) {}

int64_t ServerLinks::that_travel(int64_t bytes) const {
  const auto workers = static_cast<int64_t>(workers_);
  return workers_serve() ? bytes * (workers - 1) / workers : bytes;
}

// A message passes the worker's own link, and the links of the servers.
SharedLinks::Way ServerLinks::way(int worker, bool to_servers) const {
  const auto own = static_cast<size_t>(worker);
  SharedLinks::Way way{{to_servers ? out_of(own) : into(own)}};
  if (!workers_serve()) way.push_back({to_servers ? into(workers_) : out_of(workers_)});
  for (size_t other = 0; workers_serve() && other < workers_; ++other)
    if (other != own) way.push_back({to_servers ? into(other) : out_of(other), 1 / static_cast<double>(workers_ - 1)});
  return way;
}

// Counts the bytes for the worker and for the workers that serve.
void ServerLinks::handle(int worker, int64_t sent) {
  handled_[static_cast<size_t>(worker)] += static_cast<double>(sent);
  for (size_t other = 0; workers_serve() && other < workers_; ++other)
    if (other != static_cast<size_t>(worker))
      handled_[other] += static_cast<double>(sent) / static_cast<double>(workers_ - 1);
}

LinkBytes ServerLinks::of_worker(int worker) const {
  const auto own = static_cast<size_t>(worker);
  return {links_.taken(out_of(own)), links_.taken(into(own))};
}

std::optional<LinkBytes> ServerLinks::of_each_server() const {
  if (workers_serve()) return {};
  return LinkBytes{links_.taken(out_of(workers_)) / cluster_.servers, links_.taken(into(workers_)) / cluster_.servers};
}

void ServerLinks::ask(std::function<void()> arrived) { clock_.after(cluster_.link.latency_s, std::move(arrived)); }

void ServerLinks::push(int worker, int64_t bytes, std::function<void()> arrived) {
  const int64_t sent = that_travel(bytes);
  to_servers_ += sent;
  handle(worker, sent);
  clock_.after(cluster_.link.latency_s,
               [=, this, arrived = std::move(arrived)] { links_.send(sent, way(worker, true), arrived); });
}

void ServerLinks::pull(int worker, int64_t bytes, std::function<void()> arrived) {
  const int64_t sent = that_travel(bytes);
  to_workers_ += sent;
  handle(worker, sent);
  links_.send(sent, way(worker, false),
              [=, this, arrived = std::move(arrived)] { clock_.after(cluster_.link.latency_s, arrived); });
}

}  // namespace owt
