#include "data/shard_statistics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <numeric>

#include <opencv2/core.hpp>

#include "data/json_numbers.h"
#include "data/parallel.h"
#include "data/pixel_ops.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kColourChannels = 3;

// Exact up to 2^48 pixels.
struct ColourSums {
  uint64_t pixels = 0;
  std::array<uint64_t, kColourChannels> value{};
  std::array<uint64_t, kColourChannels * kColourChannels> product{};  // the upper half

  void add(const ShardDataset::WholeImage& image) {
    const uint8_t* pixel = image.pixels.data();
    for (int64_t y = 0; y < image.height; ++y, pixel += image.width * 3) add_row(pixel, image.width);
    pixels += image.height * image.width;
  }
  void add(const ColourSums& other) {
    pixels += other.pixels;
    for (size_t i = 0; i < value.size(); ++i) value[i] += other.value[i];
    for (size_t i = 0; i < product.size(); ++i) product[i] += other.product[i];
  }

 private:
  void add_row(const uint8_t* pixel, int64_t width) {  // JPEG has at most 2^16 columns: 32 bits suffice
    uint32_t r = 0, g = 0, b = 0, rr = 0, rg = 0, rb = 0, gg = 0, gb = 0, bb = 0;
    for (int64_t x = 0; x < width; ++x) {
      const uint32_t red = pixel[3 * x], green = pixel[3 * x + 1], blue = pixel[3 * x + 2];
      r += red, g += green, b += blue;
      rr += red * red, rg += red * green, rb += red * blue;
      gg += green * green, gb += green * blue, bb += blue * blue;
    }
    value[0] += r, value[1] += g, value[2] += b;
    product[0] += rr, product[1] += rg, product[2] += rb;
    product[4] += gg, product[5] += gb, product[8] += bb;
  }
};

// The luma is the sum of weight times colour, and so are its mean and, with products of weights, its variance.
DatasetStatistics statistics_of_luma(const DatasetStatistics& colours) {
  constexpr double kWeights[] = {kRed / 65536.0, kGreen / 65536.0, kBlue / 65536.0};
  double mean = 0, variance = 0;
  for (size_t a = 0; a < kColourChannels; ++a) {
    mean += kWeights[a] * colours.channel_mean[a];
    for (size_t b = 0; b < kColourChannels; ++b)
      variance += kWeights[a] * kWeights[b] * colours.covariance[a * kColourChannels + b];
  }
  DatasetStatistics statistics;
  set_colours(statistics, {mean}, {std::max(0.0, variance)});
  return statistics;
}

std::string json_list(const std::vector<double>& values, size_t begin, size_t count) {
  std::string text = "[";
  for (size_t i = begin; i < begin + count; ++i) text += (i > begin ? ", " : "") + format("{:.17g}", values[i]);
  return text + "]";
}
std::string json_rows(const std::vector<double>& values) {
  std::string text = "[";
  for (size_t row = 0; row < kColourChannels; ++row)
    text += (row > 0 ? ", " : "") + json_list(values, row * kColourChannels, kColourChannels);
  return text + "]";
}

}  // namespace

void set_colours(DatasetStatistics& statistics, const std::vector<double>& mean,
                 const std::vector<double>& covariance) {
  const size_t channels = mean.size();
  OWT_CHECK_EQ(covariance.size(), channels * channels);
  statistics.channel_mean = mean;
  statistics.covariance = covariance;
  statistics.channel_std.clear();
  for (size_t c = 0; c < channels; ++c)
    statistics.channel_std.push_back(std::sqrt(std::max(0.0, covariance[c * channels + c])));
  const auto side = static_cast<int>(channels);
  const cv::Mat matrix(side, side, CV_64F, const_cast<double*>(covariance.data()));
  cv::Mat values, vectors;
  cv::eigen(matrix, values, vectors);  // the largest first, one vector per row
  statistics.eigenvalues.clear();
  statistics.eigenvectors.clear();
  for (int i = 0; i < side; ++i) {
    statistics.eigenvalues.push_back(std::max(0.0, values.at<double>(i)));
    const auto* row = vectors.ptr<double>(i);
    // Either sign is valid; this choice makes the file independent of the library.
    const double sign = std::accumulate(row, row + side, 0.0) < 0 ? -1 : 1;
    for (size_t c = 0; c < channels; ++c) statistics.eigenvectors.push_back(sign * row[c]);
  }
}

