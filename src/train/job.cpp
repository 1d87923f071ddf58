#include "src/train/job.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "data/cifar.h"
#include "data/device_batches.h"
#include "data/held_out.h"
#include "data/relabelled.h"
#include "data/shard_statistics.h"
#include "data/synthetic.h"
#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/core/gpus.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/system/check.h"
#include "src/system/log.h"
#include "src/train/data_identity.h"

namespace owt {

namespace {

// The images in the files, or all synthetic images.
std::shared_ptr<const Dataset> read_labelled(const Settings& of, const std::string& folder, Split split) {
  const DataSettings& data = of.data;
  if (data.format == "shards") return std::make_shared<ShardDataset>(folder, split, data.crop);
  if (data.format != "synthetic")
    return read_cifar(folder, data.format == "cifar10" ? CifarKind::k10 : CifarKind::k100, split, data.image[2]);
  SyntheticSettings settings;
  settings.size = split == Split::kTrain ? data.train_images : data.test_images;
  settings.side = data.image[0];
  settings.channels = data.image[2];
  settings.classes = std::min(of.model.classes, kSyntheticClasses);  // a model may have more
  settings.seed = data.seed;
  settings.split = split;
  return std::make_shared<SyntheticDataset>(settings);
}

std::shared_ptr<const Dataset> read_split(const Settings& of, const std::string& folder, Split split) {
  std::shared_ptr<const Dataset> images = read_labelled(of, folder, split);
  if (!of.data.targets) return images;
  return with_targets(std::move(images), targets_path(folder, split), of.model.classes,
                      of.loss.type == LossType::kSoftmax);
}

HeldOut open_training_images(const Settings& of, const std::string& folder) {
  const std::shared_ptr<const Dataset> all = read_split(of, folder, Split::kTrain);
  return of.data.validation > 0 ? hold_out(all, of.data.validation, of.run.seed) : HeldOut{all, nullptr};
}

}  // namespace

bool Job::tolerates_loss() const { return owt::tolerates_loss(plan) && launch().several(); }

bool has_images(const DataSettings& data, const std::string& folder, Split split) {
  if (data.format == "shards")
    return std::filesystem::is_directory(std::filesystem::path(folder) / (split == Split::kTrain ? "train" : "val"));
  return data.format == "synthetic" ||
         has_cifar(folder, data.format == "cifar10" ? CifarKind::k10 : CifarKind::k100, split);
}

std::shared_ptr<const Dataset> open_split(const Settings& of, const std::string& folder, Split split) {
  if (split == Split::kTest) return read_split(of, folder, split);
  const HeldOut images = open_training_images(of, folder);
  if (split == Split::kTrain) return images.train;
  if (!images.validation) fail("the recipe holds no validation images out; set data.validation, e.g. to 0.1");
  return images.validation;
}

DatasetStatistics statistics_of(const Settings& settings, const std::string& folder, const Dataset* train) {
  const DataSettings& data = settings.data;
  if (!data.augment.needs_statistics()) return {};
  if (data.format != "shards" && train) return compute_statistics(*train);
  if (data.format != "shards") {
    Settings of = settings;
    of.data.targets = data.targets && data.validation > 0;  // then labels decide which images are held out
    return compute_statistics(*open_split(of, folder, Split::kTrain));
  }
  if (!std::filesystem::is_directory(std::filesystem::path(folder) / "train"))
    fail("the recipe's augmentation needs means of the training images, but ", folder,
         " has no training images; give the run folder instead of the recipe");
  return read_statistics(folder, data.image[2]);
}

namespace {

// Matches the labels of all images, which are of the same data set.
void match_labels(Job& job, const std::string& folder, const RunFacts& known, Use use) {
  const std::shared_ptr<const Dataset>& any = job.train ? job.train : job.test;
  const std::string where = job.settings.data.format == "synthetic" ? "what is drawn" : concat("the data in ", folder);
  const LabelMap map = match_classes(job.settings, known, {any->class_lines(), any->classes(), where}, use);
  if (!map.said.empty() && launch().rank == 0) log_info("{}", map.said);
  for (std::shared_ptr<const Dataset>* images : {&job.train, &job.test, &job.validation})
    *images = with_outputs_as_labels(std::move(*images), map);
  job.class_lines = map.output_lines;
}

LoaderSettings loader_settings(const Job& job, int rank) {
  const DataSettings& data = job.settings.data;
  LoaderSettings settings;
  settings.augmenter = job.augmenter;
  settings.record = job.load_record;
  settings.batch = job.plan.request.step_rows;
  settings.seed = job.settings.run.seed;
  settings.shuffle = data.shuffle;
  settings.sampling = data.sampling;
  settings.threads = data.loader_threads;
  settings.rows = [&plan = job.plan, rank](int64_t step_rows) { return rows_of(plan, step_rows).of(rank); };
  return settings;
}

}  // namespace

std::string data_folder(const DataSettings& data, const std::string& given) {
  if (!given.empty()) return given;
  if (!data.dir.empty()) return data.dir;
  const char* environment = std::getenv("OWT_DATA");
  return environment && *environment ? environment : "datasets";
}

void open_data(Job& job, const std::string& folder, const RunFacts& known) {
  HeldOut images = open_training_images(job.settings, folder);
  job.train = std::move(images.train);
  job.validation = std::move(images.validation);
  if (!job.validation) job.test = read_split(job.settings, folder, Split::kTest);
  match_labels(job, folder, known, job.resumes() ? Use::kResuming : Use::kTraining);
  if (const std::string table = targets_path(folder, Split::kTrain);
      launch().rank == 0 && !job.settings.data.targets && std::filesystem::exists(table))
    log_info("{} is not used; with data.targets = true its targets are learnt", table);
  job.train_checksum = job.train->checksum();
  const DataSettings& data = job.settings.data;
  job.statistics = known.statistics ? *known.statistics : statistics_of(job.settings, folder, job.train.get());
  tell_of_other_statistics(job.settings, folder, known, job.train.get());
  job.augmenter = std::make_shared<Augmenter>(data.augment, job.train->image(), job.statistics);
  const auto share = static_cast<int64_t>(data.max_corrupt * static_cast<double>(job.train->size()));
  const auto report = launch().several() ? CorruptRecords::Report::kWhenMerged : CorruptRecords::Report::kAtOnce;
  job.corrupt = std::make_shared<CorruptRecords>(data.max_corrupt > 0 ? std::max<int64_t>(1, share) : 0, report);
}

void open_data(Job& job, const std::string& folder, Split split, const RunFacts& known, LabelsAre labels) {
  // Labels decide which images are held out, and targets decide labels.
  if (labels == LabelsAre::kUnused && job.settings.data.validation == 0) job.settings.data.targets = false;
  if (split == Split::kTest) {
    job.test = read_split(job.settings, folder, split);
  } else {
    HeldOut images = open_training_images(job.settings, folder);
    job.train = std::move(images.train);
    job.validation = std::move(images.validation);
  }
  OWT_CHECK(job.images(split), "the recipe holds no images out");
  if (labels == LabelsAre::kOutputs) match_labels(job, folder, known, Use::kEvaluation);
  job.statistics = known.statistics ? *known.statistics : statistics_of(job.settings, folder, job.train.get());
  // Other data would need a pass over all training images.
  if (job.train || job.settings.data.format == "shards")
    tell_of_other_statistics(job.settings, folder, known, job.train.get());
  job.augmenter = std::make_shared<Augmenter>(job.settings.data.augment, job.images(split)->image(), job.statistics);
}

void share_corrupt_records(const Job& job) {
  if (!launch().several() || job.settings.data.format != "shards") return;  // other data has no such records
  job.corrupt->merge(from_every_rank(job.corrupt->news()), launch().rank == 0);
}

std::unique_ptr<BatchSource> training_batches(const Job& job, int rank, int64_t epoch, int64_t images_in_epoch,
                                              Decoder chosen) {
  LoaderSettings settings = loader_settings(job, rank);
  settings.dataset = job.train;
  settings.corrupt = job.corrupt;
  settings.decoder = job.settings.data.decoder == Decoder::kAuto ? chosen : job.settings.data.decoder;
  settings.epoch = epoch;
  settings.images_in_epoch = images_in_epoch;
  return make_batches(job.plan.request.on, std::move(settings), job.settings.data.resident_bytes);
}

std::unique_ptr<BatchSource> evaluation_batches(const Job& job, int rank, Split split, const Views& views) {
  LoaderSettings settings = loader_settings(job, rank);
  settings.dataset = job.images(split);
  settings.training = false;
  settings.views = views;
  return make_batches(job.plan.request.on, std::move(settings), job.settings.data.resident_bytes);
}

}  // namespace owt
