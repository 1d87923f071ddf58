#include <algorithm>
#include <filesystem>
#include <iostream>

#include "src/commands/json_output.h"
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

struct ModelTotals {
  double parameters = 0, forward = 0, training = 0;  // training and forward: FLOP per image
};

ModelTotals totals_of(const Plan& plan) {
  ModelTotals totals;
  for (const LayerPlan& at : plan.layers) {
    totals.parameters += static_cast<double>(at.parameters);
    totals.forward += at.flops_per_row;
    totals.training += at.flops_per_row + at.backward_flops_per_row;
  }
  return totals;
}

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i]);
  return sizes;
}

OutputJson model_json(const Settings& settings, const Plan& plan) {
  const ModelTotals totals = totals_of(plan);
  const MemoryNeed need = memory_need(plan);
  OutputJson json{{"model", settings.model.name},
                  {"input", sizes_of(settings.model.input)},
                  {"classes", settings.model.classes},
                  {"parameters", static_cast<int64_t>(totals.parameters)},
                  {"forward_flop_per_image", totals.forward},
                  {"training_flop_per_image", totals.training},
                  {"workers", plan.ranks()},
                  {"strategy", name_of(plan.request.strategy)},
                  {"images_per_step", plan.request.step_rows},
                  {"memory_bytes_of_worker_0",
                   {{"weights", need.weight_bytes},
                    {"activations", need.step_row_bytes * static_cast<double>(plan.request.step_rows)},
                    {"checkpoints", need.piece_bytes}}},
                  {"layers", OutputJson::array()}};
  for (const LayerPlan& at : plan.layers)
    json["layers"].push_back({{"name", at.name},
                              {"type", at.type},
                              {"output", sizes_of(at.out)},
                              {"parameters", at.parameters},
                              {"forward_flop_per_image", at.flops_per_row}});
  return json;
}

void print_model(const Settings& settings, const Plan& plan) {
  std::cout << format("model {}: input {} (height x width x channels), {} classes\n\n", settings.model.name,
                      settings.model.input.str(), settings.model.classes);
  std::cout << format("{:<16} {:<16} {:>14} {:>12} {:>14} {:>16}\n", "layer", "type", "output", "parameters",
                      "MFLOP/image", "activation KB");
  for (const LayerPlan& at : plan.layers)
    std::cout << format("{:<16} {:<16} {:>14} {:>12} {:>14.3f} {:>16}\n", at.name, at.type, at.out.str(),
                        at.parameters > 0 ? std::to_string(at.parameters) : "-", mega(at.flops_per_row),
                        at.in_place ? "in place" : format("{:.1f}", static_cast<double>(at.out.elements()) * 4 / 1e3));
  const ModelTotals totals = totals_of(plan);
  std::cout << format("\nparameters {:.0f}; forward {:.3f} GFLOP per image, training step {:.3f} GFLOP per image\n",
                      totals.parameters, totals.forward / 1e9, totals.training / 1e9);
  const MemoryNeed need = memory_need(plan);
  const auto rows = static_cast<double>(plan.request.step_rows);
  std::cout << format(
      "memory of worker 0 of {} ({}, {} images per step): weights, gradients and optimizer {:.1f} MB, "
      "activations and their gradients {:.1f} MB, pieces of checkpoints {:.1f} MB\n",
      plan.ranks(), name_of(plan.request.strategy), plan.request.step_rows,
      mega(static_cast<double>(need.weight_bytes)), mega(need.step_row_bytes * rows),
      mega(static_cast<double>(need.piece_bytes)));
}

void inspect_model(const Settings& settings, bool json) {
  const Plan plan = make_plan(settings.model, settings.plan_request());
  if (json)
    std::cout << json_lines(model_json(settings, plan));
  else
    print_model(settings, plan);
}

OutputJson tensors_json(const std::string& path) {
  const SafetensorsReader file(path);
  OutputJson tensors = OutputJson::array();
  for (const auto& entry : file.entries()) {
    OutputJson one{{"name", entry.name}, {"type", entry.dtype}, {"shape", sizes_of(entry.shape)}};
    if (!entry.unreadable.empty()) one["unreadable"] = entry.unreadable;
    tensors.push_back(one);
  }
  return tensors;
}

void print_tensors(const std::string& path) {
  const SafetensorsReader file(path);
  int64_t elements = 0;
  for (const auto& entry : file.entries()) {
    std::cout << format("{:<40} {:<5} {}\n", printable(entry.name), printable(entry.dtype),
                        entry.unreadable.empty() ? entry.shape.str() : entry.unreadable);
    elements += entry.shape.elements();
  }
  std::cout << format("{}: {} tensors, {} elements\n", path, file.entries().size(), elements);
}

