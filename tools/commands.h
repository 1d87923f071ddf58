// The subcommands of owt. Each takes the words after its name and returns the exit code. It throws UsageError for a
// wrong command line, and Error for any other failure.
#pragma once

#include <string>
#include <vector>

#include "src/commands/options.h"
#include "src/predict/compute_model.h"
#include "src/recipe/settings.h"
#include "src/system/check.h"

namespace owt {

using Arguments = std::vector<std::string>;

// Runs the program with these words after its name.
int run_program(const Arguments& words);
struct HelpEntry {
  std::string name, about;
};
std::vector<HelpEntry> program_commands();
std::vector<HelpEntry> prepare_kinds();  // the words after owt prepare

constexpr const char* kStandardOutput = "-";  // a value of --json FILE
constexpr int kStoppedOnSignal = 75;          // exit code of a run that can be resumed; EX_TEMPFAIL of sysexits.h

int command_train(const Arguments& arguments);
int command_eval(const Arguments& arguments);
int command_predict(const Arguments& arguments);
int command_extract(const Arguments& arguments);
int command_verify(const Arguments& arguments);
int command_simulate(const Arguments& arguments);
int command_time(const Arguments& arguments);
int command_check(const Arguments& arguments);
int command_report(const Arguments& arguments);
int command_watch(const Arguments& arguments);
int command_plan(const Arguments& arguments);
int command_bench_comm(const Arguments& arguments);
int command_bench_data(const Arguments& arguments);
int command_ask(const Arguments& arguments);
int command_launch(const Arguments& arguments);
int command_prepare(const Arguments& arguments);
int prepare_imagenet(const Arguments& arguments);
int prepare_folder(const Arguments& arguments);
int prepare_list(const Arguments& arguments);
int prepare_recordio(const Arguments& arguments);
int prepare_index(const Arguments& arguments);
int prepare_stats(const Arguments& arguments);
// Writes DIR/train/stats.json for the shards in DIR, and prints so: always, or only if it is missing and there are
// training images. Returns an exit code.
enum class MeasureWhen { kAlways, kWhereMissing };
int measure_colours(const std::string& folder, int threads, MeasureWhen measured);
int command_completion(const Arguments& arguments);
int command_inspect(const Arguments& arguments);
int command_export(const Arguments& arguments);
int command_import(const Arguments& arguments);
int command_average(const Arguments& arguments);
int command_devices(const Arguments& arguments);
int command_recipes(const Arguments& arguments);

// The possible values of CONFIG, for the help of commands.
constexpr const char* kFileOrName = "a TOML file, or a name that 'owt recipes' lists";

// Options of several subcommands. declare_shared(): --workers, --device, --threads, --set; and --parallel, for one
// strategy.
void declare_shared(Options& options);
void declare_device(Options& options);   // without --workers, for commands of one rank
void declare_planned(Options& options);  // without --threads, for commands that do not compute
void declare_changes(Options& options);  // only --set
void declare_shares(Options& options);
void declare_strategy(Options& options);  // includes --shares
void declare_json(Options& options);      // --json, if a command prints only its result
// Options that set a key of the recipe, of these: epochs, steps, lr, batch, seed.
void declare_keys(Options& options, const std::vector<std::string>& names);
Overrides key_changes(const Options& options);  // the changes by the given options
// Adds changes that follow from these options, unless `overrides` has them: with an --epochs that is shorter than the
// recipe's, its other values in epochs in proportion, with a log line; with --batch, no data.batch_per_rank.
Overrides with_consequences(const Options& options, Config recipe, Overrides overrides);
// The recipe named by CONFIG with the changes of these options.
Settings shared_settings(const Options& options, const Overrides& more = {});
Overrides shared_overrides(const Options& options, const Overrides& more = {});  // the changes of these options
// If an evaluation uses another number of workers than the recipe: removes the recipe's division of work.
Overrides changes_to_evaluate(const Options& options);
constexpr const char* kRunConfig = "config.toml";
// The file of CONFIG: for a run folder or a checkpoint the run's config.toml, else the result of find_recipe().
std::string config_file(const std::string& config);
// The path, with RUN/checkpoints/latest in it replaced by the checkpoint that this file names.
std::string with_latest(const std::string& path);
// The recipe for `file`, a config_file(). A model file alone has synthetic images; with --data the recipe that trains
// it is used. Throws Error if there is no such recipe, or if there are several.
std::string recipe_for_data(const Options& options, const std::string& file, const Overrides& overrides);
// Logs a hint if a run folder hides a recipe of the same name.
void tell_of_hidden_recipe(const std::string& config, const std::string& file);
int shared_threads(const Options& options);
// --workers, for commands that deal images to threads of this process.
void declare_image_workers(Options& options);
int image_workers(const Options& options);  // throws UsageError for several in a launch of several processes

// Options of commands that use a trained network: CONFIG, which may be a run folder, --weights and --data. Without
// always_reads_data the command reads only class names and means there.
void declare_trained(Options& options, bool always_reads_data = true);
// The run folder that CONFIG names or is in; empty: none.
std::string run_folder_of(const Options& options);
// The run folder with the facts (data_facts.h): the weights' run, else the run of CONFIG.
std::string run_of_facts(const Options& options, const std::string& weights);
// The file that --weights names: a file, or the file of a checkpoint or of a run's best one (trained_weights_of()).
std::string weights_option(const Options& options);
// The file of --weights; without the option, the file of the run's best checkpoint.
std::string trained_weights(const Options& options);
// Throws UsageError if these two options name the same file, which would be written twice.
void check_two_files(const Options& options, const std::string& a, const std::string& b);
// The value of an option, converted by `read`. If `read` throws Error, throws UsageError with the option's name.
template <class Read>
auto read_option(const std::string& name, Read read) {
  try {
    return read();
  } catch (const Error& e) {
    throw UsageError(concat("--", name, ": ", e.what()));
  }
}
// The value of an option with a unit, read by src/system/units.h.
template <class Value>
Value quantity(const Options& options, const std::string& name, Value (*parse)(const std::string&)) {
  return read_option(name, [&] { return parse(options.string(name)); });
}
// The device of --gpu.
DeviceSpeed gpu_option(const Options& options);
// Numbers separated by commas. otherwise: what else the option accepts, for the message of the UsageError.
std::vector<double> numbers_option(const Options& options, const std::string& name, const std::string& otherwise = "");
// The folder of --data; empty: not given. Throws UsageError if the recipe uses synthetic images.
std::string given_data(const Options& options, const Settings& settings);
// Logs a hint if a model file alone is trained, which uses synthetic images.
void tell_of_drawn_images(const Options& options, const Settings& settings);
// --classes: how labels are matched with outputs (data_identity.h).
enum class ClassesOf { kTraining, kTrained };
void declare_classes(Options& options, ClassesOf use);
std::string checked_classes(const Options& options);
Overrides with_classes(const Options& options, Overrides changes = {});  // with the changes of that option
// --views N|mirror|shift. Throws UsageError for views that the recipe's data does not support.
void declare_views(Options& options);
Views views_option(const Options& options, const Settings& settings);
// --split test|val|train. If it is not given, the data has no test images, and training used held-out images for
// evaluation, these are used, with a log line. Throws UsageError for val if the recipe holds out no images.
void declare_split(Options& options);
Split split_option(const Options& options, const Settings& settings);

}  // namespace owt
