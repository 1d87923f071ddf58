#include <filesystem>
#include <optional>

#include "src/comm/launch.h"
#include "src/files/checkpoint_files.h"
#include "src/system/log.h"
#include "src/train/data_facts.h"
#include "src/train/job.h"
#include "tools/commands.h"

namespace owt {

namespace fs = std::filesystem;

std::string with_latest(const std::string& path) {
  fs::path rest;
  for (fs::path at = path; at.has_relative_path();
       rest = rest.empty() ? at.filename() : at.filename() / rest, at = at.parent_path()) {
    const fs::path folder = at.parent_path();
    if (at.filename() != "latest" || folder.filename() != "checkpoints" || !fs::is_regular_file(at)) continue;
    const auto newest = newest_checkpoint(folder.has_parent_path() ? folder.parent_path().string() : ".");
    return newest ? (rest.empty() ? fs::path(*newest) : *newest / rest).string() : path;
  }
  return path;
}

void declare_trained(Options& options, bool always_reads_data) {
  options.positional("CONFIG", concat("a run folder, or the recipe: ", kFileOrName));
  options.option("weights", "FILE",
                 "safetensors file with the model's weights, or a run or checkpoint folder (default, if CONFIG is a "
                 "run folder or its config.toml: the run's checkpoint with the best top-1, or the newest if none was "
                 "evaluated; its averaged weights if it has them)");
  options.option("data", "DIR",
                 always_reads_data ? "the data set (default: the recipe's data.dir, else $OWT_DATA, else ./datasets)"
                                   : "the data set, for weights without a run: class names, and image means that the "
                                     "recipe computes");
}

std::string run_folder_of(const Options& options) {
  const fs::path config = with_latest(options.string("CONFIG"));
  const fs::path folder = fs::is_directory(config) ? config : config.parent_path();
  return config_file(config.string()) == (folder / kRunConfig).string() ? (folder.empty() ? "." : folder.string()) : "";
}

std::string run_of_facts(const Options& options, const std::string& weights) {
  const std::string run = run_of_weights(weights);
  return run.empty() ? run_folder_of(options) : run;
}

std::string weights_option(const Options& options) {
  const std::string given = with_latest(options.string("weights"));
  const bool is_folder = fs::is_directory(given);
  const std::string named = is_folder ? given : fs::path(given).parent_path().string();
  if (is_checkpoint(named)) load_checkpoint_state(named);  // damaged weights must not be used
  if (!is_folder) return given;
  const auto checkpoint = is_checkpoint(given) ? given : best_checkpoint(given).value_or("");
  if (checkpoint.empty()) fail("--weights ", given, ": the folder is no checkpoint and no run with one");
  return trained_weights_of(checkpoint);
}

std::string trained_weights(const Options& options) {
  if (options.given("weights")) return weights_option(options);
  const std::string run = run_folder_of(options);
  const auto best = run.empty() ? std::optional<std::string>() : best_checkpoint(run);
  if (!best)
    throw UsageError(
        concat("--weights FILE is missing, and ", options.string("CONFIG"), " is no run folder with checkpoints"));
  const std::string file = trained_weights_of(*best);
  log_info("with the {}weights of {}", fs::path(file).filename() == kEmaFile ? "averaged " : "", *best);
  return file;
}

void declare_views(Options& options) {
  options.option("views", "N", "1",
                 "1 to 10: average the probabilities of so many views of each image: the centre, the four corners from "
                 "the upper left to the lower right, then these five mirrored (Krizhevsky et al. 2012: 10); mirror: "
                 "average the logits of the image and its mirror image; shift: these two with weight 1/2, and both a "
                 "pixel up and left, and a pixel down and right, with weight 1/4 each (airbench, tta = 2)");
}

Views views_option(const Options& options, const Settings& settings) {
  const std::string views = options.string("views");
  if (views == "mirror") return Views::mirror();
  if (views != "shift" && views.find_first_not_of("0123456789") != std::string::npos)
    throw UsageError("--views " + views + ": wanted 1 to 10, mirror or shift");
  if (views != "shift") {
    const Views crops(static_cast<int>(options.integer("views", {.low = 1, .high = kMostViews})));
    const AugmentSettings& augment = settings.data.augment;
    const bool whole = settings.data.format != "shards" && augment.pad == 0 &&
                       (augment.crop == 0 || augment.crop == settings.data.image[0]);
    if (crops.count > 1 && whole && launch().rank == 0)
      log_info(
          "--views {}: the recipe uses whole images, so the corner views equal the centre view{}", views,
          crops.count > 5 ? ", and the last five views are mirror images" : "; --views mirror adds the mirror image");
    return crops;
  }
  if (settings.data.format == "shards")
    throw UsageError(
        "--views shift is for images that are all of one size, and shards hold photographs; take --views 10");
  return Views::shift();
}

void declare_split(Options& options) {
  options.option("split", "NAME", "test",
                 "test | val | train; val: the training images that data.validation holds out; no split is augmented");
}

Split split_option(const Options& options, const Settings& settings) {
  if (const std::string data = data_folder(settings.data, options.given("data") ? options.string("data") : "");
      !options.given("split") && settings.data.validation > 0 && !has_images(settings.data, data, Split::kTest)) {
    if (launch().rank == 0) log_info("{} has no test images; using --split val, the held-out training images", data);
    return Split::kValidation;
  }
  const std::string name = options.string("split");
  for (const Split split : {Split::kTest, Split::kValidation, Split::kTrain}) {
    if (name != name_of(split)) continue;
    if (split == Split::kValidation && settings.data.validation == 0)
      throw UsageError(concat("--split val: ", options.string("CONFIG"),
                              " holds no validation images out; train with data.validation, e.g. --set "
                              "data.validation=0.1, or take another split",
                              settings.data.format == "shards" ? " (the folder val of shards is --split test)" : ""));
    return split;
  }
  throw UsageError("--split " + name + ": wanted test, val or train");
}

}  // namespace owt
