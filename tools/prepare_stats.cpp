#include <filesystem>
#include <iostream>

#include "data/other_data.h"
#include "data/shard_statistics.h"
#include "src/comm/signals.h"
#include "src/core/threads.h"
#include "src/system/files.h"
#include "tools/commands.h"
#include "tools/prepare_progress.h"

namespace owt {
namespace {

struct Stopped {};

// Called before all images are read.
void check_place(const std::string& folder) {
  const std::string path = statistics_path(folder), part = std::filesystem::path(path).parent_path().string();
  if (!writable_folder(part))
    fail("cannot write ", path, ": ", part, " is read-only; make a folder of links to what is in ", folder,
         " and use that one: cp -rs ", std::filesystem::absolute(folder).lexically_normal().string(), " LINKS");
}

}  // namespace

int measure_colours(const std::string& folder, int threads, MeasureWhen measured) {
  const std::string path = statistics_path(folder);
  if (measured == MeasureWhen::kWhereMissing &&
      (is_there(path) || !is_there(std::filesystem::path(path).replace_filename("dataset.json"))))
    return 0;
  const ShardDataset images(folder, Split::kTrain, {});
  check_place(folder);
  check_teams(1, threads);
  set_team_size(threads);
  DatasetStatistics statistics;
  try {
    PrepareProgress progress("stats");
    statistics = compute_statistics(images, [&](int64_t done) {
      progress.update({.done = done, .photos = images.size()});
      if (stop_requested()) throw Stopped();
    });
  } catch (const Stopped&) {
    std::cerr << path << ": stopped before it was written; owt prepare stats " << folder << " makes it\n";
    return kStoppedOnSignal;
  }
  write_statistics(folder, statistics);
  std::cout << path << ": " << images.size() << " images; channel mean";
  for (const double mean : statistics.channel_mean) std::cout << ' ' << mean;
  std::cout << ", std";
  for (const double deviation : statistics.channel_std) std::cout << ' ' << deviation;
  std::cout << '\n';
  return 0;
}

int prepare_stats(const Arguments& arguments) {
  Options options("owt prepare stats",
                  "Measures the mean, deviation and covariance of the colours of a prepared data set's training "
                  "images. Normalisation and colour augmentation need them.");
  options.positional("DIR", "data set made by owt prepare; gets train/stats.json");
  options.option("threads", "T", "0", "number of threads; 0: $OMP_NUM_THREADS, else all cores");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const auto threads = static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
  const int team = threads > 0 ? threads : default_threads();
  warn_of_crowd(team, concat(team, " threads"));
  catch_stop_signals();
  return measure_colours(options.string("DIR"), team, MeasureWhen::kAlways);
}

}  // namespace owt