DatasetStatistics compute_statistics(const ShardDataset& dataset, const std::function<void(int64_t)>& progress) {
  ColourSums total;
  std::mutex mutex;
  int64_t done = 0;
  // Images are dealt one by one, so that threads end together; parts of the team's size would be large.
  constexpr int64_t kPart = 64;
  const int64_t parts = (dataset.size() + kPart - 1) / kPart;
  std::atomic<int64_t> next{0};
  parallel_for_or_throw(team_size(), 1, [&](int64_t, int64_t) {
    ShardDataset::WholeImage image;
    for (int64_t part = next++; part < parts; part = next++) {
      ColourSums sums;
      const int64_t begin = part * kPart, end = std::min(dataset.size(), begin + kPart);
      for (int64_t i = begin; i < end; ++i) {
        dataset.read_whole(i, image);
        sums.add(image);
      }
      const std::lock_guard lock(mutex);
      total.add(sums);
      if (progress) progress(done += end - begin);
    }
  });
  const double pixels = total.pixels;
  std::vector<double> mean, covariance(kColourChannels * kColourChannels);
  for (const uint64_t sum : total.value) mean.push_back(sum / pixels);
  for (size_t a = 0; a < kColourChannels; ++a)
    for (size_t b = a; b < kColourChannels; ++b) {
      // Exact integers: the difference of two large numbers would lose digits in double precision.
      const auto n = static_cast<unsigned __int128>(total.pixels);
      const auto joint = n * total.product[a * kColourChannels + b];
      const auto apart = static_cast<unsigned __int128>(total.value[a]) * total.value[b];
      const double difference =
          joint >= apart ? static_cast<double>(joint - apart) : -static_cast<double>(apart - joint);
      covariance[a * kColourChannels + b] = covariance[b * kColourChannels + a] = difference / pixels / pixels;
    }
  DatasetStatistics statistics;
  set_colours(statistics, mean, covariance);
  return statistics;
}

std::string statistics_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "train" / "stats.json").string();
}

void write_statistics(const std::string& folder, const DatasetStatistics& statistics) {
  const auto list = [](const std::vector<double>& values) { return json_list(values, 0, values.size()); };
  write_file_atomically(
      statistics_path(folder),
      format("{{\n  \"mean\": {},\n  \"std\": {},\n  \"covariance\": {},\n  \"eigenvalues\": {},\n  "
             "\"eigenvectors\": {}\n}}\n",
             list(statistics.channel_mean), list(statistics.channel_std), json_rows(statistics.covariance),
             list(statistics.eigenvalues), json_rows(statistics.eigenvectors)));
}

DatasetStatistics read_statistics(const std::string& folder, int64_t channels) {
  const std::string path = statistics_path(folder);
  if (!std::filesystem::is_regular_file(path))
    fail("no file ", path, " with the means and colours of the training images; run owt prepare stats ", folder);
  const JsonNumbers json(path);
  DatasetStatistics statistics;
  statistics.channel_mean = json.numbers("mean", kColourChannels);
  statistics.channel_std = json.numbers("std", kColourChannels);
  statistics.covariance = json.numbers("covariance", kColourChannels * kColourChannels);
  statistics.eigenvalues = json.numbers("eigenvalues", kColourChannels);
  statistics.eigenvectors = json.numbers("eigenvectors", kColourChannels * kColourChannels);
  for (const auto* values : {&statistics.channel_std, &statistics.eigenvalues})
    if (std::any_of(values->begin(), values->end(), [](double value) { return value < 0; }))
      fail(path, ": a deviation or an eigenvalue is below 0; run owt prepare stats ", folder);
  return channels == 1 ? statistics_of_luma(statistics) : statistics;
}

}  // namespace owt
