// Which data a network knows. What a run wrote down of its training data (data_facts.h; the checksum in state.json) is
// held against the data that is met: by everything that reads a data set with a network.
//
// Outputs stand for classes. Where both sides have names, a label means the output of the same name: the run's classes
// in another order, or some of them, will do, and others are an error. Names that are but numbers, as those of lists,
// are none. Without names label i means output i, and the data must have as many classes as the run had, or, where
// nothing is known of a run, as the model has. What is drawn ("synthetic") is no data of the user's: its classes may be
// fewer. `data.classes`, or `--classes` on the command line, says otherwise:
//   "name"    as above
//   "number"  label i means output i whatever the names are; the data may have fewer classes than the model
//   "data"    in training: first the model gets the classes of the data
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "src/train/data_facts.h"
#include "src/train/files/run_state.h"
#include "src/train/settings.h"
#include "src/train/start_weights.h"

namespace owt {

// The classes of a data set, and where they were found.
struct DataClasses {
  std::vector<std::string> lines;  // as in a classes.txt; empty: they have no names
  int count = 0;
  std::string where;  // "the data in shards"
};

// How the labels of a data set become those of a network.
struct LabelMap {
  std::vector<int> outputs;                 // of each class of the data
  std::vector<std::string> output_lines;    // names of the outputs, as in a classes.txt; empty: unknown
  std::string said;                         // for the log, where labels are changed or names differ; empty: nothing
  bool changes(const Dataset& data) const;  // labels or their names
};

enum class Use { kTraining, kResuming, kEvaluation };

// Throws Error, naming the classes and the cure, where they do not go together.
LabelMap match_classes(const Settings& settings, const RunFacts& known, const DataClasses& data, Use use);
// `data` with the labels and names of the network's outputs.
std::shared_ptr<const Dataset> with_outputs_as_labels(std::shared_ptr<const Dataset> data, const LabelMap& map);

// For training with data.classes = "data": the settings whose model has as many classes as the data in the folder, in
// model.classes and in the outputs of the last layer that has any; and that layer among start.except where the file has
// other outputs or its run other classes. A line says so. Collective over the processes of a launch; rank 0 reads.
// Throws Error where the model's last layer cannot be told.
Settings with_classes_of_data(Settings settings, const std::string& folder, StartWeights& start);

// The facts that training with these weights begins with: those of the run that they are of, but for the names of the
// classes where its last layer is drawn anew, and for statistics that this recipe cannot use. Collective.
RunFacts known_of_start(const Settings& settings, const StartWeights& start);
// Those of the run that is gone on with. Collective.
RunFacts known_of_resumed(const Settings& settings, const std::string& checkpoint);

// Whether these are the training images that the run has seen: by their number and, where state.json says it, by their
// checksum.
bool same_training_images(const RunState& state, const Dataset& train);
// Going on with other training images: their epoch begins, and the best evaluation, which was on others, is forgotten.
void begin_with_other_data(RunState& state);

}  // namespace owt
