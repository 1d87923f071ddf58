// What a trained network needs to know of its training data, as files of the run folder, so that it can be used where
// the data is not:
//   statistics.json   the lists of DatasetStatistics (augment.h) by their names, but for empty ones; only where the
//                     recipe's augmentation wants statistics
//   classes.txt       line i names the class of output i: KEY, or KEY, a tab and words; only where names are known
//
// They belong to the weights: wherever weights of a run are used, in evaluation as in training that starts from them or
// goes on with them, the run's facts hold, and not those of the data that is met (data_identity.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/dataset.h"
#include "src/train/settings.h"

namespace owt {

struct DataFacts {
  DatasetStatistics statistics;
  std::vector<std::string> class_names;  // lines of classes.txt; may be empty
};

// What a run has written down, as far as it has.
struct RunFacts {
  std::string run;                              // its folder; empty: there is no run, and nothing is known
  std::optional<DatasetStatistics> statistics;  // as the recipe wants them; empty ones where it wants none
  std::vector<std::string> class_names;
};

// The folder of the run that a weights file belongs to, since it lies in a checkpoint of it or in the folder itself;
// empty: none.
std::string run_of_weights(const std::string& file);

// What the run folder (empty: none) holds; rank 0 reads. Collective over the processes of a launch. Throws Error for
// damaged files, and for statistics of another recipe.
RunFacts facts_of_run(const Settings& settings, const std::string& run_folder);

// As statistics.json holds them.
std::string text_of(const DatasetStatistics& statistics);

// What stood there and is no longer true is kept beside (kept_files.h).
void write_data_facts(const std::string& run_folder, const DataFacts& facts);

// Those of the run folder; what it lacks (all, where it is empty) those of the data set in folder `data`, where one is
// given; what is made up can always be had. A line says what `data` is not used for. Throws Error where the recipe
// wants statistics and none are found, and for damaged files.
DataFacts find_data_facts(const Settings& settings, const std::string& run_folder, const std::string& data);

// A line to the log where the data set in folder `data` has means or deviations of its own that are not `used`, which
// are those of the run. train: its training images, where they are open.
void tell_of_other_statistics(const Settings& settings, const std::string& data, const RunFacts& used,
                              const Dataset* train = nullptr);

}  // namespace owt
