// owt prepare imagenet, folder, list and recordio: converts photos to shards.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>

#include "data/dataset.h"
#include "data/held_out.h"
#include "data/prepare/class_labels.h"
#include "data/prepare/imagenet.h"
#include "data/prepare/prepare.h"
#include "data/prepare/record_io.h"
#include "data/prepare/split_folder.h"
#include "src/comm/signals.h"
#include "src/core/threads.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tools/commands.h"
#include "tools/most_skipped.h"
#include "tools/prepare_progress.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

void declare_preparation(Options& options, const char* size) {
  options.option("size", "PIXELS", size, "length of the short side; 0: keep it");
  options.option("quality", "Q", "90", "quality of the JPEG files, 1 to 100");
  options.flag("grey", "store the luma only: what a model of one input channel sees; others see grey photos");
  options.option("shard-images", "N", "1000", "images per shard");
  options.option("seed", "S", "1", "random seed of the order of the images");
  options.flag("no-shuffle", "do not shuffle: keep the order of classes and names, or of the list");
  MostSkipped::declare(options);
  options.option("names", "FILE", "class names for classes.txt: lines `class words`, e.g. LOC_synset_mapping.txt");
  options.option("threads", "T", "0", "number of threads; 0: $OMP_NUM_THREADS, else all cores");
  options.flag("force",
               "replace a split that is already prepared; if there is no other split, replace the classes too");
}

// All options, read before any work.
struct Preparation {
  explicit Preparation(const Options& options)
      : settings({.short_side = options.integer("size", {.low = 0, .high = 16384}),
                  .quality = static_cast<int>(options.integer("quality", {.low = 1, .high = 100})),
                  .grey = options.boolean("grey"),
                  .shard_images = options.integer("shard-images", {.low = 1, .high = 1e6}),
                  .shuffle = !options.boolean("no-shuffle"),
                  .seed = static_cast<uint64_t>(options.integer("seed", {.low = 0}))}),
        skipped(options),
        force(options.boolean("force")),
        names(options.given("names") ? text_lines(options.string("names")) : std::vector<std::string>()),
        out(options.string("OUT")) {
    const auto threads = static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
    settings.threads = threads > 0 ? threads : default_threads();
    warn_of_crowd(settings.threads, concat(settings.threads, " threads"));
  }

  PrepareSettings settings;
  MostSkipped skipped;
  bool force;
  std::vector<std::string> names;
  std::string out;
};

std::string in(const std::string& dir, const std::string& name) { return (fs::path(dir) / name).string(); }

struct SplitSources {
  std::string name;  // "train", "val"
  PhotoSources sources;
};

// The classes of the existing data set; none if `splits` determine them: without classes.txt, and with --force if no
// other split uses it.
std::vector<std::string> known_classes(const DataSetFolder& folder, const Preparation& preparation,
                                       const std::vector<std::string>& splits) {
  bool renew = preparation.force;
  for (const std::string other : {"train", "val"})
    if (std::find(splits.begin(), splits.end(), other) == splits.end())
      renew = renew && !is_prepared_split(in(preparation.out, other));
  return renew ? std::vector<std::string>() : folder.classes();
}

// Classes with sources, all of which were skipped.
std::vector<std::string> unreadable_classes(const PhotoSources& sources, const Prepared& prepared) {
  std::vector<bool> used(sources.classes.size());
  for (const PhotoSource& photo : sources.photos) used[static_cast<size_t>(photo.label)] = true;
  std::vector<std::string> lost;
  for (size_t label = 0; label < used.size(); ++label)
    if (used[label] && prepared.images_of_classes[label] == 0) lost.push_back(sources.classes[label]);
  return lost;
}

int prepare_one(const PhotoSources& sources, const std::string& split, const Preparation& preparation) {
  const double begun = now_seconds();
  const std::string dir = in(preparation.out, split);
  PrepareSettings settings = preparation.settings;
  settings.most_skipped = preparation.skipped.of(static_cast<int64_t>(sources.photos.size()));
  Prepared prepared;
  PrepareState last;
  {
    PrepareProgress progress(split);
    prepared = prepare_split(sources, dir, settings, [&](const PrepareState& state) {
      progress.update(last = state);
      return !stop_requested();
    });
  }
  if (prepared.how == Prepared::How::kBefore) {
    std::cout << dir
              << ": already prepared with these settings, from files with these names, labels and sizes; --force "
              << "replaces it\n";
    return 0;
  }
  if (prepared.how == Prepared::How::kStopped) {
    std::cerr << format("{}: stopped after {} of {} images; the same command resumes with the unfinished shard\n", dir,
                        last.done, last.photos);
    return kStoppedOnSignal;
  }
  std::cout << format("{}: {} images of {} classes in {} shard{}, {:.1f} MB; {}{:.1f} s\n", dir, prepared.images,
                      sources.classes.size(), prepared.shards, prepared.shards == 1 ? "" : "s",
                      static_cast<double>(prepared.bytes) / 1e6,
                      prepared.skipped > 0 ? format("{} skipped, see {}; ", prepared.skipped, in(dir, "skipped.txt"))
                                           : "none skipped; ",
                      now_seconds() - begun);
  if (const std::vector<std::string> lost = unreadable_classes(sources, prepared); !lost.empty())
    log_warn("{}: not one image can be read of {}", dir, some_classes(lost));
  if (sources.passed_over > 0)
    std::cout << (sources.passed_over == 1
                      ? "1 file was ignored: by its name it is not an image\n"
                      : format("{} files were ignored: by their names they are not images\n", sources.passed_over));
  return 0;
}

