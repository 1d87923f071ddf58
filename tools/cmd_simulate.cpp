#include <charconv>
#include <cmath>
#include <iostream>

#include "src/commands/measure_compute.h"
#include "src/commands/run.h"
#include "src/predict/machine.h"
#include "src/system/log.h"
#include "src/system/units.h"
#include "src/train/session.h"
#include "tools/commands.h"

namespace owt {
namespace {

// The default worker: a typical processor, whose layers take typical fractions of the time.
const DeviceSpeed kUsualWorker{.name = "processor (200 GFLOP/s, 20 GB/s)",
                               .bf16_flops = 200e9,
                               .fp32_flops = 200e9,
                               .bytes_per_s = 20e9,
                               .flop_share = 0.60};

void declare_simulation(Options& options) {
  options.positional("CONFIG", concat("the recipe: ", kFileOrName));
  options.option("data", "DIR", "the data set (default: the recipe's data.dir, else $OWT_DATA, else ./datasets)");
  options.option("out", "DIR",
                 "run folder (default: runs/<recipe>-simulated, none with --times-only); another run in it is never "
                 "overwritten");
  declare_shared(options);
  declare_keys(options, {"epochs", "steps", "lr", "batch", "seed"});
  declare_classes(options, ClassesOf::kTraining);
  options.option("weights", "FILE", "start from these weights (safetensors), or those of a run or checkpoint");
  options.option(
      "strategy", "NAME", "ps",
      concat(strategy_list(), "; ps is a parameter server with the options below; the other strategies have the ",
             "losses of dp and the step time that owt plan predicts"));
  options.option("servers", "S", "1",
                 "number of servers, each with a part of every weight and a link of its own; workers: every worker "
                 "serves a part, as under owt train --parallel ps");
  options.option("delay", "TAU",
                 "task t starts when all tasks before t - TAU are finished; inf: no bound; 0: synchronous (default: "
                 "the recipe's ps.delay, or 0)");
  options.option("pushes", "N",
                 "update the weights after every N gradients, in order of arrival; 0: after the gradients of a task "
                 "from all workers (default: the recipe's ps.pushes, or 1; 0 with delay 0 or --blocks)");
  options.option("backup", "B", "0", "number of slowest workers that each update ignores");
  options.option("pull-every", "N", "1",
                 "tasks from one pull of the weights to the next; in between, a worker uses its own updates");
  options.option("push-every", "N", "1", "number of tasks whose gradients a worker sums before it pushes them");
  options.repeated("filter", "NAME",
                   "omit values of a push: significant:T, kkt:T, top:P, skip:Q; or round them: one of bf16, fp16, "
                   "fix8, fix16, coin8, coin16 (default: the recipe's ps.filters)");
  options.option(
      "blocks", "ORDER",
      "given | random: each task updates one layer, in the given or a random order (delayed block proximal gradient)");
  options.option("rate-by-delay", "C", "0", "divide the learning rate by 1 + C times the delay");
  options.option("async-from-epoch", "E", "0", "train synchronously before this epoch: a warm-up");
  options.flag("full-rate", "use the full learning rate for each push: K workers move the weights K times as far");
  options.flag("rate-by-staleness", "multiply each gradient by 1/staleness");
  options.repeated("straggler", "WHO:F",
                   "1:4 (worker 1 takes four times as long) or 10%:4 (a random tenth of all tasks does)");
  options.option("bandwidth", "B", "1Gbit", "bandwidth of the link of each worker and each server, in each direction");
  options.option("latency", "T", "50us", "latency per message");
  options.option("message-work", "T", "0us",
                 "processor time of a worker for each MB that it sends or receives, also as a server, e.g. 1ms");
  options.option("gpu", "NAME", concat("compute times from a model of this GPU: ", joined(device_names())));
  options.option("images-per-second", "N", "measured speed of one worker with its rows; scales all layer times");
  options.flag("times-only",
               concat("compute no gradients and read no data: report only times, idle times and bytes, fast and for ",
                      "any model; ", kTimedSteps, " steps unless --steps says otherwise"));
  options.flag("measure", "compute times from a few steps on this machine; runs then differ");
}

double share_of_tasks(const std::string& text, const std::string& who) {
  double percent = 0;
  const auto [end, error] = std::from_chars(who.data(), who.data() + who.size(), percent);
  if (error != std::errc() || end != who.data() + who.size() - 1 || percent < 0 || percent > 100)
    throw UsageError(concat("--straggler ", text, ": wanted WHO:F, e.g. 1:4 or 10%:4"));
  return percent / 100;
}

Straggler straggler_from(const std::string& text, int workers) {
  const auto wrong = [&] {
    throw UsageError(concat("--straggler ", text, ": wanted WHO:F, e.g. 1:4 or 10%:4, with a worker below ", workers));
  };
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0) wrong();
  const std::string who = text.substr(0, colon), how = text.substr(colon + 1);
  Straggler straggler;
  const auto factor = std::from_chars(how.data(), how.data() + how.size(), straggler.factor);
  if (factor.ec != std::errc() || factor.ptr != how.data() + how.size() || !std::isfinite(straggler.factor) ||
      straggler.factor <= 0)
    wrong();
  if (who.ends_with('%')) {
    straggler.share = share_of_tasks(text, who);
    return straggler;
  }
  const auto worker = std::from_chars(who.data(), who.data() + who.size(), straggler.worker);
  if (worker.ec != std::errc() || worker.ptr != who.data() + who.size() || straggler.worker < 0 ||
      straggler.worker >= workers)
    wrong();
  return straggler;
}

// Values that are not given come from the recipe.
ConsistencyRules rules_from(const Options& options, const Settings& settings) {
  const int workers = settings.parallel.workers;
  ConsistencyRules rules = settings.parallel.options.server.rules;
  if (options.given("delay"))
    rules.delay = options.string("delay") == "inf" ? kNoBound : options.integer("delay", {.low = 0});
  rules.backup = static_cast<int>(options.integer("backup", {.low = 0}));
  if (rules.backup >= workers)
    throw UsageError(concat("--backup ", rules.backup, ": at least one of ", workers, " workers must not be a backup"));
  if (options.given("delay") || options.given("blocks"))
    rules.pushes = rules.delay == 0 || options.given("blocks") ? 0 : 1;
  if (options.given("pushes")) rules.pushes = options.integer("pushes", {.low = 0});
  return rules;
}

FilterSettings filters_option(const Options& options, const Settings& settings) {
  if (!options.given("filter")) return settings.parallel.options.server.filters;
  try {
    return filters_from(options.list("filter"));
  } catch (const Error& e) {
    throw UsageError(concat("--", e.what()));
  }
}

BlockOrder blocks_option(const Options& options) {
  if (!options.given("blocks")) return BlockOrder::kNone;
  const std::string& order = options.string("blocks");
  if (order == "given") return BlockOrder::kGiven;
  if (order == "random") return BlockOrder::kRandom;
  throw UsageError(concat("--blocks ", order, ": wanted given or random"));
}

VirtualCluster cluster_from(const Options& options, const Settings& settings) {
  VirtualCluster cluster;
  cluster.times_only = options.boolean("times-only");
  cluster.rules = rules_from(options, settings);
  cluster.rules_from = options.number("async-from-epoch", {.low = 0});
  cluster.full_rate = options.boolean("full-rate");
  cluster.rate_by_staleness = options.boolean("rate-by-staleness");
  cluster.pull_every = options.integer("pull-every", {.low = 1});
  cluster.push_every = options.integer("push-every", {.low = 1});
  cluster.blocks = blocks_option(options);
  cluster.rate_by_delay = options.number("rate-by-delay", {.low = 0});
  cluster.filters = filters_option(options, settings);
  cluster.servers = options.string("servers") == "workers"
                        ? kOnWorkers
                        : static_cast<int>(options.integer("servers", {.low = 1, .high = 4096}));
  cluster.link = {quantity(options, "latency", parse_seconds), quantity(options, "bandwidth", parse_bandwidth)};
  cluster.message_work = quantity(options, "message-work", parse_seconds) / 1e6;
  for (const std::string& text : options.list("straggler"))
    cluster.stragglers.push_back(straggler_from(text, settings.parallel.workers));
  return cluster;
}

int64_t rows_of_worker(const Settings& settings) {
  return std::max<int64_t>(settings.step_rows() / settings.parallel.workers, 1);
}

std::unique_ptr<ComputeModel> measured_here(const Settings& settings) {
  const std::vector<int64_t> rows = rows_to_measure(settings.plan_request());
  ComputeSamples samples;
  Session(settings, 1).run(1, [&](Communicator& comm) { samples = measure_compute(settings, comm, rows); });
  return measured_compute(samples);
}

std::unique_ptr<ComputeModel> compute_from(const Options& options, const DeviceSpeed& worker,
                                           const Settings& settings) {
  if (options.boolean("measure")) return measured_here(settings);
  if (options.given("images-per-second"))
    return compute_at_speed(worker, settings.model, settings.run.precision, rows_of_worker(settings),
                            options.number("images-per-second", {.low = 1e-3, .high = 1e9}));
  auto times = device_compute(worker, settings.model, settings.run.precision);
  if (options.given("gpu")) return times;
  return scaled_compute(std::move(times), 1, concat("roofline limits of a ", worker.name));
}

// Throws UsageError if options of a parameter server are combined with another strategy.
std::string strategy_option(const Options& options) {
  const std::string name = options.string("strategy");
  if (name == "ps") return "";
  try {
    strategy_from(name);
  } catch (const Error& e) {
    throw UsageError(concat("--strategy: ", e.what()));
  }
  for (const char* other :
       {"servers", "delay", "pushes", "backup", "pull-every", "push-every", "filter", "async-from-epoch", "full-rate",
        "rate-by-staleness", "blocks", "rate-by-delay", "message-work"})
    if (options.given(other))
      throw UsageError(concat("--", other, " is for a parameter server, --strategy ps, not for ", name));
  return name;
}

double mb(double bytes) { return bytes / 1e6; }

// The bytes of a worker's link are known only with servers.
std::string workers_table(const SimulationRecord& record) {
  const bool links = record.bytes_between_workers == 0;
  std::string text =
      format("{:<8} {:>8} {:>12} {:>12} {:>9}", "worker", "tasks", "computes %", "transfers %", "idle %");
  text += links ? format(" {:>12} {:>12}\n", "sends MB", "receives MB") : "\n";
  for (size_t w = 0; w < record.workers.size(); ++w) {
    const SimulationRecord::SimulatedWorker& each = record.workers[w];
    text += format("{:<8} {:>8} {:>12.1f} {:>12.1f} {:>9.1f}", w, each.tasks, 100 * each.computing,
                   100 * each.on_the_way, 100 * (1 - each.computing - each.on_the_way));
    text += links ? format(" {:>12.2f} {:>12.2f}\n", mb(each.link.out), mb(each.link.in)) : "\n";
  }
  return text;
}

std::string staleness_text(const SimulationRecord& record) {
  int64_t all = 0;
  for (const auto& [updates, gradients] : record.staleness) all += gradients;
  std::string text = "staleness";
  for (const auto& [updates, gradients] : record.staleness)
    text += format("  {}: {:.1f} %", updates, 100 * static_cast<double>(gradients) / static_cast<double>(all));
  return text + (record.dropped > 0 ? format("; {} gradients were too late and dropped", record.dropped) : "");
}

std::string bytes_text(const SimulationRecord& record) {
  if (record.bytes_between_workers > 0)
    return format("between the workers {:.2f} MB", mb(static_cast<double>(record.bytes_between_workers)));
  std::string text =
      format("to the servers {:.2f} MB, to the workers {:.2f} MB", mb(static_cast<double>(record.bytes_to_servers)),
             mb(static_cast<double>(record.bytes_to_workers)));
  if (const auto& each = record.each_server)
    text += format("; each server sends {:.2f} MB and receives {:.2f} MB", mb(each->out), mb(each->in));
  return text;
}

}  // namespace

