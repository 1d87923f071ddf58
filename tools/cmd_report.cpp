#include <filesystem>
#include <iostream>
#include <optional>

#include "data/prepare/temporary_folder.h"
#include "src/commands/run.h"
#include "src/files/checkpoint_files.h"
#include "src/report/pages/page.h"
#include "src/report/pages/sections.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/train/data_facts.h"
#include "src/train/inference.h"
#include "src/train/job.h"
#include "tools/commands.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

// The images of the first run that the page shows.
struct ShownImages {
  Answers answers;
  SeenImages seen;
};

Settings settings_of_run(const std::string& folder, const Options& options) {
  Overrides changes{{"run.device", options.string("device")}};
  if (options.given("classes")) changes.emplace_back("data.classes", checked_classes(options));
  return for_one_rank(read_settings((fs::path(folder) / "config.toml").string(), changes));
}

// Evaluates the best checkpoint like owt eval --predictions.
Answers answers_of(const Settings& settings, const std::string& run, const std::string& data, int threads) {
  const auto checkpoint = best_checkpoint(run);
  if (!checkpoint) fail(run, " has no checkpoint to evaluate; leave --data out until it has one");
  const TemporaryFolder folder(fs::temp_directory_path().string());
  EvalOptions eval;
  eval.weights = trained_weights_of(*checkpoint);
  eval.data = data;
  eval.threads = threads;
  eval.run_folder = run;
  eval.request.split = settings.data.evaluated();
  eval.request.predictions = folder.path() + "/predictions.csv";
  log_info("evaluating {} on the {} images", eval.weights, kind_of(eval.request.split));
  evaluate_file(settings, eval);
  return {csv_table_from(read_file(eval.request.predictions)),
          open_split(settings, data_folder(settings.data, data), eval.request.split), kind_of(eval.request.split),
          eval.weights};
}

ShownImages shown_of(const std::string& run, const Options& options) {
  const Settings settings = settings_of_run(run, options);
  const std::string data = options.string("data"), folder = data_folder(settings.data, data);
  ShownImages shown;
  shown.answers = answers_of(settings, run, data, shared_threads(options));
  shown.seen.images = open_split(settings, folder, Split::kTrain);
  shown.seen.augment = settings.data.augment;
  const auto statistics = facts_of_run(settings, run).statistics;
  shown.seen.statistics = statistics ? *statistics : statistics_of(settings, folder, shown.seen.images.get());
  return shown;
}

}  // namespace

int command_report(const Arguments& arguments) {
  Options options("owt report",
                  "Writes one self-contained HTML page about runs: the curves of all runs in one chart, the settings "
                  "in which they differ, filters, sizes of weights and updates, times, and the plan.");
  options.positional_list("RUN", "run folders, also of runs that are still training");
  options.option("out", "FILE", "report.html", "the page to write");
  options.option("layer", "NAME", "layer whose filters are shown (default: the first layer with weights)");
  options.option("data", "DIR",
                 "data set of the first run: evaluate its best checkpoint, and show confusions, wrong images and "
                 "augmented training images");
  declare_classes(options, ClassesOf::kTrained);
  options.option("device", "NAME", "auto", "cpu | cuda | auto: device that evaluates --data");
  options.option("threads", "T", "0", "compute threads for --data; 0: $OMP_NUM_THREADS, else all cores");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  for (const char* name : {"classes", "device", "threads"}) options.only_with(name, {"data"});
  const std::string out = options.string("out");
  check_output(out);
  std::vector<RunRecord> runs;
  for (const std::string& folder : options.list("RUN")) runs.push_back(read_run(folder));
  tell_apart(runs);
  if (options.given("layer")) read_option("layer", [&] { check_layer(runs, options.string("layer")); });
  std::optional<ShownImages> shown;
  if (options.given("data")) shown = shown_of(runs.front().folder, options);
  PageOptions page;
  if (options.given("layer")) page.layer = options.string("layer");
  if (shown) page.answers = &shown->answers, page.seen = &shown->seen;
  const std::string text = page_of(runs, page);
  write_file_atomically(out, text);
  std::cout << format("{}: {} run{}, {:.2f} MB\n", out, runs.size(), runs.size() == 1 ? "" : "s",
                      static_cast<double>(text.size()) / 1e6);
  return 0;
}

}  // namespace owt
