#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>

#include "src/comm/launch.h"
#include "src/commands/measure_compute.h"
#include "src/commands/measure_loading.h"
#include "src/commands/planner_files.h"
#include "src/commands/run.h"
#include "src/plan/order.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_table.h"
#include "src/plan/plan_updates.h"
#include "src/predict/machine.h"
#include "src/predict/mirror_need.h"
#include "src/recipe/strategy_settings.h"
#include "src/report/draw_step.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/units.h"
#include "src/train/session.h"
#include "tools/commands.h"
#include "tools/recipes.h"

namespace owt {
namespace {

void declare_plan(Options& options) {
  options.positional("CONFIG", concat("a recipe or a model: ", kFileOrName));
  declare_shared(options);
  declare_keys(options, {"batch"});
  options.repeated("parallel", "NAME", strategy_list() + " (default: the recipe's)");
  options.option("model-ranks", "M",
                 "workers per group; each group shares one copy of the split layers (default: the recipe's; "
                 "predictions try all workers, and the workers of a host)");
  declare_shares(options);
  options.option(
      "speeds", "LIST",
      "2,1,1 (a positive number for each worker): predict for workers that are faster than the given compute times by "
      "these factors; with --shares measured, rows are dealt in proportion (default: 1 for each)");
  options.option("links", "FILE", "predict for the links that owt bench-comm --json measured");
  options.option("bandwidth", "B",
                 "predict for links of this bandwidth, e.g. 1Gbit or 400MB/s: per worker, or with --hosts per host, "
                 "shared by its workers");
  options.option("latency", "T", "50us", "latency per message of the links of --bandwidth");
  options.option("hosts", "H",
                 "number of hosts, with equally many workers on each (default: 1, or the hosts of --links)");
  options.option("local-bandwidth", "B",
                 "bandwidth of a worker to others on its host (default: 10GB/s; with --gpu, the GPU's)");
  options.option("local-latency", "T", "latency per message within a host (default: 5us; with --gpu, the GPU's)");
  options.option("gpu", "NAME", concat("compute times from a model of this GPU: ", joined(device_names())));
  options.option("images-per-second", "N",
                 "with --gpu: measured speed of one GPU with a worker's rows; scales all layer times");
  options.option("machine", "FILE",
                 "take GPUs and links from this description of a machine, a file or a name in configs/machines");
  options.flag("elastic",
               "for workers that leave and join (owt launch --elastic): also show what a worker sends to renew the "
               "copies of the run's state every elastic.mirror_every steps; on CPUs predictions count their memory");
  options.flag("launches",
               "with --gpu and one worker: list the kernels that the GPU runs in a step, with modelled times");
  options.repeated("times", "FILE",
                   "compute times from a table of owt time --workers 1 --keep-gradients --csv; give tables of several "
                   "batch sizes to separate fixed costs");
  options.flag("measure", "compute times from a few steps on this machine; the default if links are given");
  options.option(
      "ranks-here", "N",
      "with --measure: number of workers that compute on this machine at the same time (default: a host's workers)");
  options.option("json", "FILE", "write the prediction as JSON too");
  options.flag("compare", "print only one table of the predictions for all strategies, fastest first, with bars");
  options.flag("ascii", "with --compare: draw the bars in ASCII (default if the locale is not UTF-8)");
  options.flag("steps", "list the actions of each worker in a step");
  options.option("draw", "FILE.svg",
                 "draw the predicted computation and transfers of a step on a time axis, for the strategies of "
                 "--parallel (default: the fastest and dp)");
}

using OptionalMachine = std::optional<Machine>;

// Throws UsageError if other options give the same values.
OptionalMachine machine_from(const Options& options) {
  if (!options.given("machine")) return {};
  for (const char* other :
       {"gpu", "times", "links", "bandwidth", "latency", "hosts", "local-bandwidth", "local-latency", "ranks-here"})
    if (options.given(other))
      throw UsageError(concat("--machine and --", other, " do not go together: the file has both"));
  return read_machine(find_machine(options.string("machine")));
}

void show_plans(const Settings& settings, const std::vector<std::string>& asked, bool steps) {
  PlanRequest request = settings.plan_request();
  std::vector<std::string> shown = asked;
  std::erase(shown, "auto");  // the prediction shows the strategy that "auto" chooses
  if (shown.empty()) shown.push_back(name_of(request.strategy));
  for (const std::string& name : shown) {
    request.strategy = strategy_from(name);
    const Plan plan = make_plan(settings.model, request);
    std::cout << plan_table(plan) << (request.mirror_every > 0 ? concat("mirror: ", mirror_text(plan), '\n') : "")
              << '\n';
    if (!steps) continue;
    std::cout << name << ": " << facts_of(request.strategy).help
              << (local_period(plan) > 1 ? format("; here the step that averages, one of {}", local_period(plan)) : "")
              << '\n';
    for (int place = 0; place < plan.places(); ++place) {
      const std::string stage = place_name(plan, place);
      std::cout << (stage.empty() ? "" : stage + ":\n") << action_text(plan, training(plan, request.step_rows, place))
                << '\n';
    }
  }
  std::cout << format("{:<10} {:>20} {:>18} {:>22}\n", "strategy", "MB sent per worker", "MB in busiest link",
                      "weights MB per worker");
  for (const std::string& name : strategy_names()) {
    request.strategy = strategy_from(name);
    std::string why;
    const std::optional<Plan> possible = plan_if_possible(settings.model, request, why);
    if (!possible) {
      std::cout << format("{:<10} {}\n", name, why);
      continue;
    }
    const Plan& plan = *possible;
    std::cout << format("{:<10} {:>20.3f} {:>18.3f} {:>22.2f}{}\n", name,
                        static_cast<double>(bytes_per_step(plan)) / 1e6, static_cast<double>(busiest_link(plan)) / 1e6,
                        static_cast<double>(weight_bytes_per_rank(plan)) / 1e6,
                        std::count(shown.begin(), shown.end(), name) > 0 ? "   <- shown above" : "");
  }
}

// The speeds that measuring would find; without the option all workers are equally fast. Throws UsageError.
void take_speeds(Settings& settings, const Options& options) {
  ParallelSettings& parallel = settings.parallel;
  if (!options.given("speeds")) return;
  parallel.speeds = numbers_option(options, "speeds");
  const bool positive = std::all_of(parallel.speeds.begin(), parallel.speeds.end(),
                                    [](double speed) { return speed > 0 && std::isfinite(speed); });
  if (!positive || std::ssize(parallel.speeds) != parallel.workers)
    throw UsageError(concat("--speeds ", options.string("speeds"), ": wanted a positive number for each of ",
                            parallel.workers, parallel.workers == 1 ? " worker" : " workers"));
  if (parallel.measure_shares) parallel.shares = parallel.speeds;
}

// Throws Error for a strategy of --parallel whose workers cannot change.
void take_elastic(Settings& settings, const Options& options) {
  if (!options.boolean("elastic")) return;
  settings.elastic.on = true;
  check_workers_may_change(settings);
  for (const std::string& name : options.list("parallel")) {
    if (name == "auto") continue;
    Settings named = settings;
    named.parallel.strategy = strategy_from(name);
    check_workers_may_change(named);
  }
}

// Launches are listed for a GPU that trains alone. Throws UsageError.
void check_launches(const Options& options, int workers) {
  if (!options.boolean("launches")) return;
  if (!options.given("gpu")) throw UsageError("--launches needs a GPU: --gpu NAME");
  if (workers > 1)
    throw UsageError(concat("--launches lists the step of one worker, but there are ", workers, "; add --workers 1"));
}

// The links from the options. Throws UsageError if options contradict each other.
Network network_from(const Options& options, const OptionalMachine& machine, int ranks) {
  if (machine) return machine->network(ranks);
  Network network;
  if (options.given("links") && (options.given("bandwidth") || options.given("latency")))
    throw UsageError("--links and --bandwidth or --latency do not go together: the file has both");
  Link asked{quantity(options, "latency", parse_seconds), 0};
  if (options.given("bandwidth")) asked.bytes_per_s = quantity(options, "bandwidth", parse_bandwidth);
  int hosts = 1;
  if (options.given("links")) {
    network = read_links(options.string("links"));
    hosts = network.hosts;
    const int each = network.ranks_per_host;
    if (ranks != network.measured_ranks && hosts > 1) hosts = std::max(1, ranks / each);
    if (ranks % hosts != 0 && !options.given("hosts"))
      throw UsageError(concat("--links ", options.string("links"), " is of hosts with ", each, " workers each, which ",
                              ranks, " workers do not fill; use a multiple of ", each,
                              ", or say with --hosts, a divisor of ", ranks, ", on how many they are"));
  }
  if (options.given("hosts")) hosts = static_cast<int>(options.integer("hosts", {.low = 1, .high = 4096}));
  if (ranks % hosts != 0)
    throw UsageError(concat("--hosts ", hosts, ": cannot hold ", ranks, " workers evenly; wanted a divisor of them"));
  network.hosts = hosts;
  network.ranks_per_host = ranks / hosts;
  network.local = {5e-6, 10e9};
  if (options.given("gpu")) {
    const DeviceSpeed speed = gpu_option(options);
    network.local = {speed.link_latency_s, speed.link_bytes_per_s};
    network.algorithm = Network::Algorithm::kHierarchical;
  }
  if (options.given("latency") && !options.given("bandwidth"))
    throw UsageError("--latency is for the links of --bandwidth; give both");
  if (options.given("bandwidth")) (hosts > 1 ? network.between : network.local) = asked;
  if (options.given("local-bandwidth"))
    network.local.bytes_per_s = quantity(options, "local-bandwidth", parse_bandwidth);
  if (options.given("local-latency")) network.local.latency_s = quantity(options, "local-latency", parse_seconds);
  if (hosts > 1 && !options.given("bandwidth") && !options.given("links"))
    throw UsageError("--hosts needs the links between them: --bandwidth and --latency, or --links");
  return network;
}

std::unique_ptr<ComputeModel> measure(const Settings& settings, const Options& options, const Network& network) {
  if (launch().several())
    fail("owt plan measures in one process; start it without ", launch().by,
         "; describe the run to plan with --workers and --hosts");
  const int here = options.given("ranks-here")
                       ? static_cast<int>(options.integer("ranks-here", {.low = 1, .high = 4096}))
                       : network.ranks_per_host;
  const std::vector<int64_t> rows = rows_to_measure(settings.plan_request());
  ComputeSamples samples;
  Session(settings, shared_threads(options)).run(here, [&](Communicator& comm) {
    const ComputeSamples measured = measure_compute(settings, comm, rows);
    if (comm.rank() == 0) samples = measured;
  });
  return measured_compute(samples);
}

std::unique_ptr<ComputeModel> compute_of_gpu(const Settings& settings, const Options& options) {
  const Precision precision = settings.run.precision;
  if (!options.given("images-per-second")) return device_compute(gpu_option(options), settings.model, precision);
  const PlanRequest request = settings.plan_request();
  return compute_at_speed(gpu_option(options), settings.model, precision,
                          std::max<int64_t>(request.step_rows / request.ranks, 1),
                          options.number("images-per-second", {.low = 1e-3, .high = 1e9}));
}

std::unique_ptr<ComputeModel> compute_from(const Settings& settings, const Options& options,
                                           const OptionalMachine& machine, const Network& network) {
  if (machine) return machine->compute(settings.model, settings.run.precision);
  if (options.given("gpu")) return compute_of_gpu(settings, options);
  if (!options.given("times")) return measure(settings, options, network);
  PlanRequest whole = settings.plan_request();
  whole.ranks = 1;
  whole.model_ranks = 1;
  whole.shares = whole.speeds = {};
  const Plan plan = make_plan(settings.model, whole);
  ComputeSamples samples;
  for (const std::string& file : options.list("times")) {
    add_samples(read_times(file), plan, samples);
    samples.source += (samples.source.empty() ? "as timed in " : ", ") + file;
  }
  return measured_compute(samples);
}

std::string crossover_text(const PlannerResult& result) {
  const PlanRequest& request = result.choice.chosen().request;
  if (!result.choice.best_split()) return "";
  std::string text = "With these links and compute times ";
  if (result.crossover_rows == 0)
    text += "splitting pays at every batch";
  else if (result.crossover_rows <= request.ranks)
    text += "splitting pays at no batch";
  else
    text += format("splitting pays below a batch of {}", result.crossover_rows);
  text += format("; {} sends fewer bytes than dp ", result.choice.best_split()->name());
  text += result.crossover_rows_by_bytes == 0 ? "at every batch.\n"
                                              : format("below a batch of {}.\n", result.crossover_rows_by_bytes);
  return text;
}

// The fastest grid of each requested strategy; without a request, the fastest of all and its competitor.
std::vector<Prediction> predictions_to_draw(const Choice& choice, const std::vector<std::string>& asked) {
  std::map<std::string, Prediction> drawn;
  for (const Prediction& each : choice.all) {
    const std::string name = name_of(each.request.strategy);
    const bool fastest = &each == &choice.chosen();
    const bool wanted = asked.empty() ? fastest || &each == choice.best_data_parallel()
                                      : std::count(asked.begin(), asked.end(), name) > 0 ||
                                            (fastest && std::count(asked.begin(), asked.end(), "auto") > 0);
    const auto known = drawn.find(name);
    if (wanted && (known == drawn.end() || each.step_s() < known->second.step_s())) drawn[name] = each;
  }
  std::vector<Prediction> all;
  for (const auto& [name, prediction] : drawn) all.push_back(prediction);
  return all;
}

std::string drawing(const Model& model, const std::vector<Prediction>& predictions, const Network& network,
                    const ComputeModel& compute) {
  std::vector<DrawnStep> steps;
  for (const Prediction& each : predictions) {
    DrawnStep step{make_plan(model, each.request), {}, {}};
    step.prediction = price_step(step.plan, network, compute, &step.times);
    steps.push_back(std::move(step));
  }
  return draw_steps(steps);
}

// The width of the terminal, or a default for redirected output.
int output_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 110;
}

// Decided by the first of these variables that is set.
bool writes_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) {
      const std::string locale = value;
      return locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
    }
  return false;
}

