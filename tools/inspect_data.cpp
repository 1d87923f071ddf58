#include "tools/inspect_data.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>

#include "data/cifar.h"
#include "data/other_data.h"
#include "data/relabelled.h"
#include "data/shard_statistics.h"
#include "src/commands/json_output.h"
#include "src/recipe/settings.h"
#include "src/system/log.h"
#include "src/system/printable.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

bool holds_cifar(const std::string& folder) {
  for (const char* name :
       {"cifar-10-batches-bin", "cifar-100-binary", "data_batch_1.bin", "test_batch.bin", "train.bin", "test.bin"})
    if (is_there(fs::path(folder) / name)) return true;
  return false;
}

bool holds_shards(const std::string& folder) { return fs::exists(fs::path(folder) / "classes.txt"); }

// A data folder of either format, with one or both splits.
class Data {
 public:
  Data(const std::string& folder, const CropSettings& crop)
      : folder_(folder),
        crop_(crop),
        shards_(holds_shards(folder)),
        kind_(fs::exists(fs::path(folder) / "cifar-100-binary") || fs::exists(fs::path(folder) / "train.bin")
                  ? CifarKind::k100
                  : CifarKind::k10) {}

  bool shards() const { return shards_; }
  bool cifar() const { return holds_cifar(folder_); }
  bool has(Split split) const {
    return !shards_ || fs::is_directory(fs::path(folder_) / (split == Split::kTrain ? "train" : "val"));
  }
  std::unique_ptr<ShardDataset> open_shards(Split split) const {
    return std::make_unique<ShardDataset>(folder_, split, crop_);
  }
  std::shared_ptr<const Dataset> open(Split split) const {
    return shards_ ? open_shards(split) : read_cifar(folder_, kind_, split, crop_.channels);
  }
  bool has_statistics() const { return !shards_ || fs::exists(statistics_path(folder_)); }
  DatasetStatistics statistics() const {
    return shards_ ? read_statistics(folder_, crop_.channels) : compute_statistics(*open(Split::kTrain));
  }

 private:
  std::string folder_;
  CropSettings crop_;
  bool shards_;
  CifarKind kind_;
};

void print_channels(const char* title, const std::vector<double>& values) {
  std::cout << title;
  for (const double value : values) std::cout << format(" {:.4f}", value / 255);
}

// Smallest, median and largest value.
std::string spread(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return format("{} / {} / {}", values.front(), values[values.size() / 2], values.back());
}

void print_sizes(const ShardDataset& images) {
  std::vector<int64_t> heights, widths, bytes;
  for (int64_t i = 0; i < images.size(); ++i) {
    const ShardDataset::Stored stored = images.stored(i);
    heights.push_back(stored.height), widths.push_back(stored.width), bytes.push_back(stored.bytes);
  }
  std::cout << format("  min / median / max: height {}, width {}, bytes {}\n", spread(heights), spread(widths),
                      spread(bytes));
}

void print_class(size_t c, const std::vector<std::string>& names, const std::vector<int64_t>& counts) {
  std::cout << format("  {:>4} {:<40} {:>8}\n", c, names.empty() ? "" : printable(names[c]), counts[c]);
}

void print_classes(const std::vector<std::string>& names, const std::vector<int64_t>& counts, bool all) {
  constexpr size_t kAtAnEnd = 5;
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (all || counts.size() <= 2 * kAtAnEnd) {
    for (const size_t c : order) print_class(c, names, counts);
    return;
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return counts[a] > counts[b]; });
  for (size_t i = 0; i < kAtAnEnd; ++i) print_class(order[i], names, counts);
  std::cout << format("   ... {} more; --classes lists all\n", counts.size() - 2 * kAtAnEnd);
  for (size_t i = counts.size() - kAtAnEnd; i < counts.size(); ++i) print_class(order[i], names, counts);
}

// folder: for shards, the folder's name if it differs from the split's.
void print_counts(const Dataset& images, const std::string& sizes, Split split, bool all_classes,
                  const std::string& folder = "") {
  const std::vector<int64_t> counts = images_of_classes(images);
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  const std::string each = *least < *most ? format("{} to {} images", *least, *most)
                                          : format("{} image{} each", *least, *least == 1 ? "" : "s");
  std::cout << format("{}{}: {} images{}, {} classes of {}\n", name_of(split), folder, images.size(), sizes,
                      images.classes(), each);
  print_classes(images.class_names(), counts, all_classes);
  if (const std::string balance = balance_text(images); split == Split::kTrain && !balance.empty())
    std::cout << "  sampling = \"balanced\" would show " << balance << '\n';
}

