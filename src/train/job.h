// The common data of all ranks of a run: settings, plan, data.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/loader.h"
#include "src/comm/communicator.h"
#include "src/files/checkpoint_files.h"
#include "src/mirror/mirror.h"
#include "src/plan/plan.h"
#include "src/predict/network.h"
#include "src/recipe/settings.h"
#include "src/train/data_facts.h"
#include "src/train/start_weights.h"

namespace owt {

// What this process knows of a run whose workers change (src/roster), from one set of workers to the next.
struct RunMemory {
  Mirror mirror;
  std::string run_folder{};  // empty: it has not been in the run yet
  int64_t step = 0;          // the latest step that was begun
  bool did_steps = false;    // with the present workers
  bool leaves = false;       // the other workers know that this one leaves
};

struct Job {
  Settings settings;
  Plan plan;
  std::shared_ptr<const Dataset> train, test, validation;  // train excludes validation images; validation may be null
  DatasetStatistics statistics;          // statistics of training images; empty if the augmentation does not need them
  uint64_t train_checksum = 0;           // checksum of the training images; training only
  std::vector<std::string> class_lines;  // names of the outputs, as in a classes.txt; empty: unknown
  std::shared_ptr<const Augmenter> augmenter;
  std::shared_ptr<CorruptRecords> corrupt;  // damaged records found in training
  std::shared_ptr<LoadRecord> load_record;  // receives the time of loading; null: it is not measured by stage
  std::string run_folder;                   // training only
  std::string resume_checkpoint;            // checkpoint folder to resume from; empty: start a new run
  RunState resume_state;                    // the state in that checkpoint, whose files have been checked
  bool same_run = false;                    // whether that checkpoint is in run_folder
  RunMemory* memory = nullptr;              // null: the workers do not change
  bool continues = false;                   // the same command continues with other workers than before
  int64_t repeated_steps = 0;               // then: the steps since then that are computed again
  bool from_memory = false;                 // then: from the memory of the workers, at resume_state
  StartWeights start;                       // training only; without a file the weights are drawn from the seed
  std::string weights;                      // the weights file; evaluation only
  std::optional<Network> links;             // on rank 0, if they were measured

  const std::shared_ptr<const Dataset>& images(Split split) const {
    return split == Split::kTrain ? train : split == Split::kTest ? test : validation;
  }
  bool resumes() const { return from_memory || !resume_checkpoint.empty(); }
  // Whether training continues when workers are lost. A loss during a collective would end the run, so such runs use
  // collectives only at synchronisation points.
  bool tolerates_loss() const;
};

// The data folder: `given` (on the command line), else the recipe's data.dir, else $OWT_DATA, else ./datasets.
std::string data_folder(const DataSettings& data, const std::string& given);

// Opens the training images and the images that are evaluated in training. Computes the statistics that the
// augmentation needs, unless they are known from the run of the weights. Matches labels with outputs, and logs if they
// change. Throws Error for missing or damaged files, and for classes that differ from the run's (data_identity.h).
void open_data(Job& job, const std::string& folder, const RunFacts& known = {});
// Opens the data for an evaluation, which needs only that split. With kUnused, its classes may be any.
enum class LabelsAre { kOutputs, kUnused };
void open_data(Job& job, const std::string& folder, Split split, const RunFacts& known,
               LabelsAre labels = LabelsAre::kOutputs);

// Collective over the processes of a launch: merges the damaged records that each has found. Throws Error on all if
// there are too many.
void share_corrupt_records(const Job& job);

// Whether the data set in the folder has the split kTrain or kTest (for shards: the folder train or val).
bool has_images(const DataSettings& data, const std::string& folder, Split split);

// Throws Error for a validation split if the recipe holds out no images.
std::shared_ptr<const Dataset> open_split(const Settings& settings, const std::string& folder, Split split);
// The statistics of the training images (for shards: of all images in the folder train), if the augmentation needs
// them. train: may be null; it is then opened if needed.
DatasetStatistics statistics_of(const Settings& settings, const std::string& folder, const Dataset* train = nullptr);

// training_batches(): batches of this rank's rows, starting at a position in training; `chosen`: the decoder that an
// earlier trial has chosen. evaluation_batches(): all images of a split in order; every step comes once for each view.
std::unique_ptr<BatchSource> training_batches(const Job& job, int rank, int64_t epoch, int64_t images_in_epoch,
                                              Decoder chosen = Decoder::kAuto);
std::unique_ptr<BatchSource> evaluation_batches(const Job& job, int rank, Split split = Split::kTest,
                                                const Views& views = {});

}  // namespace owt
