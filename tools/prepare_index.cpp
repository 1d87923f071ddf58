// owt prepare index: makes shards of other programs readable without copying.
#include <iostream>

#include "data/prepare/index_tars.h"
#include "src/comm/signals.h"
#include "src/core/threads.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tools/commands.h"
#include "tools/most_skipped.h"
#include "tools/prepare_progress.h"

namespace owt {

int prepare_index(const Arguments& arguments) {
  Options options("owt prepare index",
                  "Indexes tar files in WebDataset format, so that owt can read them; no image is copied. A sample is "
                  "KEY.jpg and its label: KEY.cls, KEY.json or KEY.txt.");
  options.positional("DIR",
                     "folder with tar files in folders train and val, or with tar files, of which those with val or "
                     "test in their names are val; gets classes.txt and folders train and val");
  options.option("classes", "FILE",
                 "class names, one per line: line i names label i (default: DIR/classes.txt, else from the labels)");
  MostSkipped::declare(options);
  options.option("threads", "T", "0", "number of threads; 0: $OMP_NUM_THREADS, else all cores");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const MostSkipped skipped(options);
  const auto threads = static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
  const int team = threads > 0 ? threads : default_threads();
  warn_of_crowd(team, concat(team, " threads"));
  const std::string dir = options.string("DIR");
  const TarIndexing settings{
      .classes = options.given("classes") ? text_lines(options.string("classes")) : std::vector<std::string>(),
      .most_skipped = [&](int64_t images) { return skipped.of(images); },
      .threads = team};
  catch_stop_signals();
  log_info("Reading the tar files in {}", dir);
  std::vector<IndexedSplit> splits;
  {
    PrepareProgress progress("index");
    splits = index_tars(dir, settings, [&](const PrepareState& state) {
      progress.update(state);
      return !stop_requested();
    });
  }
  if (splits.empty()) {
    std::cerr << dir << ": stopped; nothing is indexed yet\n";
    return kStoppedOnSignal;
  }
  for (const IndexedSplit& split : splits) {
    std::cout << format(
        "{}: {} images of {} classes in {} tar files, indexed; {}\n", split.folder, split.images, split.classes,
        split.shards,
        split.skipped > 0 ? format("{} skipped, see {}/skipped.txt", split.skipped, split.folder) : "none skipped");
    if (split.turned > 0)
      std::cout << format(
          "{}: {} of the images {} rotated by EXIF, which is ignored here; owt prepare folder or list rotates them\n",
          split.folder, split.turned, split.turned == 1 ? "is" : "are");
  }
  return measure_colours(dir, settings.threads, MeasureWhen::kWhereMissing);
}

}  // namespace owt
