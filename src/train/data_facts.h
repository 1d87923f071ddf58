// What a trained network needs to know of its training data, as files of the run folder, so that it can be used where
// the data is not:
//   statistics.json   the lists of DatasetStatistics (augment.h) by their names, but for empty ones; only where the
//                     recipe's augmentation wants statistics
//   classes.txt       line i names class i; only where names are known
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/augment.h"
#include "src/train/settings.h"

namespace owt {

struct DataFacts {
  DatasetStatistics statistics;
  std::vector<std::string> class_names;  // may be empty
};

// The statistics in the run folder; nothing where the recipe wants some and there are none. Throws Error for damaged
// files and those of another recipe.
std::optional<DatasetStatistics> statistics_of_run(const Settings& settings, const std::string& run_folder);

// As statistics.json holds them.
std::string text_of(const DatasetStatistics& statistics);

// What stood there and is no longer true is kept beside (kept_files.h).
void write_data_facts(const std::string& run_folder, const DataFacts& facts);

// The facts of the data set in folder `data` where one is given, else those of the run folder, where there is one; what
// is made up can always be had. Throws Error where the recipe wants statistics and none are found, and for damaged
// files.
DataFacts find_data_facts(const Settings& settings, const std::string& run_folder, const std::string& data);

}  // namespace owt