void print_targets(const std::shared_ptr<const Dataset>& images, const std::string& path) {
  if (!fs::exists(path)) return;
  const auto table = with_targets(images, path, 0, false);
  std::vector<int32_t> row(static_cast<size_t>(table->targets()));
  int64_t positive = 0;
  for (int64_t i = 0; i < table->size(); ++i) {
    table->write_targets(i, row.data());
    positive += std::ranges::count_if(row, [](int32_t bits) { return target_of(bits) >= 0.5f; });
  }
  std::cout << format("  {}: {:.2f} classes of an image have a target of 0.5 or more\n",
                      fs::path(path).filename().string(),
                      static_cast<double>(positive) / static_cast<double>(table->size()));
}

void print_split(const Data& data, Split split, bool all_classes) {
  if (data.shards()) {
    const auto images = data.open_shards(split);
    print_counts(*images, "", split, all_classes, split == Split::kTest ? " (val)" : "");
    if (images->size() > 0) print_sizes(*images);
    return;
  }
  const auto images = data.open(split);
  print_counts(*images, " of " + images->image().str(), split, all_classes);
}

void print_colours(const Data& data) {
  if (!data.has_statistics()) {
    std::cout << "no stats.json: owt prepare stats DIR measures the mean, deviation and covariance of the channels\n";
    return;
  }
  const DatasetStatistics statistics = data.statistics();
  print_channels("training images, 0 to 1: channel mean", statistics.channel_mean);
  print_channels(", std", statistics.channel_std);
  std::cout << '\n';
}

OutputJson data_json(const std::string& folder, const Data& data) {
  OutputJson json{{"data", folder}, {"format", data.shards() ? "shards" : "cifar"}, {"splits", OutputJson::array()}};
  for (const Split split : {Split::kTrain, Split::kTest}) {
    if (!data.has(split)) continue;
    const auto images = data.open(split);
    OutputJson one{{"split", name_of(split)}, {"images", images->size()}, {"classes", OutputJson::array()}};
    const std::vector<int64_t> counts = images_of_classes(*images);
    const std::vector<std::string> names = images->class_names();
    for (size_t c = 0; c < counts.size(); ++c)
      one["classes"].push_back({{"name", names.empty() ? std::to_string(c) : names[c]}, {"images", counts[c]}});
    json["splits"].push_back(one);
  }
  if (!data.has_statistics()) return json;
  const DatasetStatistics statistics = data.statistics();
  json["mean"] = statistics.channel_mean, json["std"] = statistics.channel_std;
  return json;
}

// The augmentation of a recipe for another format may need values that this data set lacks.
void check_format(const Settings& settings, const std::string& recipe, const std::string& folder) {
  const bool shards = holds_shards(folder);
  if ((settings.data.format == "shards") != shards)
    fail(recipe, " is a recipe for data of format ", settings.data.format, ", but ", folder, " holds ",
         shards ? "prepared photos; give a recipe with format = \"shards\"" : "CIFAR; give a recipe for that");
}

// Returns the number of samples.
int64_t write_sheet(const std::string& folder, const SheetRequest& request) {
  CropSettings crop;
  AugmentSettings augment;
  if (!request.recipe.empty()) {
    const Settings settings = read_settings(request.recipe);
    check_format(settings, request.recipe, folder);
    crop = settings.data.crop;
    crop.channels = static_cast<int>(settings.data.image[2]);
    augment = settings.data.augment;
  } else {
    augment.mirror = true;
  }
  const Data data(folder, crop);
  const auto images = data.open(Split::kTrain);
  write_png(request.file,
            contact_sheet(*images, augment, augment.needs_statistics() ? data.statistics() : DatasetStatistics{},
                          request.sheet));
  return std::min(request.sheet.samples, images->size());
}

}  // namespace

void inspect_data(const std::string& folder, const SheetRequest& sheet, const DataReport& report) {
  const Data data(folder, {});
  if (!data.shards() && !data.cifar()) {
    const std::string other = other_data(folder);
    if (other.empty() || !sheet.file.empty() || report.json)
      fail(folder, " is no run, checkpoint or data set", other.empty() ? "; name one of these" : ": ", other);
    std::cout << folder << ": " << other << '\n';
    return;
  }
  if (report.json) {
    std::cout << json_lines(data_json(folder, data));
  } else {
    for (const Split split : {Split::kTrain, Split::kTest})
      if (data.has(split)) {
        print_split(data, split, report.all_classes);
        print_targets(data.open(split), targets_path(folder, split));
      }
    print_colours(data);
  }
  if (sheet.file.empty()) return;
  const int64_t samples = write_sheet(folder, sheet);
  if (!report.json) std::cout << format("{}: {} training samples\n", sheet.file, samples);
}

}  // namespace owt
