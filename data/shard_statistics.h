// Statistics of the colours of a prepared data set, used by augmentation.
#pragma once

#include <functional>
#include <string>

#include "data/augment.h"
#include "data/shards.h"

namespace owt {

// Reads all pixels of all stored images, decoded whole by the calling rank's team of threads. Sums are exact, so they
// do not depend on the number of threads. Fills channel_mean, channel_std, covariance, eigenvalues and eigenvectors.
// `progress` (may be null) is called regularly with the number of images done, by one thread at a time.
DatasetStatistics compute_statistics(const ShardDataset& dataset, const std::function<void(int64_t images)>& progress);

// Fills in the values that follow from the mean and the covariance of the channels, both in units of 0 to 255.
void set_colours(DatasetStatistics& statistics, const std::vector<double>& mean, const std::vector<double>& covariance);

// DIR/train/stats.json in the folder DIR, of three channels. With channels = 1 it is read as the statistics of the
// luma, a weighted sum of the colours: exact up to the rounding of pixels. Reading throws Error with the cure if it is
// missing or damaged.
std::string statistics_path(const std::string& folder);
void write_statistics(const std::string& folder, const DatasetStatistics& statistics);
DatasetStatistics read_statistics(const std::string& folder, int64_t channels = 3);

}  // namespace owt
