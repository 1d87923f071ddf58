#include <filesystem>
#include <iostream>

#include "src/comm/launch.h"
#include "src/commands/elastic_run.h"
#include "src/commands/evaluation_json.h"
#include "src/commands/run.h"
#include "src/files/checkpoint_files.h"
#include "src/plan/strategy.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/train/data_facts.h"
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
        "--except and --except-mismatched need --weights FILE: they name the layers that are not taken from "
        "it");
  return start;
}

void declare_options_of_train(Options& options) {
  options.optional_positional("CONFIG", concat("the recipe: ", kFileOrName,
                                               ", or a run folder, whose recipe is used; optional with --resume RUN"));
  options.option("data", "DIR", "the data set (default: the recipe's data.dir, else $OWT_DATA, else ./datasets)");
  options.option("out", "DIR",
                 "run folder (default: CONFIG if it is a run folder, the run of --resume DIR, else runs/<recipe>); "
                 "another run in it is never overwritten");
  declare_shared(options);
  declare_strategy(options);
  declare_keys(options, {"epochs", "steps", "lr", "batch", "seed"});
  declare_classes(options, ClassesOf::kTraining);
  options.option(
      "weights", "FILE",
      "start from these weights: a safetensors file with PyTorch's names and order, or a run or checkpoint folder");
  options.repeated(
      "except", "LAYER",
      "with --weights: initialise the weights of this layer randomly (a name, or a pattern such as 'fc*')");
  options.flag("except-mismatched",
               "with --weights: also initialise the layers that the file lacks or has in another shape");
  options.option("resume", "auto|DIR",
                 "auto: resume from the newest checkpoint of the run folder, if there is one; DIR: resume from this "
                 "run or checkpoint");
  options.flag("other-data",
               "with --resume: accept other training images than before; resets the best evaluation, keeps the means "
               "and classes");
  options.flag("tolerate-loss",
               "with --parallel ps, ps.servers and several processes: continue if a worker other than worker 0 is lost "
               "(ps.tolerate_loss)");
  options.option("json", "FILE",
                 "write the final accuracy as JSON too, like owt eval --json, with the run folder; -: print only this "
                 "JSON");
  options.flag("timing", "print the per-layer timing table and the bottleneck of a step at the end");
}

// json: --json; empty: none.
TrainOptions train_options_of(const Options& options, const TrainRecipe& recipe, const std::string& json) {
  TrainOptions train;
  const auto take = [&](const char* name) { return options.given(name) ? options.string(name) : std::string(); };
  train.data = given_data(options, recipe.settings);
  train.out = take("out");
  train.resume = with_latest(take("resume"));
  if (train.out.empty() && (train.resume.empty() || train.resume == "auto")) train.out = recipe.run;
  train.stays = recipe.stays;
  train.other_data = options.boolean("other-data");
  if (train.other_data && train.resume.empty())
    throw UsageError("--other-data is for a resumed run; add --resume auto or --resume RUN");
  train.start = start_weights(options);
  train.threads = shared_threads(options);
  train.timing = options.boolean("timing");
  if (json == kStandardOutput && train.timing)
    throw UsageError("--timing prints a table, and --json - only JSON; leave out one of them");
  if (json != kStandardOutput) check_outputs({json});
  return train;
}

void print_outcome(const TrainOutcome& outcome, const Settings& settings, const std::string& data) {
  const Split split = settings.data.evaluated();
  std::cout << format("{} accuracy: {}, loss {:.4f} ({} images{})\n", kind_of(split),
                      accuracy_text(outcome.evaluation, outcome.classes), outcome.evaluation.loss,
                      outcome.evaluation.images, split == Split::kValidation ? " held out of the training images" : "");
  const bool timed = std::filesystem::exists(std::filesystem::path(outcome.run_folder) / "timing.csv");
  std::cout << format("run folder: {} (config.toml, log.txt, metrics.jsonl, {}checkpoints/)\n", outcome.run_folder,
                      timed ? "timing.csv, " : "");
  if (split == Split::kValidation && has_images(settings.data, data_folder(settings.data, data), Split::kTest))
    std::cout << format("owt eval {} measures the best checkpoint on the test images, which this run has not used\n",
                        outcome.run_folder);
}

std::string outcome_json(const TrainOutcome& outcome, const Settings& settings) {
  EvalOptions evaluated;
  evaluated.weights = trained_weights_of(newest_checkpoint(outcome.run_folder).value_or(""));
  evaluated.request.split = settings.data.evaluated();
  return evaluation_json(outcome.evaluation, evaluated, outcome.classes, outcome.run_folder);
}

TrainRecipe recipe_of(const Options& options) {
  Overrides changes;
  const bool tolerates = options.boolean("tolerate-loss");
  if (tolerates) changes.emplace_back("ps.tolerate_loss", "true");
  TrainRecipe recipe = train_recipe(options, with_classes(options, changes));
  if (tolerates && recipe.settings.computing_ranks() == recipe.settings.parallel.workers)
    throw UsageError("--tolerate-loss needs a parameter server: --parallel ps with ps.servers");
  tell_of_drawn_images(options, recipe.settings);
  return recipe;
}

}  // namespace

int command_train(const Arguments& arguments) {
  Options options("owt train", "Trains a network from a recipe and writes a run folder with checkpoints and metrics.");
  declare_options_of_train(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const std::string json = options.given("json") ? options.string("json") : "";
  Settings settings;
  std::string data;
  const TrainOutcome outcome = train_through_changes([&](RunMemory* memory) {
    const TrainRecipe recipe = recipe_of(options);
    TrainOptions train_options = train_options_of(options, recipe, json);
    train_options.memory = memory;
    settings = recipe.settings;
    data = train_options.data;
    return train(settings, train_options);
  });
  if (outcome.left) {
    std::cout << "this worker has left the run, which continues without it\n";
    return 0;
  }
  if (!outcome.finished) return kStoppedOnSignal;
  if (launch().rank != 0) return 0;
  if (json == kStandardOutput)
    std::cout << outcome_json(outcome, settings);
  else
    print_outcome(outcome, settings, data);
  if (!json.empty() && json != kStandardOutput) write_file_atomically(json, outcome_json(outcome, settings));
  return 0;
}

}  // namespace owt
