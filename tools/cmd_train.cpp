#include <filesystem>
#include <iostream>

#include "src/comm/launch.h"
#include "src/commands/run.h"
#include "src/core/log.h"
#include "src/plan/strategy.h"
#include "src/train/job.h"
#include "tools/commands.h"
#include "tools/train_recipe.h"

namespace owt {

namespace {

StartWeights start_weights(const Options& options) {
  StartWeights start;
  if (options.given("weights")) start.file = weights_option(options);
  start.except = options.list("except");
  start.except_mismatched = options.boolean("except-mismatched");
  if (start.file.empty() && (!start.except.empty() || start.except_mismatched))
    throw UsageError(
        "owt train: --except and --except-mismatched say what not to take from --weights FILE, which is "
        "not given");
  return start;
}

}  // namespace

int command_train(const Arguments& arguments) {
  Options options("owt train", "Trains a network from a recipe and writes a run folder with checkpoints and metrics.");
  options.optional_positional("CONFIG", concat("the recipe: ", kFileOrName,
                                               ", or a run folder, whose own recipe is taken; with --resume RUN it may "
                                               "be left out"));
  options.option("data", "DIR", "the data set (default: the recipe's data.dir, else $OWT_DATA, else ./datasets)");
  options.option(
      "out", "DIR",
      "run folder (default: CONFIG where that is one, else runs/<recipe>, or that of --resume DIR); another run in "
      "it is never overwritten");
  declare_shared(options);
  declare_strategy(options);
  declare_length(options);
  declare_classes(options, ClassesOf::kTraining);
  options.option("weights", "FILE",
                 "start from these weights (safetensors, PyTorch's names and order), or those of a run or checkpoint");
  options.repeated("except", "LAYER",
                   "with --weights: draw the weights of this layer anew (a name, or a pattern such as 'fc*')");
  options.flag("except-mismatched", "with --weights: draw those of layers that the file lacks or has in another shape");
  options.option("resume", "auto|DIR",
                 "go on from the run folder's newest checkpoint, where it has one, or from this run or checkpoint");
  options.flag("other-data",
               "with --resume: go on although the training images are others than the run has seen; its best "
               "evaluation is forgotten, its means and classes stay");
  options.flag("tolerate-loss",
               "under --parallel ps with ps.servers, between processes: a worker that is lost, but the first, is gone "
               "on without (ps.tolerate_loss)");
  options.flag("timing", "print the per-layer timing table at the end, and what bounds a step");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  Overrides changes = length_changes(options);
  if (options.boolean("tolerate-loss")) changes.emplace_back("ps.tolerate_loss", "true");
  TrainRecipe recipe = train_recipe(options, with_classes(options, changes));
  const Settings& settings = recipe.settings;
  if (options.boolean("tolerate-loss") && facts_of(settings.parallel.strategy).updates != Updates::kServers)
    throw UsageError("owt train: --tolerate-loss wants a parameter server, --parallel ps with ps.servers");
  tell_of_drawn_images(options, settings);
  TrainOptions train_options;
  const auto take = [&](const char* name) { return options.given(name) ? options.string(name) : std::string(); };
  train_options.data = given_data(options, settings);
  train_options.out = take("out");
  train_options.resume = take("resume");
  if (train_options.out.empty() && (train_options.resume.empty() || train_options.resume == "auto"))
    train_options.out = recipe.run;
  train_options.stays = recipe.stays;
  train_options.other_data = options.boolean("other-data");
  if (train_options.other_data && train_options.resume.empty())
    throw UsageError("owt train: --other-data is for a run that is gone on with; add --resume auto or --resume RUN");
  train_options.start = start_weights(options);
  train_options.threads = shared_threads(options);
  train_options.timing = options.boolean("timing");
  const TrainOutcome outcome = train(settings, train_options);
  if (!outcome.finished) return kStoppedOnSignal;
  if (launch().rank != 0) return 0;
  const Split split = settings.data.evaluated();
  std::cout << format("{} accuracy: top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f} ({} images{})\n", kind_of(split),
                      100 * outcome.evaluation.top1, 100 * outcome.evaluation.top5, outcome.evaluation.loss,
                      outcome.evaluation.images, split == Split::kValidation ? " held out of the training images" : "");
  const bool timed = std::filesystem::exists(std::filesystem::path(outcome.run_folder) / "timing.csv");
  std::cout << format("run folder: {} (config.toml, log.txt, metrics.jsonl, {}checkpoints/)\n", outcome.run_folder,
                      timed ? "timing.csv, " : "");
  if (split == Split::kValidation && has_test_images(settings.data, data_folder(settings.data, train_options.data)))
    std::cout << format(
        "owt eval {} measures the best checkpoint on the test images, which this run has not looked at\n",
        outcome.run_folder);
  return 0;
}

}  // namespace owt
