// What a trained network needs to know of its training data, in files of the run folder, so that it can be used without
// the data:
//   statistics.json   the non-empty lists of DatasetStatistics (augment.h) by name; only if the recipe's augmentation
//                     needs statistics
//   classes.txt       line i names the class of output i: KEY, or KEY, a tab and words; only if names are known
//
// These facts belong to the weights. Evaluation, fine-tuning and resumed training use the facts of the weights' run,
// not facts of the data at hand (data_identity.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/dataset.h"
#include "src/recipe/settings.h"

namespace owt {

struct DataFacts {
  DatasetStatistics statistics;
  std::vector<std::string> class_names;  // lines of classes.txt; may be empty
};

// The facts that a run folder contains.
struct RunFacts {
  std::string run;                              // the run folder; empty: there is no run, and nothing is known
  std::optional<DatasetStatistics> statistics;  // unset if missing; empty if the recipe needs none
  std::vector<std::string> class_names;
};

// The run folder that a weights file belongs to, because it is in one of its checkpoints or in the folder itself;
// empty: none.
std::string run_of_weights(const std::string& file);

// Reads the facts of a run folder (empty: none) on rank 0. Collective over the processes of a launch. Throws Error for
// damaged files, and for statistics of another recipe.
RunFacts facts_of_run(const Settings& settings, const std::string& run_folder);

// The content of statistics.json.
std::string text_of(const DatasetStatistics& statistics);

// Files with other content are kept under another name (kept_files.h).
void write_data_facts(const std::string& run_folder, const DataFacts& facts);

// The facts of the run folder. Missing facts (all, if it is empty) come from the data set in folder `data`, if given;
// synthetic data is always available. Logs what `data` is not used for. Throws Error if the recipe needs statistics and
// there are none, and for damaged files.
DataFacts find_data_facts(const Settings& settings, const std::string& run_folder, const std::string& data);

// Logs if the data set in folder `data` has other means or deviations than `used`, the facts of the run. train: its
// training images, if they are open.
void tell_of_other_statistics(const Settings& settings, const std::string& data, const RunFacts& used,
                              const Dataset* train = nullptr);

}  // namespace owt
