#include "src/train/data_facts.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/core/check.h"
#include "src/core/files.h"
#include "src/core/json_text.h"
#include "src/core/kept_files.h"
#include "src/train/job.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char *kStatistics = "statistics.json", *kClasses = "classes.txt";

struct Field {
  const char* key;
  std::vector<double> DatasetStatistics::*values;
};
constexpr Field kFields[] = {
    {"pixel_mean", &DatasetStatistics::pixel_mean},   {"channel_mean", &DatasetStatistics::channel_mean},
    {"channel_std", &DatasetStatistics::channel_std}, {"covariance", &DatasetStatistics::covariance},
    {"eigenvalues", &DatasetStatistics::eigenvalues}, {"eigenvectors", &DatasetStatistics::eigenvectors}};

DatasetStatistics statistics_in(const std::string& path) {
  const std::string text = read_file(path);
  try {
    const Json json = json_object<Json>(text);
    DatasetStatistics statistics;
    for (const Field& field : kFields) statistics.*field.values = json.value(field.key, std::vector<double>{});
    return statistics;
  } catch (const std::exception& e) {
    fail(path, " is damaged: ", e.what(), "; remove it and give --data DIR, the training data");
  }
}

void check_statistics(const Settings& settings, const DatasetStatistics& found, const std::string& path) {
  using From = AugmentSettings::From;
  const AugmentSettings& augment = settings.data.augment;
  const Shape& image = settings.data.image;
  const auto has = [&](const std::vector<double>& values, int64_t wanted, const char* key) {
    if (std::ssize(values) != wanted)
      fail(path, ": '", key, "' has ", values.size(), " values, the recipe wants ", wanted,
           "; remove it and give --data DIR, the training data");
  };
  if (augment.mean == From::kPixel) has(found.pixel_mean, image.elements(), "pixel_mean");
  if (augment.mean == From::kChannel) has(found.channel_mean, image[2], "channel_mean");
  if (augment.std == From::kChannel) has(found.channel_std, image[2], "channel_std");
  if (augment.pca > 0) has(found.eigenvalues, image[2], "eigenvalues");
  if (augment.pca > 0) has(found.eigenvectors, image[2] * image[2], "eigenvectors");
}

DataFacts of_data_set(const Settings& settings, const std::string& folder) {
  const auto names = [&] {
    Settings few = settings;
    few.data.train_images = 1;  // where they are made up
    few.data.validation = 0;
    const bool train = settings.data.format != "shards" || fs::is_directory(fs::path(folder) / "train");
    return open_split(few, folder, train ? Split::kTrain : Split::kTest)->class_names();
  };
  return {statistics_of(settings, folder), names()};
}

}  // namespace

std::optional<DatasetStatistics> statistics_of_run(const Settings& settings, const std::string& run_folder) {
  if (!settings.data.augment.needs_statistics()) return DatasetStatistics{};
  const std::string path = (fs::path(run_folder) / kStatistics).string();
  if (run_folder.empty() || !fs::exists(path)) return {};
  const DatasetStatistics found = statistics_in(path);
  check_statistics(settings, found, path);
  return found;
}

std::string text_of(const DatasetStatistics& statistics) {
  Json json = Json::object();
  for (const Field& field : kFields)
    if (!(statistics.*field.values).empty()) json[field.key] = statistics.*field.values;
  return json.dump() + "\n";
}

void write_data_facts(const std::string& run_folder, const DataFacts& facts) {
  const auto path = [&](const char* name) { return (fs::path(run_folder) / name).string(); };
  if (!facts.statistics.channel_mean.empty()) write_keeping_old(path(kStatistics), text_of(facts.statistics));
  if (facts.class_names.empty()) return;
  std::string names;
  for (const std::string& name : facts.class_names) names += name + '\n';
  write_keeping_old(path(kClasses), names);
}

DataFacts find_data_facts(const Settings& settings, const std::string& run_folder, const std::string& data) {
  if (!data.empty()) return of_data_set(settings, data);
  auto statistics = statistics_of_run(settings, run_folder);
  if (settings.data.format == "synthetic" && (run_folder.empty() || !statistics)) return of_data_set(settings, "");
  DataFacts facts;
  if (!statistics)
    fail("the recipe's augmentation wants means of the training images, and no ", kStatistics, " lies ",
         run_folder.empty() ? "beside it" : concat("in ", run_folder),
         "; name the run folder in place of the recipe, or give --data DIR, the training data");
  facts.statistics = std::move(*statistics);
  const fs::path classes = fs::path(run_folder) / kClasses;
  if (!run_folder.empty() && fs::exists(classes)) facts.class_names = text_lines(classes.string());
  return facts;
}

}  // namespace owt
