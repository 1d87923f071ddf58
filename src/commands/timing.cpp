// `owt time`: steps on synthetic images, so that neither data nor a loader is needed.
#include "src/comm/launch.h"
#include "src/comm/on_host.h"
#include "src/comm/processes.h"
#include "src/commands/auto_strategy.h"
#include "src/commands/measured_shares.h"
#include "src/commands/planner_files.h"
#include "src/commands/run.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/report/layer_facts.h"
#include "src/report/trace.h"
#include "src/report/what_if.h"
#include "src/system/log.h"
#include "src/train/advice.h"
#include "src/train/alike.h"
#include "src/train/made_up_batch.h"
#include "src/train/memory_check.h"
#include "src/train/session.h"
#include "src/train/teacher.h"
#include "src/train/worker.h"

namespace owt {
namespace {

constexpr int kWarmUpSteps = 3;  // these make primitives and choose algorithms

// The steps of one rank, all with the same batch.
class TimedSteps {
 public:
  TimedSteps(const Settings& settings, const Plan& plan, bool evaluation, Worker& worker)
      : evaluation_(evaluation), period_(period_of(plan)), worker_(worker), step_(worker.step) {
    worker.model.initialize(settings.run.seed);
    if (WeightEma* ema = step_.ema()) ema->begin(step_.stream());
    step_.prepare(plan.request.step_rows, evaluation ? Mode::kEval : Mode::kTrain);
    batch_ = on_all_hosts(worker.comm, [&] {
      PlanRequest request = plan.request;
      const bool taught = worker.teacher != nullptr;  // the teacher takes plain images and makes the targets
      if (taught) request.loss.targets = {};
      return made_up_batch(settings.model, rows_of(plan, request.step_rows).of(worker.comm.rank()), request,
                           taught ? std::nullopt : step_.wanted_images(request.step_rows));
    });
  }

  void start() {
    Step::Rates rates{1e-6, 1e-6};  // small, so that the synthetic task stays finite
    if (evaluation_) return worker_.start_evaluation(batch_);
    if (step_.ema() && (number_ + 1) % period_ == 0) rates.kept = 0.5;
    worker_.start_training(batch_, number_++, rates, false);
  }
  void finish() { step_.finish(); }
  bool chooses() const { return !evaluation_ && step_.chooses(); }
  int most_in_flight() const { return step_.most_in_flight(); }

