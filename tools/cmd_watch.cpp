#include <iostream>

#include "src/comm/signals.h"
#include "src/report/pages/sections.h"
#include "src/report/pages/serve.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {

int command_watch(const Arguments& arguments) {
  Options options(
      "owt watch",
      "Serves the page of owt report to browsers on this machine and updates it while the runs train. "
      "For a folder of runs, the page lists the runs, also those that begin later. /metrics serves the metrics in "
      "Prometheus' text format. Ctrl-C ends it.");
  options.positional_list("RUN", "run folders, or one folder of run folders");
  options.option("port", "N", "8765", "TCP port to listen on; 0: any free port");
  options.option("host", "ADDRESS", "127.0.0.1",
                 "address to listen on; 0.0.0.0: anyone who can reach this machine has access, without a password");
  options.repeated("name", "NAME",
                   "another host name that browsers may use for this machine, besides localhost and its own");
  options.option("layer", "NAME", "layer whose filters are shown (default: the first layer with weights)");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  ServeOptions serve;
  serve.host = options.string("host");
  serve.port = static_cast<int>(options.integer("port", {.low = 0, .high = 65535}));
  const std::vector<std::string> folders = options.list("RUN");
  if (options.given("layer")) {
    serve.layer = options.string("layer");
    std::vector<RunRecord> runs;
    for (const std::string& folder : folders)
      if (folders.size() > 1 || has_run_files(folder)) runs.push_back(read_run(folder));
    read_option("layer", [&] { check_layer(runs, serve.layer); });
  }
  if (options.given("name")) serve.names = options.list("name");
  catch_stop_signals();
  const auto ready = [&](const std::string& url) {
    std::cout << format("{} shows {}; Ctrl-C ends this\n", url, joined(folders)) << std::flush;
  };
  serve_runs(folders, serve, ready, stop_requested);
  return 0;
}

}  // namespace owt
