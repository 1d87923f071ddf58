// Measures the time of a model's layers on this machine, for the planner.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/predict/compute_model.h"
#include "src/recipe/settings.h"
#include "src/report/report.h"

namespace owt {

// Times a few steps of the whole model for each number of rows. Collective over `together`, with the threads of the
// later run: each rank works alone at the same time as the others, and all get the mean over the ranks. Two or more
// numbers of rows show the time that does not depend on the rows.
ComputeSamples measure_compute(const Settings& settings, Communicator& together, std::span<const int64_t> rows);
// The median of the means of nine equal parts of the values. On a shared or limited processor a worker is sometimes
// suspended; most of its steps are not affected, nor is their median. This value includes repeated suspensions, but not
// a single one.
double median_of_means(std::span<const double> values);
// Collective: the seconds of forward and backward for a step of `rows` rows of the whole model on the calling rank, by
// median_of_means(), while the other ranks do the same for about as long.
double seconds_alone(const Settings& settings, Communicator& together, int64_t rows);
// Collective: replaces every time in the samples by its mean over the ranks.
void take_mean(ComputeSamples& samples, Communicator& together, Device device);
// Numbers of rows for a run of `request`: the rows of one rank, and a quarter of them.
std::vector<int64_t> rows_to_measure(const PlanRequest& request);

// Adds the times of a table of `owt time`. plan: without split layers, in the precision of the table. Throws Error if
// the table belongs to another model, or was made with split layers.
void add_samples(std::span<const TimingRow> rows, const Plan& plan, ComputeSamples& samples);

// Reads the rows of a CSV file of `owt time`. Throws Error with the file and the line.
std::vector<TimingRow> read_times(const std::string& path);

}  // namespace owt
