#include <iostream>

#include "data/prepare/cifar_archive.h"
#include "data/prepare/synthetic_files.h"
#include "data/synthetic.h"
#include "src/core/log.h"
#include "tools/commands.h"

namespace owt {
namespace {

int prepare_synthetic_set(const Arguments& arguments) {
  Options options("owt prepare synthetic",
                  "Draws ten classes of coloured shapes and writes them in the CIFAR-10 binary format.");
  options.positional("DIR", "gets a folder cifar-10-batches-bin");
  options.option("train", "N", "10000", "training images");
  options.option("test", "N", "2000", "test images");
  options.option("seed", "S", "1", "of all that is random in the images");
  options.flag("force", "replace a data set that is there already");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const int64_t train = options.integer("train", {.low = 5, .high = 1e7}),
                test = options.integer("test", {.low = 1, .high = 1e7});
  const std::string folder =
      prepare_synthetic(options.string("DIR"), train, test, static_cast<uint64_t>(options.integer("seed", {.low = 0})),
                        options.boolean("force"));
  std::cout << format("{}: {} training and {} test images of {} classes\n", folder, train, test, kSyntheticClasses);
  return 0;
}

int prepare_cifar(const Arguments& arguments) {
  Options options("owt prepare cifar", "Unpacks and checks the official CIFAR-10 or CIFAR-100 binary archive.");
  options.positional("ARCHIVE",
                     "cifar-10-binary.tar.gz or cifar-100-binary.tar.gz (tools/fetch_cifar10.sh downloads it)");
  options.positional("DIR", "gets a folder cifar-10-batches-bin or cifar-100-binary");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  std::cout << unpack_cifar_archive(options.string("ARCHIVE"), options.string("DIR")) << ": unpacked and checked\n";
  return 0;
}

}  // namespace

int command_prepare(const Arguments& arguments) {
  const std::string kind = arguments.empty() ? "" : arguments[0];
  if (kind == "synthetic") return prepare_synthetic_set({arguments.begin() + 1, arguments.end()});
  if (kind == "cifar") return prepare_cifar({arguments.begin() + 1, arguments.end()});
  if (kind == "stats") return prepare_stats({arguments.begin() + 1, arguments.end()});
  if (kind == "imagenet" || kind == "folder" || kind == "list") return prepare_images(arguments);
  const std::string usage =
      "usage: owt prepare imagenet IN OUT       the official files of ILSVRC2012, as shards\n"
      "       owt prepare folder IN OUT         a folder of images per class, as shards\n"
      "       owt prepare list FILE OUT         the images that a text file names, as shards\n"
      "       owt prepare stats DIR             measure the colours of shards\n"
      "       owt prepare synthetic DIR ...     ten classes of drawn shapes, in the CIFAR-10 format\n"
      "       owt prepare cifar ARCHIVE DIR     unpack and check the official CIFAR archive\n"
      "owt prepare KIND --help says more.\n";
  if (kind == "--help" || kind == "-h") {
    std::cout << usage;
    return 0;
  }
  throw UsageError("owt prepare: wanted imagenet, folder, list, stats, synthetic or cifar" +
                   (kind.empty() ? "" : ", not '" + kind + "'") + "; owt prepare --help");
}

}  // namespace owt
