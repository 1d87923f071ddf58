#include <algorithm>
#include <filesystem>
#include <iostream>

#include "src/commands/run.h"
#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"
#include "src/predict/memory_need.h"
#include "src/report/draw_net.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/printable.h"
#include "tools/commands.h"
#include "tools/inspect_data.h"
#include "tools/recipes.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

double mega(double value) { return value / 1e6; }

void inspect_model(const Settings& settings) {
  const Plan plan = make_plan(settings.model, settings.plan_request());
  std::cout << format("model {}: input {} (height x width x channels), {} classes\n\n", settings.model.name,
                      settings.model.input.str(), settings.model.classes);
  std::cout << format("{:<16} {:<16} {:>14} {:>12} {:>14} {:>16}\n", "layer", "type", "output", "parameters",
                      "MFLOP/image", "activation KB");
  double parameters = 0, forward = 0, training = 0;
  for (const LayerPlan& at : plan.layers) {
    const auto count = static_cast<double>(at.parameters);
    parameters += count;
    forward += at.flops_per_row;
    training += at.flops_per_row + at.backward_flops_per_row;
    std::cout << format("{:<16} {:<16} {:>14} {:>12} {:>14.3f} {:>16}\n", at.name, at.type, at.out.str(),
                        count > 0 ? format("{:.0f}", count) : "-", mega(at.flops_per_row),
                        at.in_place ? "in place" : format("{:.1f}", static_cast<double>(at.out.elements()) * 4 / 1e3));
  }
  std::cout << format("\nparameters {:.0f}; forward {:.3f} GFLOP per image, training step {:.3f} GFLOP per image\n",
                      parameters, forward / 1e9, training / 1e9);
  const MemoryNeed need = memory_need(plan);
  const auto rows = static_cast<double>(plan.request.step_rows);
  std::cout << format(
      "memory of worker 0 of {} ({}, {} images per step): weights, gradients and optimizer {:.1f} MB, "
      "activations and their gradients {:.1f} MB, pieces of checkpoints {:.1f} MB\n",
      plan.ranks(), name_of(plan.request.strategy), plan.request.step_rows,
      mega(static_cast<double>(need.weight_bytes)), mega(need.step_row_bytes * rows),
      mega(static_cast<double>(need.piece_bytes)));
}

void inspect_tensors(const std::string& path) {
  const SafetensorsReader file(path);
  int64_t elements = 0;
  for (const auto& entry : file.entries()) {
    std::cout << format("{:<40} {:<5} {}\n", printable(entry.name), printable(entry.dtype),
                        entry.unreadable.empty() ? entry.shape.str() : entry.unreadable);
    elements += entry.shape.elements();
  }
  std::cout << format("{}: {} tensors, {} elements\n", path, file.entries().size(), elements);
}

void inspect_checkpoint(const std::string& folder) {
  const RunState state = load_checkpoint_state(folder);
  std::cout << format("checkpoint {}: all checksums match\n", folder);
  std::cout << format("step {}, epoch {} (+{} images), seed {}, {} worker(s), strategy {}\n", state.step, state.epoch,
                      state.images_in_epoch, state.seed, state.workers, printable(state.strategy));
  if (state.best_step >= 0)
    std::cout << format("best top-1 {:.2f} % at step {}\n", 100 * state.best_top1, state.best_step);
  if (state.ema_step >= 0)
    std::cout << format("with averages of the weights up to step {}, {}\n", state.ema_step, kEmaFile);
  inspect_tensors((fs::path(folder) / kWeightsFile).string());
}

void inspect_run(const std::string& folder) {
  if (const auto newest = newest_checkpoint(folder)) return inspect_checkpoint(*newest);
  std::cout << format("run {}: no checkpoint yet; its recipe is {}\n", folder,
                      (fs::path(folder) / "config.toml").string());
}

bool is_run_folder(const std::string& folder) {
  return fs::is_regular_file(fs::path(folder) / "config.toml") || newest_checkpoint(folder);
}

