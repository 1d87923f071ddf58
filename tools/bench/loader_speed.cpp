// The speed of one core that makes batches from prepared shards, compared with a plain loader using OpenCV.
//
//   usage: loader_speed shards DIR [ROUNDS]         img/s of both, medians of interleaved rounds
//          loader_speed memory DIR [EPOCHS]         memory of the process after all slots were used, and at the end
//
// Seconds are processor time, so that other programs on the machine disturb less.
#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "data/loader.h"
#include "data/shards.h"
#include "src/core/philox.h"
#include "src/core/stream.h"
#include "src/system/files.h"

namespace owt {
namespace {

constexpr int64_t kBatch = 64, kCrop = 224, kSlots = 3;
constexpr int64_t kImagesPerRound = 2000;
constexpr std::array<double, 3> kMean{123.7, 116.3, 103.5}, kStd{58.4, 57.1, 57.4};

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Images per second of processor time; `batch` makes kBatch images.
template <class Batch>
double speed(const Batch& batch) {
  const double begin = processor_seconds();
  int64_t images = 0;
  for (; images < kImagesPerRound; images += kBatch) batch();
  return static_cast<double>(images) / (processor_seconds() - begin);
}

LoaderSettings loading(const std::string& folder, const CropSettings& crop) {
  AugmentSettings augment;
  augment.mirror = true;
  augment.mean = augment.std = AugmentSettings::From::kValues;
  augment.mean_values.assign(kMean.begin(), kMean.end());
  augment.std_values.assign(kStd.begin(), kStd.end());
  LoaderSettings settings;
  settings.dataset = std::make_shared<ShardDataset>(folder, Split::kTrain, crop);
  settings.augmenter = std::make_shared<Augmenter>(augment, settings.dataset->image());
  settings.batch = kBatch;
  settings.slots = kSlots;
  return settings;
}

// Decodes the whole image with imdecode, crops, converts, mirrors.
class PlainLoader {
 public:
  explicit PlainLoader(const std::string& folder) : out_(static_cast<size_t>(kSlots * kBatch * kCrop * kCrop * 3)) {
    for (int64_t shard = 0;; ++shard) {
      const std::string base = folder + "/train/" + shard_file_name(shard, "");
      if (!std::ifstream(base + ".index")) break;
      const ShardIndex index = parse_shard_index(read_file(base + ".index"), base);
      const std::string tar = read_file(base + ".tar");
      for (const ShardRecord& r : index.records) {
        const auto* begin = reinterpret_cast<const uint8_t*>(tar.data()) + r.offset;
        files_.emplace_back(begin, begin + r.bytes);
      }
    }
  }

  void batch() {
    for (int64_t row = 0; row < kBatch; ++row, ++made_) {
      const auto bits = random_.block(static_cast<uint64_t>(made_));
      const cv::Mat image = cv::imdecode(files_[bits[3] % files_.size()], cv::IMREAD_COLOR);
      const auto place = [](uint32_t bits, int extent) {
        return static_cast<int>(bits % static_cast<uint32_t>(extent - static_cast<int>(kCrop) + 1));
      };
      const cv::Rect part(place(bits[0], image.cols), place(bits[1], image.rows), kCrop, kCrop);
      cv::Mat rgb;
      cv::cvtColor(image(part), rgb, cv::COLOR_BGR2RGB);
      if ((bits[2] & 1) != 0) cv::flip(rgb, rgb, 1);
      constexpr int64_t kElements = kCrop * kCrop * 3;
      cv::Mat values(kCrop, kCrop, CV_32FC3, out_.data() + made_ % (kSlots * kBatch) * kElements);
      rgb.convertTo(values, CV_32FC3, 1 / kStd[0], -kMean[0] / kStd[0]);
    }
  }

 private:
  std::vector<std::vector<uint8_t>> files_;
  std::vector<float> out_;
  Philox random_{1, RandomStream::kTest};
  int64_t made_ = 0;
};

int shards(const std::string& folder, int rounds) {
  cv::setNumThreads(1);
  PlainLoader plain(folder);
  const Stream stream;
  std::vector<double> crops, parts, plains, crop_ratios, part_ratios;
  for (int round = 0; round < rounds; ++round) {
    const auto of = [&](const CropSettings& settings) {
      Loader loader(loading(folder, settings));
      for (int64_t i = 0; i < 2 * kSlots; ++i) loader.next(stream);
      return speed([&] { loader.next(stream); });
    };
    plain.batch();
    plains.push_back(speed([&] { plain.batch(); }));
    crops.push_back(of({.crop = kCrop, .short_side = 256}));
    parts.push_back(of({.crop = kCrop, .short_side = 256, .area = {0.08, 1.0}}));
    crop_ratios.push_back(crops.back() / plains.back());
    part_ratios.push_back(parts.back() / plains.back());
  }
  const auto line = [&](const char* what, const std::vector<double>& speeds, const std::vector<double>& ratios) {
    std::cout << what << static_cast<int64_t>(median(speeds)) << " img/s, " << median(ratios)
              << " x the plain loader\n";
  };
  std::cout.precision(3);
  std::cout << "plain OpenCV loader, random crop: " << static_cast<int64_t>(median(plains)) << " img/s\n";
  line("random crop:                      ", crops, crop_ratios);
  line("random-resized crop:              ", parts, part_ratios);
  return 0;
}

int64_t own_kilobytes() {  // anonymous resident memory
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssAnon:", 0) == 0) return std::stoll(line.substr(8));
  return -1;
}

int memory(const std::string& folder, int epochs) {
  Loader loader(loading(folder, {.crop = kCrop, .short_side = 256, .area = {0.08, 1.0}}));
  const Stream stream;
  for (int64_t step = 0; step < 4 * kSlots; ++step) loader.next(stream);
  const int64_t begin = own_kilobytes();
  for (int64_t step = 0; step < epochs * loader.steps_per_epoch(); ++step) loader.next(stream);
  std::cout << "memory of the loader: " << begin / 1024 << " MiB at the start, " << own_kilobytes() / 1024
            << " MiB after " << epochs << " epochs\n";
  return 0;
}

int run(const std::vector<std::string>& words) {
  const auto number = [&](int otherwise) { return words.size() > 2 ? std::stoi(words[2]) : otherwise; };
  if (words.size() >= 2 && words[0] == "shards") return shards(words[1], number(7));
  if (words.size() >= 2 && words[0] == "memory") return memory(words[1], number(20));
  std::cerr << "usage: loader_speed shards DIR [ROUNDS] | memory DIR [EPOCHS]\n";
  return 2;
}

}  // namespace
}  // namespace owt

int main(int count, char** words) {
  try {
    return owt::run({words + 1, words + count});
  } catch (const std::exception& error) {
    std::cerr << "loader_speed: error: " << error.what() << '\n';
    return 1;
  }
}