int command_simulate(const Arguments& arguments) {
  Options options("owt simulate",
                  "Trains with a parameter server on a simulated clock: gradients are computed, times are modelled.");
  declare_simulation(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  if (options.boolean("measure") && (options.given("gpu") || options.given("images-per-second")))
    throw UsageError("--measure and --gpu or --images-per-second do not go together");
  for (const char* other : {"data", "classes", "weights", "epochs", "lr", "async-from-epoch"})
    if (options.boolean("times-only") && options.given(other))
      throw UsageError(concat("--times-only and --", other, " do not go together"));
  const DeviceSpeed worker = options.given("gpu") ? gpu_option(options) : kUsualWorker;
  const Settings settings = shared_settings(options, with_classes(options));
  SimulateOptions simulation;
  simulation.data = given_data(options, settings);
  if (!options.boolean("times-only")) tell_of_drawn_images(options, settings);
  if (options.given("out")) simulation.out = options.string("out");
  if (options.given("weights")) simulation.start.file = weights_option(options);
  simulation.threads = shared_threads(options);
  simulation.strategy = strategy_option(options);
  simulation.cluster = cluster_from(options, settings);
  simulation.compute = [&](const Settings& of) { return compute_from(options, worker, of); };
  const SimulateOutcome outcome = simulate(settings, simulation);
  const VirtualOutcome& run = outcome.virtual_run;
  if (!run.finished) fail("stopped on a signal after step ", run.record.step, "; a simulation cannot be resumed");
  std::cout << workers_table(run.record) << staleness_text(run.record) << '\n'
            << format("simulated: {:.3f} s, {} updates; {}\n", run.seconds, run.record.updates, bytes_text(run.record));
  if (!simulation.cluster.times_only)
    std::cout << format("{} accuracy: {}, loss {:.4f} ({} images)\n", kind_of(settings.data.evaluated()),
                        accuracy_text(run.evaluation, settings.model.classes), run.evaluation.loss,
                        run.evaluation.images);
  if (!outcome.run_folder.empty())
    std::cout << format("run folder: {} (config.toml, log.txt, metrics.jsonl{})\n", outcome.run_folder,
                        simulation.cluster.times_only ? "" : ", checkpoints/");
  return 0;
}

}  // namespace owt
