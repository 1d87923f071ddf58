// Checks that data fits a network. Everything that reads a data set with a network compares the data at hand with the
// facts that the run stored about its training data (data_facts.h; the checksum in state.json).
//
// Outputs stand for classes. If both sides have class names, a label means the output of the same name. The data may
// have the run's classes in another order, or some of them; other classes are an error. Names that are just their own
// numbers do not count as names. Without names label i means output i, and the data must have as many classes as the
// run, or as the model if there is no run. Synthetic data may have fewer. `data.classes`, or `--classes` on the command
// line, changes the rule:
//   "name"    the rule above
//   "number"  label i means output i whatever the names are; the data may have fewer classes than the model
//   "data"    in training: the model gets the classes of the data
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "src/files/run_state.h"
#include "src/recipe/settings.h"
#include "src/train/data_facts.h"
#include "src/train/start_weights.h"

namespace owt {

// The classes of a data set, and where they were found.
struct DataClasses {
  std::vector<std::string> lines;  // lines of a classes.txt; empty: no names
  int count = 0;
  std::string where;  // "the data in shards"
};

// The conversion of a data set's labels to a network's outputs.
struct LabelMap {
  std::vector<int> outputs;                 // the output of each class of the data
  std::vector<std::string> output_lines;    // names of the outputs, as lines of a classes.txt; empty: unknown
  std::string said;                         // a log line if labels are changed or names differ; empty otherwise
  bool changes(const Dataset& data) const;  // labels or their names
};

enum class Use { kTraining, kResuming, kEvaluation };

// Throws Error with the classes and a cure if they do not fit.
LabelMap match_classes(const Settings& settings, const RunFacts& known, const DataClasses& data, Use use);
// Returns `data` with the labels and names of the network's outputs.
std::shared_ptr<const Dataset> with_outputs_as_labels(std::shared_ptr<const Dataset> data, const LabelMap& map);

// Training with data.classes = "data": returns settings whose model has as many classes as the data in the folder, in
// model.classes and in the outputs of the last layer that has outputs. Adds that layer to start.except if the file has
// another number of outputs, or its run other classes. Logs a line. Collective over the processes of a launch; rank 0
// reads. Throws Error if the model's last layer is unclear.
Settings with_classes_of_data(Settings settings, const std::string& folder, StartWeights& start);

// The facts for training from these weights: the facts of the weights' run, without class names if its last layer is
// initialised randomly, and without statistics that this recipe cannot use. Collective.
RunFacts known_of_start(const Settings& settings, const StartWeights& start);
// The facts of the run that is resumed. Collective.
RunFacts known_of_resumed(const Settings& settings, const std::string& checkpoint);

// Whether these are the training images of the run: compares their number and, if state.json has it, their checksum.
bool same_training_images(const RunState& state, const Dataset& train);
// The state of the weights' checkpoint, or of the newest one of the run whose folder holds them, if there is one.
std::optional<RunState> state_of_weights(const std::string& file);
// Throws Error if the weights' run held other images out than the open job: these may be among its training images.
// data: the folder. Collective; rank 0 reads.
void check_held_out(const Job& job, const std::string& weights, const std::string& data);
// Prepares a state for other training images: their epoch begins, and the best evaluation, made with other images, is
// dropped.
void begin_with_other_data(RunState& state);

}  // namespace owt
