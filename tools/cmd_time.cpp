#include <iostream>

#include "src/comm/launch.h"
#include "src/commands/run.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {

int command_time(const Arguments& arguments) {
  Options options("owt time", "Times training steps on made-up images and shows where the time goes, layer by layer.");
  options.positional("CONFIG", concat("a recipe or a model: ", kFileOrName));
  declare_shared(options);
  declare_keys(options, {"batch"});
  declare_strategy(options);
  options.flag("evaluation", "time evaluation steps: forward pass and loss only");
  options.flag(
      "keep-gradients",
      "store the gradients of all weights before the update; so it is with several workers, which sum gradients");
  options.option("steps", "N", "30", "steps to time");
  options.option("csv", "FILE", "write the table as CSV too");
  options.option("trace", "FILE", "write a trace of every step for Perfetto (ui.perfetto.dev) or chrome://tracing");
  options.flag("what-if", "show how long the step would take if a layer, a transfer or a slow worker were faster");
  options.option("links", "FILE",
                 "link speeds from owt bench-comm --json: shown beside the measured transfers, and used to predict "
                 "other strategies");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  check_two_files(options, "csv", "trace");
  TimeOptions time_options;
  time_options.steps = options.integer("steps", {.low = 1, .high = 1e6});
  time_options.threads = shared_threads(options);
  time_options.evaluation = options.boolean("evaluation");
  time_options.keeps_gradients = options.boolean("keep-gradients");
  if (options.given("trace")) time_options.trace = options.string("trace");
  time_options.what_if = options.boolean("what-if");
  if (time_options.what_if && time_options.evaluation)
    throw UsageError("--what-if is about training steps; leave out --evaluation");
  if (options.given("links")) time_options.links = options.string("links");
  if (options.given("csv")) time_options.csv = options.string("csv");
  const TimeOutcome timed = time_steps(shared_settings(options), time_options);
  if (launch().rank != 0) return 0;
  std::cout << timed.report.table() << timed.bottleneck << '\n';
  if (!timed.what_if.empty()) std::cout << '\n' << timed.what_if;
  std::cout << std::flush;
  // last, since the disk may be full
  if (!time_options.csv.empty()) write_file_atomically(time_options.csv, timed.report.csv());
  if (!time_options.trace.empty()) write_file_atomically(time_options.trace, timed.trace);
  return 0;
}

}  // namespace owt
