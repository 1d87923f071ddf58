#include <filesystem>
#include <iostream>

#include "src/commands/average.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {

int command_average(const Arguments& arguments) {
  Options options("owt average",
                  "Averages the weights of a run's last checkpoints, with the running statistics of batch norm, and "
                  "writes a weights file for --weights of other commands. The average is often more accurate than each "
                  "checkpoint while the learning rate is still high.");
  options.positional("RUN", "the run folder");
  options.option(
      "last", "N",
      "number of newest checkpoints to average (default: as many as run.keep_checkpoints, from two to five)");
  options.option("out", "FILE", "safetensors file to write (default: average.safetensors in the run folder)");
  options.flag("force", "overwrite an existing FILE");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  AverageOptions average;
  average.run_folder = options.string("RUN");
  if (options.given("last")) average.last = static_cast<int>(options.integer("last", {.low = 1, .high = 1e6}));
  average.out = options.given("out") ? options.string("out")
                                     : (std::filesystem::path(average.run_folder) / "average.safetensors").string();
  average.force = options.boolean("force");
  const AverageOutcome outcome = average_checkpoints(average);
  std::string steps;
  for (const int64_t step : outcome.steps) steps += format("{}{}", steps.empty() ? "" : ", ", step);
  std::cout << format("{}: the mean of {} checkpoint{}, step{} {} ({:.2f} M values)\n", average.out,
                      outcome.steps.size(), outcome.steps.size() == 1 ? "" : "s", outcome.steps.size() == 1 ? "" : "s",
                      steps, static_cast<double>(outcome.values) / 1e6);
  std::cout << format("owt eval {} --weights {} measures it\n", average.run_folder, average.out);
  return 0;
}

}  // namespace owt
