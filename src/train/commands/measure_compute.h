// How long the layers of a model take here, for the planner.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/parallel/compute_model.h"
#include "src/train/report.h"
#include "src/train/settings.h"

namespace owt {

// Times a few steps of the whole model with each of these numbers of rows. To be called by all ranks of `together`,
// with the threads they will have: each works for itself at the same time as the others, and all get the mean over the
// ranks. Two numbers of rows or more tell what does not grow with the rows.
ComputeSamples measure_compute(const Settings& settings, Communicator& together, std::span<const int64_t> rows);
// The median of the means of nine parts of the values, as long as can be. Where a processor is shared or has a limit, a
// worker stands still now and then, so that most of its steps take as long as ever, and their median does too. A stop
// that does not come again counts for nothing.
double median_of_means(std::span<const double> values);
// Collective: the seconds that forward and backward of a step of so many rows of the whole model take the calling rank,
// as median_of_means() says, while the other ranks do the same for about as long.
double seconds_alone(const Settings& settings, Communicator& together, int64_t rows);
// Collective: of every time in the samples, the mean over the ranks takes its place.
void take_mean(ComputeSamples& samples, Communicator& together, Device device);
// Numbers of rows that suit a run of `request`: those of one rank, and a quarter of them.
std::vector<int64_t> rows_to_measure(const PlanRequest& request);

// Adds the times of one table of `owt time`. `plan` is one in which no layer is split, with the precision of the table.
// Throws Error where the table is not of this model, or was made with split layers.
void add_samples(std::span<const TimingRow> rows, const Plan& plan, ComputeSamples& samples);

// The rows of a CSV file of `owt time`. Throws Error naming the file and the line.
std::vector<TimingRow> read_times(const std::string& path);

}  // namespace owt
