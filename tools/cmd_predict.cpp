#include <iostream>

#include "src/commands/predict_photos.h"
#include "src/system/log.h"
#include "src/system/printable.h"
#include "tools/commands.h"

namespace owt {
namespace {

void print(const PhotoPrediction& answer, const Classifier& classifier) {
  if (!answer.error.empty()) {
    std::cerr << "owt: error: " << printable(concat(answer.file, ": ", answer.error)) << std::endl;
    return;
  }
  std::cout << printable(answer.file) << '\n';
  for (const RankedClass& ranked : answer.top)
    std::cout << format("  {:6.2f} %  {}\n", 100 * ranked.probability, printable(classifier.class_name(ranked.index)));
  std::cout.flush();
}

}  // namespace

int command_predict(const Arguments& arguments) {
  Options options("owt predict",
                  "Prints the most probable classes of photos: JPEG, PNG, BMP, WebP or TIFF files of any size. Class "
                  "names and image means come from the run of the weights; for weights without a run, give --data.");
  declare_trained(options, /*always_reads_data=*/false);
  options.positional_list(
      "IMAGE",
      "files; a file that cannot be read is reported, the others are still classified, and the exit code is 1");
  declare_views(options);
  options.option("top", "N", "5", "number of classes to print for each image");
  options.flag("json", "print a JSON array of {file, top: [{class, name, probability}]}, or {file, error}");
  declare_image_workers(options);
  declare_device(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  ClassifyOptions classify;
  classify.weights = trained_weights(options);
  classify.run_folder = run_of_facts(options, classify.weights);
  classify.threads = shared_threads(options);
  classify.workers = image_workers(options);
  const Settings settings = shared_settings(options);
  classify.data = given_data(options, settings);
  classify.views = views_option(options, settings);
  classify.top = static_cast<int>(options.integer("top", {.low = 1, .high = 1 << 24}));
  Classifier classifier(settings, classify);

  const std::vector<std::string> files = options.list("IMAGE");
  std::vector<PhotoPrediction> all;
  bool failed = false;
  classifier.each(files, [&](PhotoPrediction& answer) {
    failed |= !answer.error.empty();
    if (options.boolean("json"))
      all.push_back(std::move(answer));
    else
      print(answer, classifier);
  });
  if (options.boolean("json")) std::cout << classifier.json(all);
  return failed ? 1 : 0;
}

}  // namespace owt