void inspect_tensors(const std::string& path, bool json) {
  if (json)
    std::cout << json_lines({{"file", path}, {"tensors", tensors_json(path)}});
  else
    print_tensors(path);
}

OutputJson checkpoint_json(const std::string& folder, const RunState& state) {
  OutputJson json{{"checkpoint", folder},      {"step", state.step},
                  {"epoch", state.epoch},      {"images_in_epoch", state.images_in_epoch},
                  {"seed", state.seed},        {"workers", state.workers},
                  {"strategy", state.strategy}};
  if (state.best_step >= 0) json["best"] = {{"step", state.best_step}, {"top1", state.best_top1}};
  if (state.ema_step >= 0) json["averages_up_to_step"] = state.ema_step;
  json["tensors"] = tensors_json((fs::path(folder) / kWeightsFile).string());
  return json;
}

void print_checkpoint(const std::string& folder, const RunState& state) {
  std::cout << format("checkpoint {}: all checksums match\n", folder);
  std::cout << format("step {}, epoch {} (+{} images), seed {}, {} worker{}, strategy {}\n", state.step, state.epoch,
                      state.images_in_epoch, state.seed, state.workers, state.workers == 1 ? "" : "s",
                      printable(state.strategy));
  if (state.best_step >= 0)
    std::cout << format("best top-1 {:.2f} % at step {}\n", 100 * state.best_top1, state.best_step);
  if (state.ema_step >= 0)
    std::cout << format("with averages of the weights up to step {}, {}\n", state.ema_step, kEmaFile);
  print_tensors((fs::path(folder) / kWeightsFile).string());
}

void inspect_checkpoint(const std::string& folder, bool json) {
  const RunState state = load_checkpoint_state(folder);
  if (json)
    std::cout << json_lines(checkpoint_json(folder, state));
  else
    print_checkpoint(folder, state);
}

void inspect_run(const std::string& folder, bool json) {
  if (const auto newest = newest_checkpoint(folder)) return inspect_checkpoint(*newest, json);
  const std::string recipe = (fs::path(folder) / "config.toml").string();
  if (json)
    std::cout << json_lines({{"run", folder}, {"recipe", recipe}});
  else
    std::cout << format("run {}: no checkpoint yet; its recipe is {}\n", folder, recipe);
}

bool is_run_folder(const std::string& folder) {
  return fs::is_regular_file(fs::path(folder) / "config.toml") || newest_checkpoint(folder);
}

void inspect_folder(const std::string& folder, const SheetRequest& sheet, const DataReport& report) {
  const bool checkpoint = is_checkpoint(folder);
  if (!checkpoint && !is_run_folder(folder)) return inspect_data(folder, sheet, report);
  if (!sheet.file.empty())
    fail("a contact sheet needs a data set; ", folder, " is a ", checkpoint ? "checkpoint" : "run folder");
  checkpoint ? inspect_checkpoint(folder, report.json) : inspect_run(folder, report.json);
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
    throw UsageError(concat("--classes is for data sets, but ", path, " is not one"));
  const bool has_layers = !fs::is_directory(path) && !path.ends_with(".safetensors");
  if (has_layers || options.given("draw")) return;
  for (const char* name : {"workers", "device", "precision", "set", "batch", "parallel", "shares"})
    if (options.given(name))
      throw UsageError(concat("--", name, " is for recipes and models, and ", path, " is ",
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
  declare_json(options);
  declare_planned(options);
  declare_keys(options, {"batch"});
  declare_strategy(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  std::string path = with_latest(options.string("CONFIG"));
  if (!fs::exists(path)) path = find_recipe(path);
  if (!fs::exists(path)) fail("no file or folder ", path);
  check_used(options, path);
  if (options.given("sheet") && !fs::is_directory(path)) fail("a contact sheet needs a data set; ", path, " is a file");
  const bool json = options.boolean("json");
  if (fs::is_directory(path))
    inspect_folder(path,
                   {.file = options.given("sheet") ? options.string("sheet") : "",
                    .recipe = options.given("recipe") ? find_recipe(options.string("recipe")) : "",
                    .sheet = {.samples = options.integer("samples", {.low = 1, .high = 1e5}),
                              .names = true,
                              .seed = static_cast<uint64_t>(options.integer("seed", {.low = 0}))}},
                   {.all_classes = options.boolean("classes"), .json = json});
  else if (path.ends_with(".safetensors"))
    inspect_tensors(path, json);
  else
    inspect_model(shared_settings(options), json);
  if (options.given("draw")) draw(options, path);
  return 0;
}

}  // namespace owt
