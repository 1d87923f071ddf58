// What all ranks of a run share: settings, plan, data.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/loader.h"
#include "src/comm/communicator.h"
#include "src/parallel/network.h"
#include "src/parallel/plan.h"
#include "src/train/data_facts.h"
#include "src/train/files/checkpoint_files.h"
#include "src/train/settings.h"
#include "src/train/start_weights.h"

namespace owt {

struct Job {
  Settings settings;
  Plan plan;
  std::shared_ptr<const Dataset> train, test, validation;  // train: without those of validation, which may be null
  DatasetStatistics statistics;          // of the training images; empty where the augmentation does not need them
  uint64_t train_checksum = 0;           // of the training images; training only
  std::vector<std::string> class_lines;  // names of the outputs, as in a classes.txt; empty: unknown
  std::shared_ptr<const Augmenter> augmenter;
  std::shared_ptr<CorruptRecords> corrupt;  // met in training
  std::string run_folder;                   // training only
  std::string resume_checkpoint;            // folder to go on from; empty: from the start
  RunState resume_state;                    // of that checkpoint, whose files have been checked
  bool same_run = false;                    // that checkpoint is the run folder's own
  StartWeights start;                       // training only; without a file they are drawn from the seed
  std::string weights;                      // evaluation only: their file
  std::optional<Network> links;             // on rank 0, where they were measured

  const std::shared_ptr<const Dataset>& images(Split split) const {
    return split == Split::kTrain ? train : split == Split::kTest ? test : validation;
  }
  // Workers that are lost are gone on without. A loss during a collective ends the run, so that there are none but
  // where all meet.
  bool tolerates_loss() const;
};

// Where the data lies: `given` (from the command line), else the recipe's data.dir, else $OWT_DATA, else ./datasets.
std::string data_folder(const DataSettings& data, const std::string& given);

// Opens the training images and those that training is evaluated on, and measures what the augmentation needs and is
// not known of the run that the weights are of. Labels are matched with outputs, and a line says where they change.
// Throws Error for missing or damaged files, and for classes that are not the run's (data_identity.h).
void open_data(Job& job, const std::string& folder, const RunFacts& known = {});
// The same with nothing but what the split that is to be evaluated is made of.
void open_data(Job& job, const std::string& folder, Split split, const RunFacts& known);

// Collective over the processes of a launch: the damaged records that each of them has met count for all. Throws Error
// on all where they are too many.
void share_corrupt_records(const Job& job);

// Whether the data set in the folder has a test split (of shards: the folder val).
bool has_test_images(const DataSettings& data, const std::string& folder);

// Throws Error for the validation split of a recipe that holds no images out.
std::shared_ptr<const Dataset> open_split(const Settings& settings, const std::string& folder, Split split);
// The statistics of the images that are trained on (of shards: of all in the folder train), as far as the
// augmentation needs them; `train` may be null: opened where it is needed.
DatasetStatistics statistics_of(const Settings& settings, const std::string& folder, const Dataset* train = nullptr);

// Batches of this rank's rows, from a place in training on; and all images of a split in order, every step of them once
// in each of the views.
std::unique_ptr<BatchSource> training_batches(const Job& job, int rank, int64_t epoch, int64_t images_in_epoch);
std::unique_ptr<BatchSource> evaluation_batches(const Job& job, int rank, Split split = Split::kTest,
                                                const Views& views = {});

}  // namespace owt