// Changes nothing before everything has been checked.
int prepare_splits(const std::vector<SplitSources>& splits, const std::vector<std::string>& classes,
                   const DataSetFolder& folder, const Preparation& preparation) {
  for (const SplitSources& split : splits) check_split_folder(in(preparation.out, split.name));
  for (const SplitSources& split : splits)
    for (const std::string& note : split.sources.notes) log_warn("{}", note);
  // One split may have no image with several labels, and the other may have been prepared before.
  const auto has_table = [&](Split split) { return fs::exists(targets_path(preparation.out, split)); };
  const bool targets = std::ranges::any_of(splits, has_targets, &SplitSources::sources) || has_table(Split::kTrain) ||
                       has_table(Split::kTest);
  if (targets)
    for (const SplitSources& split : splits) check_named_once(split.sources, split.name);
  if (preparation.force)
    for (const SplitSources& split : splits) remove_split(in(preparation.out, split.name));
  if (folder.classes() != classes) folder.write_classes(classes);
  for (const SplitSources& split : splits) {
    const Split kind = split.name == "train" ? Split::kTrain : Split::kTest;
    // The user may have written the table of a complete split.
    const bool keeps_table =
        fs::exists(fs::path(preparation.out) / split.name / kDataset) && has_table(kind) && !has_targets(split.sources);
    if (const int code = prepare_one(split.sources, split.name, preparation); code != 0) return code;
    if (targets && !keeps_table)
      std::cout << write_targets(split.sources, preparation.out, kind) << ": targets for data.targets = true\n";
  }
  return measure_colours(preparation.out, preparation.settings.threads, MeasureWhen::kWhereMissing);
}

int imagenet_shards(const Options& options) {
  const Preparation preparation(options);
  const std::string from = options.string("IN");
  const std::string labels = options.given("val-labels") ? options.string("val-labels") : "";
  log_info("Reading the list of files in {}", from);
  const bool has_val = fs::exists(in(from, "ILSVRC2012_img_val.tar")) || fs::exists(in(from, "val"));
  auto train = imagenet_train_sources(from, preparation.out);
  if (!train && !has_val)
    fail(from, " holds neither ILSVRC2012_img_train.tar nor ILSVRC2012_img_val.tar nor folders train and val");
  if (!has_val && !labels.empty()) fail(from, " holds no validation images, which --val-labels ", labels, " is for");
  const auto lines = [&](const PhotoSources& sources) {
    return options.given("names") ? with_words(sources.classes, preparation.names) : named_classes(sources.classes);
  };
  std::vector<std::string> names;
  if (train) names.push_back("train");
  if (has_val) names.push_back("val");
  const DataSetFolder folder(preparation.out);
  std::vector<std::string> classes = known_classes(folder, preparation, names);
  std::vector<SplitSources> splits;
  if (train) {
    agree_on_classes(*train, lines(*train), classes, folder.classes_path());
    splits.push_back({"train", std::move(*train)});
  }
  // Both lists before any work, so that a missing label does not show after hours.
  if (auto val = imagenet_val_sources(from, labels, classes, preparation.out)) {
    agree_on_classes(*val, lines(*val), classes, folder.classes_path());
    splits.push_back({"val", std::move(*val)});
  }
  return prepare_splits(splits, classes, folder, preparation);
}

double validation_share(const Options& options) { return options.number("validation", {.low = 1e-6, .high = 1e9}); }

std::string chosen_split(const Options& options) {
  const std::string split = options.string("split");
  if (split != "train" && split != "val") throw UsageError("--split " + split + ": wanted train or val");
  return split;
}

// The split that --split names; with --validation both splits, the second with some of the images.
std::vector<SplitSources> splits_of(PhotoSources sources, const Options& options, const Preparation& preparation) {
  if (!options.given("validation")) return {{chosen_split(options), std::move(sources)}};
  std::vector<int32_t> labels;
  for (const PhotoSource& photo : sources.photos) labels.push_back(photo.label);
  PhotoSources train = sources, val = sources;
  train.photos.clear(), val.photos.clear(), val.notes.clear();
  val.passed_over = 0;
  const std::vector<bool> held_out =
      images_to_hold_out(labels, validation_share(options), preparation.settings.seed, "--validation");
  for (size_t i = 0; i < held_out.size(); ++i) (held_out[i] ? val : train).photos.push_back(sources.photos[i]);
  return {{"train", std::move(train)}, {"val", std::move(val)}};
}

std::vector<std::string> split_names(const Options& options) {
  if (!options.given("validation")) return {chosen_split(options)};
  if (options.given("split")) throw UsageError("--validation makes both splits; leave out --split");
  validation_share(options);
  return {"train", "val"};
}

