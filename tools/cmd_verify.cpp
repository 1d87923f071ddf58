#include <algorithm>
#include <iostream>
#include <utility>

#include "src/commands/verify.h"
#include "src/train/data_facts.h"
#include "tools/commands.h"

namespace owt {
namespace {

std::vector<double> false_accept_rates(const Options& options) {
  const std::vector<double> fars = numbers_option(options, "far");
  if (!std::ranges::all_of(fars, [](double far) { return far > 0 && far < 1; }))
    throw UsageError("--far " + options.string("far") + ": wanted rates above 0 and below 1");
  return fars;
}

}  // namespace

int command_verify(const Arguments& arguments) {
  Options options(
      "owt verify",
      "Compares the embeddings of two images to find out whether they show the same person, character or product, "
      "and prints how often that is right. Two images are the same if the cosine similarity of their embeddings is a "
      "threshold or more. Accuracy: the mean over ten folds of consecutive pairs, with the best threshold of the "
      "other nine. TAR at FAR: the share of same pairs that are accepted (true accept rate) with the threshold that "
      "accepts this share of different pairs at most (false accept rate). EER: the error rate where both errors are "
      "equally frequent. AUC: the area under the curve of TAR over FAR (ROC). The result is also stored in the run "
      "folder of the weights, as verification/NAME.json for the list NAME.txt; owt report shows it.");
  declare_trained(options);
  options.positional("PAIRS",
                     "text file with a line 'A B 1' for each pair of the same, and 'A B 0' of different ones. A and B "
                     "are photos, relative to the folder of PAIRS, or numbers of images in the data set, from 0; tabs "
                     "or blanks between them. The classes of the images need not be classes of the network");
  options.option("layer", "NAME",
                 "the layer whose outputs are the embedding (default: the layer before the last; owt inspect CONFIG "
                 "lists all)");
  options.flag("flip", "the embedding is the mean of the embeddings of the image and its mirror image");
  options.option("far", "LIST", "1e-2,1e-3,1e-4", "false accept rates, separated by commas");
  options.option("roc", "FILE", "write the ROC as CSV, a line for each threshold where it bends");
  options.option("similarities", "FILE", "write a CSV file with the similarity of each pair, in the order of PAIRS");
  options.option("json", "FILE", "write the result as JSON too; -: print only this JSON");
  declare_split(options);
  declare_device(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  check_two_files(options, "roc", "similarities");
  for (const char* file : {"roc", "similarities"}) check_two_files(options, file, "json");
  VerifyOptions verification;
  verification.fars = false_accept_rates(options);
  ImagePairs pairs = read_pairs(options.string("PAIRS"));
  if (!pairs.files.empty() && options.given("split"))
    throw UsageError("--split is for numbers of images, and " + options.string("PAIRS") + " names files");
  FeatureSource& source = verification.source;
  source.weights = trained_weights(options);
  source.run_folder = run_of_facts(options, source.weights);
  verification.run = run_of_weights(source.weights);
  verification.pairs = options.string("PAIRS");
  source.threads = shared_threads(options);
  if (options.given("layer")) source.layer = options.string("layer");
  source.mirrored = options.boolean("flip");
  const Settings settings = shared_settings(options);
  source.data = given_data(options, settings);
  if (pairs.files.empty()) source.split = split_option(options, settings);
  if (options.given("roc")) verification.roc = options.string("roc");
  if (options.given("similarities")) verification.similarities = options.string("similarities");
  const std::string json = options.given("json") ? options.string("json") : "";
  if (json != kStandardOutput) verification.json = json;
  const Verification result = verify(settings, std::move(pairs), verification);
  std::cout << (json == kStandardOutput ? verification_json : verification_text)(result, verification);
  return 0;
}

}  // namespace owt
