// The parts of a report, each a function from what is known of the runs to HTML. What there is no data for is said in a
// line, with how to get it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "data/augment.h"
#include "data/dataset.h"
#include "src/train/pages/html.h"
#include "src/train/pages/run_record.h"
#include "src/train/settings.h"

namespace owt {

using Runs = std::span<const RunRecord>;

std::string overview_section(Runs runs);  // where each run is, and how good
std::string curves_section(Runs runs);    // loss, accuracy, rates over epochs and over time
std::string settings_section(Runs runs);  // in which the runs differ, or all of one
std::string sizes_section(Runs runs);     // mean |w| and |dw| of each parameter
// Throws Error where there are weights and none of the runs has those of this layer.
void check_layer(Runs runs, const std::string& layer);
// The weights of a layer of the newest checkpoint as pictures; layer: empty: the first with weights.
std::string filters_section(Runs runs, const std::string& layer);
std::string times_section(Runs runs);     // of layers and transfers; bytes
std::string plan_section(Runs runs);      // what each rank has, and what travels; memory
std::string machines_section(Runs runs);  // machine, version, command of every start

// What a network says about the images of a split.
struct Answers {
  CsvTable predictions;  // as of Predictions::write_csv()
  std::shared_ptr<const Dataset> images;
  std::string split;    // "test"
  std::string weights;  // of which file
};
std::string answers_section(const Answers* answers);  // confusions, wrong images; null: none were asked for

// Training images as the network sees them.
struct SeenImages {
  std::shared_ptr<const Dataset> images;
  AugmentSettings augment;
  DatasetStatistics statistics;
};
std::string inputs_section(const SeenImages* seen);

}  // namespace owt