// The cores that load photographs for the GPU of the worker with the most rows. Other images are stored as pixels.
std::optional<LoadNeed> loading_of(const Settings& settings, const Prediction& chosen) {
  if (settings.data.format != "shards") return {};
  const Plan plan = make_plan(settings.model, chosen.request);
  int64_t rows = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank)
    rows = std::max(rows, rows_of(plan, plan.request.step_rows).of(rank).size());
  return load_need(settings, static_cast<double>(rows) / chosen.step_s());
}

std::string loading_text(const DataSettings& data, const std::optional<LoadNeed>& need) {
  if (!need && data.format == "synthetic") return "";
  if (!need) return "Loading: these images are not decoded, which takes next to no core.\n";
  const double cores = need->cores();
  const std::string count = format("{:.1f}", cores);
  std::string text = format(
      "Loading: {} core{} for each worker's GPU, which takes {:.0f} images/s.\nA core loads {:.0f} images/s: {}.\n",
      count, count == "1.0" ? "" : "s", need->images_per_s, need->images_per_core_s, need->source);
  if (cores > data.loader_threads)
    text += format("The GPU waits for data unless data.loader_threads, here {}, is {:.0f} or more.\n",
                   data.loader_threads, std::ceil(cores));
  return text;
}

void predict_all(const Settings& settings, const Options& options, const OptionalMachine& machine,
                 const Network& network) {
  PlanRequest request = settings.plan_request();
  if (options.given("gpu") || machine)
    request.on.device = Device::kCuda;
  else if (!options.given("times"))
    request.on = settings.compute();  // layers are timed on this machine
  const auto compute = compute_from(settings, options, machine, network);
  PlannerResult result;
  result.choice = choose_strategy(settings.model, request, network, *compute);
  result.model = settings.model.name;
  result.network = network.text();
  result.compute = compute->text();
  result.crossover_rows = crossover_rows(settings.model, request, network, *compute);
  if (const Prediction* split = result.choice.best_split())
    result.crossover_rows_by_bytes = crossover_rows_by_bytes(settings.model, split->request);
  std::cout << format("\nPrediction for {} rows per step. Links: {}. Compute: {}.\n", request.step_rows, result.network,
                      result.compute)
            << (machine ? machine->text() : "")
            << (options.boolean("compare")
                    ? '\n' + result.choice.comparison(output_columns(), !options.boolean("ascii") && writes_utf8())
                    : result.choice.table())
            << '\n'
            << result.choice.reason() << '\n'
            << crossover_text(result);
  if (options.given("gpu") || machine) {
    result.loading = loading_of(settings, result.choice.chosen());
    std::cout << loading_text(settings.data, result.loading);
  }
  if (options.boolean("launches") && request.slices > 1)
    fail("--launches needs a step without gradient accumulation, but data.accumulate is ", request.slices,
         "; --set data.accumulate= removes it");
  if (options.boolean("launches")) {
    result.step = estimate_step(gpu_option(options), settings.model, make_plan(settings.model, request));
    std::cout << '\n' << result.step->table();
  }
  if (options.given("json")) write_file_atomically(options.string("json"), prediction_json(result));
  if (options.given("draw"))
    write_file_atomically(
        options.string("draw"),
        drawing(settings.model, predictions_to_draw(result.choice, options.list("parallel")), network, *compute));
}

