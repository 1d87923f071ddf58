#include <filesystem>
#include <iostream>

#include "src/commands/launch_hosts.h"
#include "src/commands/run_folder.h"
#include "src/plan/plan.h"
#include "src/recipe/settings.h"
#include "src/report/pages/run_summary.h"
#include "src/roster/run_address.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

std::string workers_text(int64_t count) { return concat(count, count == 1 ? " worker" : " workers"); }

// Throws Error if the folder has no run with changing workers.
RunAddress address_in(const std::string& folder) {
  const std::string file = (fs::path(folder) / kRosterFile).string();
  if (!has_run_files(folder)) fail("there is no run in ", folder);
  if (!fs::exists(file))
    fail("the run in ", folder, " was not started with owt launch --elastic, so its workers cannot change");
  const std::string text = read_file(file);
  const std::optional<RunAddress> address = run_address_in(text.substr(0, text.find('\n')));
  if (!address) fail(file, " is '", text, "', wanted HOST:PORT and the run");
  return *address;
}

// Throws Error if the run could not continue with so many workers. `auto` takes another strategy then.
void check_plan(const std::string& folder, int workers) {
  Settings settings = read_settings((fs::path(folder) / "config.toml").string());
  if (workers == 0 || settings.parallel.automatic) return;
  settings.parallel.workers = workers;
  try {
    make_plan(settings.model, settings.plan_request());
  } catch (const Error& e) {
    fail("with ", workers_text(workers), " the run could not continue: ", e.what());
  }
}

RunWorkers ask(const std::string& run, int workers) {
  const bool in_folder = fs::is_directory(run);
  const std::optional<RunAddress> address = in_folder ? address_in(run) : run_address_in(run);
  if (!address) fail("no run folder ", run, "; wanted one, or HOST:PORT of a run of owt launch --elastic");
  if (in_folder) check_plan(run, workers);
  try {
    return ask_roster(*address, workers);
  } catch (const Error&) {
    const std::string end = in_folder ? read_run(run).metrics.end : "";
    if (!end.empty()) fail("the run in ", run, " has ended: ", end);
    throw;
  }
}

std::string change_text(const RunWorkers& run) {
  if (run.soon == run.now) return concat("the run has ", workers_text(run.now), " already");
  const int more = run.soon - run.now;
  return concat(workers_text(run.now), " -> ", run.soon, ": ",
                more > 0    ? concat(workers_text(more), more == 1 ? " starts" : " start", " on the host of owt launch")
                : more < -1 ? concat("the last ", -more, " leave one after the other")
                            : "the last one leaves after the current step");
}

std::string state_text(const RunWorkers& run, const std::string& folder) {
  return concat(workers_text(run.now), run.soon == run.now ? "" : concat(", soon ", run.soon), "; ", run.least, " to ",
                run.most, " are allowed",
                fs::is_directory(folder) ? concat("; step ", steps_text(read_run(folder))) : "");
}

}  // namespace

int command_ask(const Arguments& arguments) {
  Options options("owt ask",
                  "Shows the workers of a run that was started with owt launch --elastic, or changes their number. No "
                  "step is lost (docs/elastic.md).");
  options.positional("RUN", "the run folder; or HOST:PORT, which the run prints when it starts");
  options.option("workers", "N",
                 "ask for N workers: the last ones leave in order, or owt launch starts more on its host");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const std::string run = options.string("RUN");
  const int wanted =
      options.given("workers") ? static_cast<int>(options.integer("workers", {.low = 1, .high = kMostWorkers})) : 0;
  const RunWorkers workers = ask(run, wanted);
  std::cout << (wanted > 0 ? change_text(workers) : state_text(workers, run)) << '\n';
  return 0;
}

}  // namespace owt
