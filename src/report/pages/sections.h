// The sections of a report: functions from run records to HTML. If there is no data for a section, a line says how to
// get it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "data/augment.h"
#include "data/dataset.h"
#include "src/recipe/settings.h"
#include "src/report/pages/html.h"
#include "src/report/pages/run_record.h"

namespace owt {

using Runs = std::span<const RunRecord>;

std::string overview_section(Runs runs);  // progress and quality of each run
std::string runs_section(Runs runs);      // a list of runs with links to their pages
std::string curves_section(Runs runs);    // loss, accuracy, rates over epochs and over time
std::string settings_section(Runs runs);  // settings that differ, or all settings of a single run
std::string sizes_section(Runs runs);     // mean |w| and |dw| of each parameter
// Throws Error if there are weights, but no run has weights of this layer.
void check_layer(Runs runs, const std::string& layer);
// The weights of a layer of the latest checkpoint as pictures. layer: empty: the first with weights.
std::string filters_section(Runs runs, const std::string& layer);
std::string pairs_section(Runs runs);     // what owt verify found: accuracy, ROC
std::string times_section(Runs runs);     // layers, transfers, bytes
std::string plan_section(Runs runs);      // parts of each rank, transfers, memory
std::string machines_section(Runs runs);  // machine, version, command of every start

// The predictions of a network for the images of a split.
struct Answers {
  CsvTable predictions;  // in the format of Predictions::write_csv()
  std::shared_ptr<const Dataset> images;
  std::string split;    // "test"
  std::string weights;  // the weights file
};
std::string answers_section(const Answers* answers);  // confusions, wrong images; null: not requested

// Training images as the network sees them.
struct SeenImages {
  std::shared_ptr<const Dataset> images;
  AugmentSettings augment;
  DatasetStatistics statistics;
};
std::string inputs_section(const SeenImages* seen);

}  // namespace owt