int folder_shards(const Options& options) {
  const Preparation preparation(options);
  const std::vector<std::string> names = split_names(options);
  PhotoSources sources = folder_sources(options.string("IN"), preparation.out);
  const DataSetFolder folder(preparation.out);
  std::vector<std::string> classes = known_classes(folder, preparation, names);
  std::string path = folder.classes_path();
  if (options.given("classes")) {
    path = options.string("classes");
    const std::vector<std::string> given = text_lines(path);
    if (given.empty()) fail("--classes ", path, " names no classes");
    if (!classes.empty() && classes != given)
      fail(folder.classes_path(), " names other classes than --classes ", path,
           "; leave it out, or choose another OUT");
    classes = given;
  }
  agree_on_classes(sources, with_words(sources.classes, preparation.names), classes, path);
  return prepare_splits(splits_of(std::move(sources), options, preparation), classes, folder, preparation);
}

// read(classes): lists images with numbers as labels.
int numbered_shards(const Options& options,
                    const std::function<PhotoSources(const std::vector<std::string>& classes)>& read) {
  const Preparation preparation(options);
  const std::vector<std::string> names = split_names(options);
  const DataSetFolder folder(preparation.out);
  std::vector<std::string> classes = known_classes(folder, preparation, names);
  PhotoSources sources = read(options.given("classes") ? text_lines(options.string("classes")) : classes);
  agree_on_classes(sources, with_words(sources.classes, preparation.names), classes, folder.classes_path());
  return prepare_splits(splits_of(std::move(sources), options, preparation), classes, folder, preparation);
}

int list_shards(const Options& options) {
  const std::string root = options.given("root") ? options.string("root") : "";
  return numbered_shards(options, [&](const std::vector<std::string>& classes) {
    return list_sources(options.string("FILE"), root, classes);
  });
}

int recordio_shards(const Options& options) {
  return numbered_shards(options, [&](const std::vector<std::string>& classes) {
    log_info("Reading the headers of the records in {}", options.string("FILE"));
    return record_sources(options.string("FILE"), classes);
  });
}

int prepare_images(const std::string& kind, const Arguments& arguments) {
  Options options(
      "owt prepare " + kind,
      kind == "imagenet"
          ? "Writes the images of ILSVRC2012 as shards, from the official archives or from folders train and val."
      : kind == "folder" ? "Writes images as shards, from a folder per class; the classes are sorted by name."
      : kind == "recordio"
          ? "Writes the images of a RecordIO file of MXNet as shards, with its labels, such as a training set of "
            "InsightFace. An index FILE.idx beside FILE.rec is used if there is one. The first of several labels "
            "counts."
          : "Writes the images that a text file names as shards, with the labels of that file.");
  if (kind == "imagenet") {
    options.positional("IN",
                       "folder with ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, "
                       "or folders train and val");
  } else if (kind == "folder") {
    options.positional("IN", "folder with images IN/CLASS/*.jpg (or jpeg, png, bmp, webp, tif, tiff)");
  } else if (kind == "recordio") {
    options.positional("FILE", "RecordIO file, e.g. train.rec");
  } else {
    options.positional("FILE",
                       "text file with lines `path label`; labels are integers from 0, or several of them with their "
                       "targets: 3,7 or 3:0.7,7:0.3");
  }
  options.positional("OUT", "folder to write the data set to: classes.txt and folders train and val");
  if (kind == "imagenet") {
    options.option(
        "val-labels", "FILE",
        "lines `name label` for flat validation images; a label is a synset id or an integer from 0 (default: "
        "from the devkit)");
  } else {
    options.option("split", "NAME", "train", "train | val");
    options.option(
        "validation", "SHARE",
        "create train and val: hold out this fraction of each class (0.1), or this many images in total, as val");
  }
  if (kind == "folder")
    options.option("classes", "FILE",
                   "the classes in the order of their labels, e.g. RUN/classes.txt for a test set of a run; IN may "
                   "have folders for some of them only (default: the classes of OUT, else the folders by name)");
  if (kind == "list")
    options.option("root", "DIR", "folder to which the paths are relative (default: the folder of FILE)");
  if (kind == "list" || kind == "recordio")
    options.option("classes", "FILE", "class names, one per line: line i names label i (default: their numbers)");
  declare_preparation(options, kind == "recordio" ? "0" : "256");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  catch_stop_signals("stopping; the same command resumes later; press again to end at once");
  return kind == "imagenet"   ? imagenet_shards(options)
         : kind == "folder"   ? folder_shards(options)
         : kind == "recordio" ? recordio_shards(options)
                              : list_shards(options);
}

}  // namespace

int prepare_imagenet(const Arguments& arguments) { return prepare_images("imagenet", arguments); }
int prepare_folder(const Arguments& arguments) { return prepare_images("folder", arguments); }
int prepare_list(const Arguments& arguments) { return prepare_images("list", arguments); }
int prepare_recordio(const Arguments& arguments) { return prepare_images("recordio", arguments); }

}  // namespace owt
