#include "src/train/data_facts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/shards.h"
#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/files/checkpoint_files.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/json_text.h"
#include "src/system/kept_files.h"
#include "src/system/log.h"
#include "src/system/texts.h"
#include "src/train/job.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char *kStatistics = "statistics.json", *kClasses = "classes.txt";

struct StatisticsField {
  const char* key;
  std::vector<double> DatasetStatistics::*values;
};
constexpr StatisticsField kFields[] = {
    {"pixel_mean", &DatasetStatistics::pixel_mean},   {"channel_mean", &DatasetStatistics::channel_mean},
    {"channel_std", &DatasetStatistics::channel_std}, {"covariance", &DatasetStatistics::covariance},
    {"eigenvalues", &DatasetStatistics::eigenvalues}, {"eigenvectors", &DatasetStatistics::eigenvectors}};

DatasetStatistics statistics_from(const std::string& text, const std::string& path) {
  try {
    const Json json = json_object<Json>(text);
    DatasetStatistics statistics;
    for (const StatisticsField& field : kFields)
      statistics.*field.values = json_get_or(json, field.key, std::vector<double>{}, "a list of numbers");
    return statistics;
  } catch (const Error& e) {
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

std::vector<std::string> class_names_in(const Settings& settings, const std::string& folder) {
  if (settings.data.format == "shards") return shard_classes(folder);
  Settings few = settings;
  few.data.train_images = 1;  // for synthetic data
  few.data.validation = 0;
  few.data.targets = false;
  return open_split(few, folder, Split::kTrain)->class_lines();
}

// The files of a run folder as one text, which can be sent to other ranks.
std::string files_of(const std::string& run_folder) {
  const auto read = [&](const char* name) {
    const std::string path = (fs::path(run_folder) / name).string();
    return fs::exists(path) ? read_file(path) : "";
  };
  return run_folder.empty() ? packed({"", "", ""}) : packed({run_folder, read(kStatistics), read(kClasses)});
}

bool same_values(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return true;  // one of them is unknown
  return std::ranges::equal(a, b, [](double x, double y) { return std::abs(x - y) <= 1e-6 * (1 + std::abs(x)); });
}

}  // namespace

std::string run_of_weights(const std::string& file) {
  const std::string folder = fs::path(file).parent_path().string();
  const std::string run = is_checkpoint(folder) ? run_folder_of_checkpoint(folder).value_or("")
                          : folder.empty()      ? "."
                                                : folder;
  return fs::is_regular_file(fs::path(run) / "config.toml") ? run : "";
}

RunFacts facts_of_run(const Settings& settings, const std::string& run_folder) {
  const std::vector<std::string> files = unpacked(from_rank_0([&] { return files_of(run_folder); }));
  RunFacts facts;
  facts.run = files[0];
  if (facts.run.empty()) return facts;
  const std::string path = (fs::path(facts.run) / kStatistics).string();
  if (!settings.data.augment.needs_statistics()) {
    facts.statistics.emplace();
  } else if (!files[1].empty()) {
    facts.statistics = statistics_from(files[1], path);
    check_statistics(settings, *facts.statistics, path);
  }
  facts.class_names = split_lines(files[2]);
  return facts;
}

std::string text_of(const DatasetStatistics& statistics) {
  Json json = Json::object();
  for (const StatisticsField& field : kFields)
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
  RunFacts of_run = facts_of_run(settings, run_folder);
  const bool has_data = !data.empty() || settings.data.format == "synthetic";
  if (!of_run.statistics && !settings.data.augment.needs_statistics()) of_run.statistics.emplace();
  if (!of_run.statistics && !has_data)
    fail("the recipe's augmentation needs means of the training images, but there is no ", kStatistics, " ",
         run_folder.empty() ? "beside it" : concat("in ", run_folder),
         "; give the run folder instead of the recipe, or --data DIR, the training data");
  const bool wants_data = has_data && (!of_run.statistics || of_run.class_names.empty());
  if (!data.empty() && !wants_data) {
    log_info("--data {} is not used: the means and class names come from {}", data, run_folder);
    tell_of_other_statistics(settings, data, of_run);
  }
  DataFacts facts;
  facts.statistics = of_run.statistics ? std::move(*of_run.statistics) : statistics_of(settings, data);
  facts.class_names = std::move(of_run.class_names);
  if (!facts.class_names.empty() || !has_data) return facts;
  facts.class_names = class_names_in(settings, data);
  if (const auto names = std::ssize(facts.class_names); names > 0 && names != settings.model.classes) {
    log_warn("the names of the {} classes in {} are not used: the model has {} classes", names, data,
             settings.model.classes);
    facts.class_names.clear();
  }
  return facts;
}

void tell_of_other_statistics(const Settings& settings, const std::string& data, const RunFacts& used,
                              const Dataset* train) {
  if (launch().rank > 0 || !used.statistics || used.run.empty() || settings.data.format == "synthetic") return;
  DatasetStatistics found;
  try {
    found = statistics_of(settings, data, train);
  } catch (const Error&) {
    return;  // a set of test images has none
  }
  const DatasetStatistics& run = *used.statistics;
  if (same_values(run.channel_mean, found.channel_mean) && same_values(run.channel_std, found.channel_std) &&
      same_values(run.pixel_mean, found.pixel_mean))
    return;
  log_info("using the means and deviations of {}, with which its weights were trained; {} has different ones", used.run,
           data);
}

}  // namespace owt