void inspect_folder(const std::string& folder, const SheetRequest& sheet, bool all_classes) {
  const bool checkpoint = is_checkpoint(folder);
  if (!checkpoint && !is_run_folder(folder)) return inspect_data(folder, sheet, all_classes);
  if (!sheet.file.empty())
    fail("a contact sheet needs a data set; ", folder, " is a ", checkpoint ? "checkpoint" : "run folder");
  checkpoint ? inspect_checkpoint(folder) : inspect_run(folder);
}

// Throws Error for files and folders without layers.
void draw(const Options& options, const std::string& path) {
  if (path.ends_with(".safetensors"))
    fail("--draw needs layers, but ", path, " holds only tensors; name its run or its recipe");
  if (fs::is_directory(path) && !is_checkpoint(path) && !is_run_folder(path))
    fail("--draw needs a network, but ", path, " is a data set; name a recipe, a model, a run or a checkpoint");
  const Settings settings = shared_settings(options);
  write_file_atomically(options.string("draw"), draw_net(make_plan(settings.model, settings.plan_request())));
}

// Throws UsageError for options that would have no effect.
void check_used(const Options& options, const std::string& path) {
  for (const char* name : {"recipe", "samples", "seed"}) options.only_with(name, {"sheet"});
  const bool is_data = fs::is_directory(path) && !is_checkpoint(path) && !is_run_folder(path);
  if (options.boolean("classes") && !is_data)
    throw UsageError(concat("owt inspect: --classes is for data sets, but ", path, " is not one"));
  const bool has_layers = !fs::is_directory(path) && !path.ends_with(".safetensors");
  if (has_layers || options.given("draw")) return;
  for (const char* name : {"workers", "device", "precision", "set", "parallel", "shares"})
    if (options.given(name))
      throw UsageError(concat("owt inspect: --", name, " is for recipes and models, and ", path, " is ",
                              fs::is_directory(path) ? "a folder" : "a weights file"));
}

}  // namespace

int command_inspect(const Arguments& arguments) {
  Options options("owt inspect",
                  "Shows what is in a recipe, a model file, a weights file, a checkpoint, a run folder or a data set.");
  options.positional("CONFIG", "the file or folder, or the name of a recipe or a model that 'owt recipes' lists");
  options.flag("classes",
               "for a data set: list all classes (default: the 5 with the most and the 5 with the fewest images)");
  options.option(
      "sheet", "FILE",
      "for a data set: write a PNG of random training samples as the network would see them, with their classes");
  options.option("recipe", "CONFIG",
                 "recipe whose augmentation the sheet shows (default: a crop of 224 for shards, else none)");
  options.option("samples", "N", "64", "number of images on the sheet");
  options.option("seed", "S", "1", "random seed of the samples and their augmentation");
  options.option("draw", "FILE.svg",
                 "for a recipe, a model, a run or a checkpoint: draw the network, layer by layer, with the part that "
                 "each worker holds");
  declare_planned(options);
  declare_strategy(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  std::string path = options.string("CONFIG");
  if (!fs::exists(path)) path = find_recipe(path);
  if (!fs::exists(path)) fail("no file or folder ", path);
  check_used(options, path);
  if (options.given("sheet") && !fs::is_directory(path)) fail("a contact sheet needs a data set; ", path, " is a file");
  if (fs::is_directory(path))
    inspect_folder(path,
                   {.file = options.given("sheet") ? options.string("sheet") : "",
                    .recipe = options.given("recipe") ? find_recipe(options.string("recipe")) : "",
                    .sheet = {.samples = options.integer("samples", {.low = 1, .high = 1e5}),
                              .names = true,
                              .seed = static_cast<uint64_t>(options.integer("seed", {.low = 0}))}},
                   options.boolean("classes"));
  else if (path.ends_with(".safetensors"))
    inspect_tensors(path);
  else
    inspect_model(shared_settings(options));
  if (options.given("draw")) draw(options, path);
  return 0;
}

}  // namespace owt