 private:
  const bool evaluation_;
  const int64_t period_;
  Worker& worker_;
  Step& step_;
  Batch batch_;
  int64_t number_ = 0;
};

void time_each(int64_t steps, TimedSteps& timed, Profiler& profiler) {
  for (int64_t i = -kWarmUpSteps; i < steps; ++i) {
    profiler.enable(i >= 0);
    profiler.begin_step();
    timed.start();
    timed.finish();
    profiler.end_step();
  }
  profiler.enable(false);
}

// The milliseconds of a step when steps are queued ahead.
double time_all(int64_t steps, TimedSteps& timed) {
  for (int i = 1; i < timed.most_in_flight(); ++i) timed.start();
  while (timed.chooses()) {
    timed.start();
    timed.finish();
  }
  const auto begin = Profiler::Clock::now();
  for (int64_t i = 0; i < steps; ++i) {
    timed.start();
    timed.finish();
  }
  const double ms = std::chrono::duration<double, std::milli>(Profiler::Clock::now() - begin).count();
  for (int i = 1; i < timed.most_in_flight(); ++i) timed.finish();
  return ms / static_cast<double>(steps);
}

// Runs steps with the profiler on. Returns the milliseconds of a step without it if that differs, i.e. on a GPU.
double time_rank(const Settings& settings, const Plan& plan, bool evaluation, int64_t steps, Worker& worker) {
  TimedSteps timed(settings, plan, evaluation, worker);
  time_each(steps, timed, worker.profiler);
  return plan.request.on.device == Device::kCpu ? 0 : time_all(steps, timed);
}

// The peak of the calling rank's threads. The ranks of a host measure at the same time; if one must measure, all do.
// Unknown on a GPU.
Peak peak_of_rank(const Plan& plan, Communicator& comm) {
  const Compute on = plan.request.on;
  if (on.device != Device::kCpu) return {};
  const int teams = launch().several() ? launch().local_ranks : plan.ranks();
  const auto known = known_peak(on.precision, teams);
  const auto ask = [&](double unknown) { return on_host::sum(comm, std::vector{unknown}, on.device).front(); };
  if (ask(known ? 0 : 1) == 0) return *known;
  return measure_peak(on.precision, teams, [&] { ask(0); });
}

// Returns the links on rank 0. Collective; all ranks throw Error if the file cannot be read or has another number of
// ranks.
std::optional<Network> links_from(const std::string& file, int ranks) {
  std::optional<Network> links;
  if (file.empty()) return links;
  from_rank_0([&] {
    links = read_links(file);
    if (links->ranks() != ranks)
      fail(file, " was measured with ", links->ranks(), " workers, but there are ", ranks,
           " here; run owt bench-comm with as many");
    return "";
  });
  return links;
}

}  // namespace

TimeOutcome time_steps(Settings settings, const TimeOptions& options) {
  start_together(
      "time", settings,
      {option_fact("steps", std::to_string(options.steps)), option_is_given("evaluation", options.evaluation),
       option_is_given("keep-gradients", options.keeps_gradients)});
  check_outputs({options.trace, options.csv});
  std::optional<Network> links = links_from(options.links, settings.parallel.workers);
  const Session session(settings, options.threads);
  const std::string shares = settle_shares(settings, session);
  if (!shares.empty()) log_info("{}", shares);
  if (const std::optional<Network> measured = settle_strategy(settings, session); measured && !links) links = measured;
  open_teacher(settings);
  Plan plan = settings.plan_to_run();
  check_hint(settings, plan);
  const int64_t period = period_of(plan), steps = (options.steps + period - 1) / period * period;
  plan.request.keeps_gradients = options.keeps_gradients;
  log_device(settings);
  check_memory(plan, {.mode = options.evaluation ? Mode::kEval : Mode::kTrain,
                      .beside = [&](const Plan& of, int rank) { return teacher_bytes(settings, of, rank); }});
  std::vector<Profiler> profilers(static_cast<size_t>(plan.ranks()));
  StepTimes times;
  double untimed_ms = 0;
  Peak peak;
  session.run(plan.ranks(), [&](Communicator& comm) {
    auto worker = std::make_unique<Worker>(settings, plan, comm);
    worker->profiler.keep_spans(!options.trace.empty());
    const double ms = time_rank(settings, plan, options.evaluation, steps, *worker);
    const StepTimes of_all = gather_times(comm, worker->profiler, period, plan.request.on.device);
    profilers[static_cast<size_t>(comm.rank())] = std::move(worker->profiler);
    worker.reset();  // frees its memory for the measurement of the peak
    const Peak of_rank = peak_of_rank(plan, comm);
    if (comm.rank() == 0) untimed_ms = ms, peak = of_rank, times = of_all;
  });
  for (const std::string& line : ConvChoices::process().report()) log_to_file_only(format("convolution {}", line));
  for (const std::string& line : ConvChoices::process().warnings()) log_warn("{}", line);
  if (launch().rank != 0) return {};
  const int64_t rows = plan.request.step_rows;
  const Mode mode = options.evaluation ? Mode::kEval : Mode::kTrain;
  const bool trains = !options.evaluation;
  TimeOutcome outcome{.report = make_report(times.medians, layer_facts(plan, rows, mode), rows)};
  const Bottleneck bottleneck = trains ? explain_step(settings.model, plan, times, links) : find_bottleneck(times);
  outcome.bottleneck = bottleneck.text();
  if (trains && options.what_if) outcome.what_if = what_if(plan, times).table();
  outcome.report.peak = peak;
  outcome.report.untimed_ms = untimed_ms;
  if (!options.trace.empty())
    outcome.trace = trace_json(profilers, trains ? walk_measured(plan, times.middle).path : std::vector<PathPart>());
  return outcome;
}

}  // namespace owt
