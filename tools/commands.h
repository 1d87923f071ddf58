// The subcommands of owt. Each takes the words after its name and returns the exit code; it throws UsageError for a
// wrong command line and Error for anything else that went wrong.
#pragma once

#include <string>
#include <vector>

#include "src/core/check.h"
#include "src/parallel/compute_model.h"
#include "src/train/commands/options.h"
#include "src/train/settings.h"

namespace owt {

using Arguments = std::vector<std::string>;

constexpr int kStoppedOnSignal = 75;  // exit code of a run that can be resumed; EX_TEMPFAIL of sysexits.h

int command_train(const Arguments& arguments);
int command_eval(const Arguments& arguments);
int command_predict(const Arguments& arguments);
int command_extract(const Arguments& arguments);
int command_simulate(const Arguments& arguments);
int command_time(const Arguments& arguments);
int command_check(const Arguments& arguments);
int command_report(const Arguments& arguments);
int command_watch(const Arguments& arguments);
int command_plan(const Arguments& arguments);
int command_bench_comm(const Arguments& arguments);
int command_prepare(const Arguments& arguments);
int prepare_images(const Arguments& arguments);  // imagenet, folder and list
int prepare_index(const Arguments& arguments);
int prepare_stats(const Arguments& arguments);
// Writes DIR/train/stats.json for the shards in DIR and reports it. kWhereMissing: only if the file is missing and
// there are training images. Returns an exit code.
enum class Measured { kAlways, kWhereMissing };
int measure_colours(const std::string& folder, int threads, Measured measured);
int command_inspect(const Arguments& arguments);
int command_export(const Arguments& arguments);
int command_average(const Arguments& arguments);
int command_devices(const Arguments& arguments);
int command_recipes(const Arguments& arguments);

// Allowed values of CONFIG, for --help.
constexpr const char* kFileOrName = "a TOML file, or a name that 'owt recipes' lists";

// Options of several subcommands: --workers, --device, --threads, --set; and --parallel, for a single strategy.
void declare_shared(Options& options);
void declare_device(Options& options);   // without --workers, for commands of one rank
void declare_planned(Options& options);  // without --threads, for commands that compute nothing
void declare_changes(Options& options);  // only --set
void declare_shares(Options& options);
void declare_strategy(Options& options);  // with --shares
void declare_length(Options& options);    // --epochs, --steps, --seed
Overrides length_changes(const Options& options);
// The recipe named by CONFIG, changed by these options.
Settings shared_settings(const Options& options, const Overrides& more = {});
Overrides shared_overrides(const Options& options, const Overrides& more = {});  // changes by these options
// Keys to omit when the number of workers in an evaluation differs from the recipe: they split the work over its
// workers.
Overrides changes_to_evaluate(const Options& options);
constexpr const char* kRunConfig = "config.toml";
// The file for CONFIG: for a run folder or a checkpoint the run's config.toml, else find_recipe().
std::string config_file(const std::string& config);
// The recipe for `file`, which is config_file(). A model alone generates its images; so with --data, this is the recipe
// that trains the model. Throws Error if there is no such recipe or more than one.
std::string recipe_for_data(const Options& options, const std::string& file, const Overrides& overrides);
// Logs that CONFIG is a run folder if a recipe has the same name.
void tell_of_hidden_recipe(const std::string& config, const std::string& file);
int shared_threads(const Options& options);

// Options of commands that use a trained network: CONFIG, which may be a run folder, --weights and --data.
void declare_trained(Options& options);
// The run folder that CONFIG names or is in; empty: none.
std::string run_folder_of(const Options& options);
// The run folder whose data facts apply (data_facts.h): the run of the weights, else of CONFIG.
std::string run_of_facts(const Options& options, const std::string& weights);
// The weights file of --weights: the file itself, or the file of a checkpoint or of a run's best checkpoint
// (trained_weights_of()).
std::string weights_option(const Options& options);
// weights_option(), else the file of the run's best checkpoint.
std::string trained_weights(const Options& options);
// Throws UsageError if the two options name the same file, which would be written twice.
void check_two_files(const Options& options, const std::string& a, const std::string& b);
// Calls `read` for an option's value. If `read` throws Error, throws UsageError that names the option.
template <class Read>
auto read_option(const std::string& name, Read read) {
  try {
    return read();
  } catch (const Error& e) {
    throw UsageError(concat("--", name, ": ", e.what()));
  }
}
// The value of an option with a unit, parsed by src/core/units.h.
template <class Value>
Value quantity(const Options& options, const std::string& name, Value (*parse)(const std::string&)) {
  return read_option(name, [&] { return parse(options.string(name)); });
}
// The device of --gpu.
DeviceSpeed gpu_option(const Options& options);
// Comma-separated numbers. `otherwise`: other allowed values, for the message of the UsageError.
std::vector<double> numbers_option(const Options& options, const std::string& name, const std::string& otherwise = "");
// The folder of --data; empty: not given. Throws UsageError if the recipe generates its images.
std::string given_data(const Options& options, const Settings& settings);
// Logs that a model file without data is trained on generated images.
void tell_of_drawn_images(const Options& options, const Settings& settings);
// --classes: how labels are matched with outputs (data_identity.h).
enum class ClassesOf { kTraining, kTrained };
void declare_classes(Options& options, ClassesOf use);
std::string checked_classes(const Options& options);
Overrides with_classes(const Options& options, Overrides changes = {});  // adds the change by --classes
// --views N|mirror|shift. Throws UsageError if the recipe's data does not support the value.
void declare_views(Options& options);
Views views_option(const Options& options, const Settings& settings);
// --split test|val|train. Without the option: held-out images if the data has no test images and training was evaluated
// on held-out ones; a line reports this. Throws UsageError for val if the recipe holds no images out.
void declare_split(Options& options);
Split split_option(const Options& options, const Settings& settings);

}  // namespace owt
