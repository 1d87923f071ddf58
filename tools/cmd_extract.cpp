#include <iostream>

#include "src/commands/extract.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {

int command_extract(const Arguments& arguments) {
  Options options(
      "owt extract",
      "Writes the outputs of a layer as a NumPy array of f32, with a row for each image of the data set, in its order, "
      "or for each IMAGE. The shape is images x features for a dense layer, else images x channels x height x width "
      "(PyTorch's order). The output is taken before a relu that follows the layer.");
  declare_trained(options);
  options.optional_list("IMAGE", "photos instead of a data set, in the formats of owt predict");
  options.option("layer", "NAME", "the layer, e.g. fc7 (owt inspect CONFIG lists them)");
  options.option("out", "FILE", "the .npy file to write");
  options.option("labels", "FILE", "also write the images' labels, as a .npy file of int64");
  declare_split(options);
  declare_classes(options, ClassesOf::kTrained);
  declare_image_workers(options);
  declare_device(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  for (const std::string name : {"layer", "out"})
    if (!options.given(name)) throw UsageError("--" + name + " is missing");
  check_two_files(options, "out", "labels");
  ExtractOptions extraction;
  FeatureSource& source = extraction.source;
  source.photos = options.list("IMAGE");
  if (!source.photos.empty())
    for (const std::string name : {"labels", "split", "classes"})
      if (options.given(name)) throw UsageError("--" + name + " is for data sets, and IMAGE names photos");
  source.weights = trained_weights(options);
  source.run_folder = run_of_facts(options, source.weights);
  source.threads = shared_threads(options);
  source.workers = image_workers(options);
  source.layer = options.string("layer");
  extraction.out = options.string("out");
  source.labels = options.given("labels");
  if (options.given("labels")) extraction.labels = options.string("labels");
  const Settings settings = shared_settings(options, with_classes(options));
  source.data = given_data(options, settings);
  if (source.photos.empty()) source.split = split_option(options, settings);
  const Shape shape = extract(settings, extraction);
  std::cout << format("{}: {} of '{}', f32\n", extraction.out, shape.str(), source.layer);
  return 0;
}

}  // namespace owt
