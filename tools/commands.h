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

constexpr int kStoppedOnSignal = 75;  // the exit code of what can go on; EX_TEMPFAIL of sysexits.h: come again

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
// Writes DIR/train/stats.json of the shards in DIR and tells so: always, or where it is not there and training images
// are. Returns an exit code.
enum class Measured { kAlways, kWhereMissing };
int measure_colours(const std::string& folder, int threads, Measured measured);
int command_inspect(const Arguments& arguments);
int command_export(const Arguments& arguments);
int command_average(const Arguments& arguments);
int command_devices(const Arguments& arguments);
int command_recipes(const Arguments& arguments);

// What CONFIG may be, for the help of commands.
constexpr const char* kFileOrName = "a TOML file, or a name that 'owt recipes' lists";

// Options that several subcommands share: --workers, --device, --threads, --set; and --parallel, for one strategy.
void declare_shared(Options& options);
void declare_device(Options& options);   // the same without --workers, for commands of one rank
void declare_planned(Options& options);  // the same without --threads, for commands that compute nothing
void declare_changes(Options& options);  // --set alone
void declare_shares(Options& options);
void declare_strategy(Options& options);  // with --shares
void declare_length(Options& options);    // --epochs, --steps, --seed
Overrides length_changes(const Options& options);
// The recipe named by CONFIG with what these options change.
Settings shared_settings(const Options& options, const Overrides& more = {});
Overrides shared_overrides(const Options& options, const Overrides& more = {});  // what these options change
// What an evaluation by another number of workers than the recipe's leaves out: how those of the recipe share the work.
Overrides changes_to_evaluate(const Options& options);
constexpr const char* kRunConfig = "config.toml";
// The file that CONFIG means: of a run folder or a checkpoint the run's config.toml, else as find_recipe() says.
std::string config_file(const std::string& config);
// The recipe that is meant by `file`, config_file(): a model by itself draws its images, so that with --data the recipe
// that trains it is. Throws Error where there is none, or several are.
std::string recipe_for_data(const Options& options, const std::string& file, const Overrides& overrides);
// Who means the recipe that a run folder's name hides is told so.
void tell_of_hidden_recipe(const std::string& config, const std::string& file);
int shared_threads(const Options& options);

// What commands that work with a trained network take: CONFIG, which may be a run folder, --weights and --data.
void declare_trained(Options& options);
// The folder of the run that CONFIG names or lies in; empty: none.
std::string run_folder_of(const Options& options);
// The folder of the run whose facts hold (data_facts.h): of the one that the weights are of, else that of CONFIG.
std::string run_of_facts(const Options& options, const std::string& weights);
// The file that --weights names: itself, or that of a checkpoint or of a run's best one (trained_weights_of()).
std::string weights_option(const Options& options);
// That, else the file of the best checkpoint of the run.
std::string trained_weights(const Options& options);
// Throws UsageError where these two options name one file, which would be written twice.
void check_two_files(const Options& options, const std::string& a, const std::string& b);
// What `read` makes of an option's value. Throws UsageError, which names the option, where `read` throws Error.
template <class Read>
auto read_option(const std::string& name, Read read) {
  try {
    return read();
  } catch (const Error& e) {
    throw UsageError(concat("--", name, ": ", e.what()));
  }
}
// The value of an option with a unit, as src/core/units.h reads it.
template <class Value>
Value quantity(const Options& options, const std::string& name, Value (*parse)(const std::string&)) {
  return read_option(name, [&] { return parse(options.string(name)); });
}
// The device that --gpu names.
DeviceSpeed gpu_option(const Options& options);
// Numbers with commas between them. `otherwise`: what else the option takes, for the message of the UsageError.
std::vector<double> numbers_option(const Options& options, const std::string& name, const std::string& otherwise = "");
// The folder that --data names; empty: not given. Throws UsageError where the recipe reads none, since it draws images.
std::string given_data(const Options& options, const Settings& settings);
// A line where a model file by itself is trained, whose images are drawn.
void tell_of_drawn_images(const Options& options, const Settings& settings);
// --classes, how labels are matched with outputs (data_identity.h).
enum class ClassesOf { kTraining, kTrained };
void declare_classes(Options& options, ClassesOf use);
std::string checked_classes(const Options& options);
Overrides with_classes(const Options& options, Overrides changes = {});  // and what that option changes
// --views N|mirror|shift. Throws UsageError for what the recipe's data does not have.
void declare_views(Options& options);
Views views_option(const Options& options, const Settings& settings);
// --split test|val|train. Where it is not given, the data has no test images and training was evaluated on held-out
// ones, it is these, and a line says so. Throws UsageError for val where the recipe holds no images out.
void declare_split(Options& options);
Split split_option(const Options& options, const Settings& settings);

}  // namespace owt
