// Serves the report of runs while they continue (owt watch), by default only to this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/report/pages/run_record.h"

namespace owt {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 0;                      // 0: any free port
  std::string layer{};               // see PageOptions
  std::vector<std::string> names{};  // further names of this machine in browsers
};

// Serves
//   /                  the page, with a script that replaces its content after changes
//   /events            server-sent events: a number that grows with every change of the run's files
//   /metrics           the state of the runs for Prometheus (prometheus.h)
// If there is one folder that is no run, the page lists the runs in it and in its subfolders, also later ones. Symbolic
// links are followed:
//   /run/NAME/         the page of a run; NAME: its folder, relative to the given one
//   /run/NAME/events   as /events
// Nothing else is served: requests name no files and change nothing. A request must name this machine, so a page from
// elsewhere whose name resolves here (DNS rebinding) gets nothing. The cost of requests is limited (http_server.h).
//
// Calls ready(url) when it listens, and returns soon after stop() is true. Throws Error if a folder contains no run,
// and if it cannot listen.
void serve_runs(const std::vector<std::string>& folders, const ServeOptions& options,
                const std::function<void(const std::string& url)>& ready, const std::function<bool()>& stop);

}  // namespace owt
