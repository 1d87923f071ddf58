#include "src/train/job.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "data/cifar.h"
#include "data/device_batches.h"
#include "data/shard_statistics.h"
#include "data/synthetic.h"
#include "src/core/check.h"
#include "src/core/gpus.h"
#include "src/core/log.h"

namespace owt {
namespace {

std::shared_ptr<const Dataset> open_split(const Job& job, const std::string& folder, Split split) {
  const DataSettings& data = job.settings.data;
  if (data.format == "shards") return std::make_shared<ShardDataset>(folder, split, data.crop);
  if (data.format != "synthetic")
    return read_cifar(folder, data.format == "cifar10" ? CifarKind::k10 : CifarKind::k100, split);
  SyntheticSettings settings;
  settings.size = split == Split::kTrain ? data.train_images : data.test_images;
  settings.side = data.image[0];
  settings.classes = std::min(job.settings.model.classes, kSyntheticClasses);  // a model may have more
  settings.seed = data.seed;
  settings.split = split;
  return std::make_shared<SyntheticDataset>(settings);
}

DatasetStatistics statistics_of(const Job& job, const std::string& folder) {
  const DataSettings& data = job.settings.data;
  if (!data.augment.needs_statistics()) return {};
  return data.format == "shards" ? read_statistics(folder) : compute_statistics(*job.train);
}

LoaderSettings loader_settings(const Job& job, int rank) {
  const DataSettings& data = job.settings.data;
  LoaderSettings settings;
  settings.augmenter = job.augmenter;
  settings.batch = job.plan.request.step_rows;
  settings.seed = job.settings.run.seed;
  settings.shuffle = data.shuffle;
  settings.threads = data.loader_threads;
  settings.rows = [&plan = job.plan, rank](int64_t step_rows) { return plan.rows(step_rows).of(rank); };
  return settings;
}

}  // namespace

void log_device(const Settings& settings, const Compute& on) {
  if (on.device == Device::kCpu && settings.run.device == "auto") log_info("on the CPU: {}", find_gpus().why_none);
}

Step::Options step_options(const Settings& settings) { return {settings.run.seed, settings.run.cuda_graph}; }

void use_algorithms_of(const std::string& weights, const Settings& settings) {
  ConvChoices::process().set_mode(settings.run.conv_algorithm);
  const std::filesystem::path beside = std::filesystem::path(weights).parent_path();
  if (std::filesystem::is_regular_file(beside / "state.json"))
    ConvChoices::process().preload(load_checkpoint_state(beside.string()).conv_choices);
}

std::string data_folder(const DataSettings& data, const std::string& given) {
  if (!given.empty()) return given;
  if (!data.dir.empty()) return data.dir;
  const char* environment = std::getenv("OWT_DATA");
  return environment && *environment ? environment : "datasets";
}

void open_data(Job& job, const std::string& folder) {
  job.train = open_split(job, folder, Split::kTrain);
  job.test = open_split(job, folder, Split::kTest);
  if (job.train->classes() > job.settings.model.classes)
    fail("the data has ", job.train->classes(), " classes, but model '", job.settings.model.name, "' has ",
         job.settings.model.classes, "; set the model's classes and the outputs of its last layer");
  const DataSettings& data = job.settings.data;
  job.statistics = statistics_of(job, folder);
  job.augmenter = std::make_shared<Augmenter>(data.augment, job.train->image(), job.statistics);
  const auto share = static_cast<int64_t>(data.max_corrupt * static_cast<double>(job.train->size()));
  job.corrupt = std::make_shared<CorruptRecords>(data.max_corrupt > 0 ? std::max<int64_t>(1, share) : 0);
}

std::unique_ptr<BatchSource> training_batches(const Job& job, int rank, int64_t epoch, int64_t step_in_epoch) {
  LoaderSettings settings = loader_settings(job, rank);
  settings.dataset = job.train;
  settings.corrupt = job.corrupt;
  settings.epoch = epoch;
  settings.step_in_epoch = step_in_epoch;
  return make_batches(job.plan.request.on, std::move(settings), job.settings.data.resident_bytes);
}

std::unique_ptr<BatchSource> evaluation_batches(const Job& job, int rank, Split split, int views) {
  LoaderSettings settings = loader_settings(job, rank);
  settings.dataset = job.images(split);
  settings.training = false;
  settings.views = views;
  return make_batches(job.plan.request.on, std::move(settings), job.settings.data.resident_bytes);
}

}  // namespace owt
