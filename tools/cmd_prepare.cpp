#include <iostream>
#include <tuple>

#include "data/prepare/cifar_archive.h"
#include "data/prepare/synthetic_files.h"
#include "data/synthetic.h"
#include "src/comm/signals.h"
#include "src/core/threads.h"
#include "src/system/log.h"
#include "tools/commands.h"
#include "tools/prepare_progress.h"

namespace owt {
namespace {

int64_t images(const Options& options, const std::string& option, int64_t otherwise, double low = 1) {
  return options.given(option) ? options.integer(option, {.low = low, .high = 1e7}) : otherwise;
}

int prepare_synthetic_files(const Options& options) {
  if (options.given("classes")) throw UsageError("--classes is for --photos; the CIFAR-10 format has ten");
  const int64_t train = images(options, "train", 10000, 5), test = images(options, "test", 2000);
  const std::string folder =
      prepare_synthetic(options.string("DIR"), train, test, static_cast<uint64_t>(options.integer("seed", {.low = 0})),
                        options.boolean("force"));
  std::cout << format("{}: {} training and {} test images of {} classes\n", folder, train, test, kSyntheticClasses);
  return 0;
}

int prepare_synthetic_photos(const Options& options) {
  if (options.boolean("force")) throw UsageError("--force replaces no photographs; remove their folder first");
  SyntheticPhotos photos{.seed = static_cast<uint64_t>(options.integer("seed", {.low = 0}))};
  if (options.given("classes"))
    photos.classes = static_cast<int>(options.integer("classes", {.low = 1, .high = kSyntheticPhotoClasses}));
  const std::string dir = options.string("DIR");
  catch_stop_signals("stopping; press again to end at once");
  for (const auto& [split, option, otherwise] :
       {std::tuple(Split::kTrain, "train", int64_t{1600}), std::tuple(Split::kTest, "test", int64_t{400})}) {
    const int64_t count = images(options, option, otherwise);
    photos.split = split;
    PrepareProgress progress(dir);
    if (!write_synthetic_photos(dir, photos, count, default_threads(), [&](int64_t done) {
          progress.update({.done = done, .photos = count});
          return !stop_requested();
        }))
      return kStoppedOnSignal;
    std::cout << format("{}/{}: {} photographs of {} classes\n", dir, split == Split::kTrain ? "train" : "val", count,
                        photos.classes);
  }
  return 0;
}

int prepare_synthetic_set(const Arguments& arguments) {
  Options options("owt prepare synthetic",
                  "Draws coloured shapes of ten classes and writes them in the CIFAR-10 binary format, or as "
                  "photographs.");
  options.positional("DIR", "folder to write to: gets cifar-10-batches-bin, or with --photos train and val");
  options.flag("photos", "draw scenes of 128 to 400 pixels a side, as train/CLASS/*.jpg and val/CLASS/*.jpg");
  options.option("train", "N", "number of training images (default: 10000; with --photos 1600)");
  options.option("test", "N", "number of test images (default: 2000; with --photos 400)");
  options.option("classes", "N",
                 concat("with --photos: number of classes, 1 to ", kSyntheticPhotoClasses,
                        "; with more than 10, a class is a shape and its colour (default: 10)"));
  options.option("seed", "S", "1", "random seed of the images");
  options.flag("force", "replace an existing data set in the CIFAR-10 format");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  return options.boolean("photos") ? prepare_synthetic_photos(options) : prepare_synthetic_files(options);
}

int prepare_cifar(const Arguments& arguments) {
  Options options("owt prepare cifar", "Unpacks and checks the official CIFAR-10 or CIFAR-100 binary archive.");
  options.positional("ARCHIVE",
                     "cifar-10-binary.tar.gz or cifar-100-binary.tar.gz (tools/fetch_cifar10.sh downloads it)");
  options.positional("DIR", "folder to write to: gets cifar-10-batches-bin or cifar-100-binary");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  std::cout << unpack_cifar_archive(options.string("ARCHIVE"), options.string("DIR")) << ": unpacked and checked\n";
  return 0;
}

struct Kind {
  const char *name, *arguments, *about;
  int (*run)(const Arguments&);
};

constexpr Kind kKinds[] = {
    {"imagenet", "IN OUT", "the official files of ILSVRC2012, as shards", prepare_imagenet},
    {"folder", "IN OUT", "a folder of images per class, as shards", prepare_folder},
    {"list", "FILE OUT", "the images that a text file lists, as shards", prepare_list},
    {"recordio", "FILE OUT", "the images of an MXNet .rec file, as shards", prepare_recordio},
    {"index", "DIR", "an index of tar files in WebDataset format", prepare_index},
    {"stats", "DIR", "measure the colours of shards", prepare_stats},
    {"synthetic", "DIR ...", "ten classes of drawn shapes, as CIFAR-10 or photographs", prepare_synthetic_set},
    {"cifar", "ARCHIVE DIR", "unpack and check the official CIFAR archive", prepare_cifar},
};

std::string usage() {
  std::string text;
  for (const Kind& kind : kKinds)
    text += format("{} owt prepare {:<22}{}\n", text.empty() ? "usage:" : "      ",
                   concat(kind.name, " ", kind.arguments), kind.about);
  return text + "'owt prepare KIND --help' describes each.\n";
}

}  // namespace

std::vector<HelpEntry> prepare_kinds() {
  std::vector<HelpEntry> kinds;
  for (const Kind& kind : kKinds) kinds.push_back({kind.name, kind.about});
  return kinds;
}

int command_prepare(const Arguments& arguments) {
  const std::string wanted = arguments.empty() ? "" : arguments[0];
  if (wanted == "--help" || wanted == "-h") {
    std::cout << usage();
    return 0;
  }
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (wanted == kind.name) return kind.run({arguments.begin() + 1, arguments.end()});
    names.push_back(kind.name);
  }
  const std::string near = nearest(wanted, names);
  throw UsageError(concat("wanted ", joined(names), wanted.empty() ? "" : concat(", not '", wanted, "'"),
                          near.empty() ? "; owt prepare --help" : concat("; did you mean '", near, "'?")));
}

}  // namespace owt
