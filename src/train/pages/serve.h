// The report of runs served while they go on (owt watch), on this machine alone unless told otherwise.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/train/pages/run_record.h"

namespace owt {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 0;                      // 0: any that is free
  std::string layer{};               // PageOptions
  std::vector<std::string> names{};  // by which browsers know this machine, besides its own
};

// Answers
//   /         the page, with a script that puts it anew when there is news
//   /events   server-sent events: a number that grows with every change of the run's files
//   /metrics  where the run is, as Prometheus reads it (prometheus.h)
// and nothing else: requests name no files, and change nothing. A request must name this machine: a page from elsewhere
// whose name leads here (DNS rebinding) gets nothing. What requests can cost is bounded (http_server.h).
// Calls ready(url) when it listens, and returns soon after stop() is true. Throws Error where a folder holds no run,
// and where it cannot listen there.
void serve_runs(const std::vector<std::string>& folders, const ServeOptions& options,
                const std::function<void(const std::string& url)>& ready, const std::function<bool()>& stop);

}  // namespace owt