// Whether the options ask for predictions. Throws UsageError if they contradict each other or need others.
bool predicts(const Options& options) {
  const int computing = int{options.given("gpu")} + int{options.given("times")} + int{options.boolean("measure")} +
                        int{options.given("machine")};
  if (computing > 1) throw UsageError("give one of --gpu, --machine, --times and --measure");
  options.only_with("ascii", {"compare"});
  if (computing == 1)
    for (const char* measuring : {"threads", "ranks-here"}) options.only_with(measuring, {"measure"});
  if (options.given("images-per-second") && !options.given("gpu"))
    throw UsageError("--images-per-second needs the GPU with this speed: --gpu NAME");
  if (computing == 1 || options.given("links") || options.given("bandwidth")) return true;
  for (const char* time : {"latency", "local-latency"})
    if (options.given(time)) quantity(options, time, parse_seconds);
  for (const char* needs : {"json", "draw", "compare", "hosts", "latency", "ranks-here", "local-bandwidth",
                            "local-latency", "speeds", "threads"})
    if (options.given(needs))
      throw UsageError(concat(
          "--", needs, " is for predictions; give --gpu NAME, --measure, --links FILE or --bandwidth B as well"));
  return false;
}

}  // namespace

int command_plan(const Arguments& arguments) {
  Options options(
      "owt plan",
      "Shows what each worker computes and sends per step under each strategy, and predicts how long it takes.");
  declare_plan(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  Overrides more;
  if (options.given("model-ranks"))
    more.emplace_back("parallel.model_ranks", std::to_string(options.integer("model-ranks", {.low = 1, .high = 4096})));
  Settings settings = shared_settings(options, more);
  if (!settings.distill.run.empty()) log_info("the figures do not include the teacher (loss.distill)");
  take_speeds(settings, options);
  take_elastic(settings, options);
  for (const char* file : {"json", "draw"})
    if (options.given(file)) check_output(options.string(file));
  check_launches(options, settings.parallel.workers);
  const OptionalMachine machine = machine_from(options);
  if (!predicts(options)) {
    show_plans(settings, options.list("parallel"), options.boolean("steps"));
    std::cout << "\nFor predicted times add --bandwidth B [--latency T] or --links FILE (the links), and --gpu NAME, "
                 "--times FILE or --measure (the computation).\n";
    return 0;
  }
  const Network network = network_from(options, machine, settings.parallel.workers);
  if (options.given("gpu")) gpu_option(options);
  if (!options.boolean("compare")) show_plans(settings, options.list("parallel"), options.boolean("steps"));
  predict_all(settings, options, machine, network);
  return 0;
}

}  // namespace owt
