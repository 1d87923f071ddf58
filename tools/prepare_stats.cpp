#include <iostream>

#include "data/shard_statistics.h"
#include "src/core/threads.h"
#include "tools/commands.h"
#include "tools/prepare_progress.h"

namespace owt {

int prepare_stats(const Arguments& arguments) {
  Options options(
      "owt prepare stats",
      "Measures the mean, deviation and covariance of the colours of a prepared data set's training images, "
      "which normalising and colour noise need.");
  options.positional("DIR", "the data set, as owt prepare made it; gets train/stats.json");
  options.option("threads", "T", "0", "0: all cores");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const auto threads = static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
  set_team_size(threads > 0 ? threads : hardware_cores());
  const std::string folder = options.string("DIR");
  const ShardDataset images(folder, Split::kTrain, {});
  DatasetStatistics statistics;
  {
    PrepareProgress progress("stats");
    statistics =
        compute_statistics(images, [&](int64_t done) { progress.update({.done = done, .photos = images.size()}); });
  }
  write_statistics(folder, statistics);
  std::cout << statistics_path(folder) << ": of " << images.size() << " images; mean";
  for (const double mean : statistics.channel_mean) std::cout << ' ' << mean;
  std::cout << ", deviation";
  for (const double deviation : statistics.channel_std) std::cout << ' ' << deviation;
  std::cout << '\n';
  return 0;
}

}  // namespace owt
