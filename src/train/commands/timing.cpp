// `owt time`: steps on made-up images, so that neither data nor a loader is needed.
#include "src/comm/launch.h"
#include "src/comm/on_host.h"
#include "src/core/log.h"
#include "src/train/alike.h"
#include "src/train/commands/auto_strategy.h"
#include "src/train/commands/run.h"
#include "src/train/layer_facts.h"
#include "src/train/made_up_batch.h"
#include "src/train/session.h"
#include "src/train/worker.h"

namespace owt {
namespace {

constexpr int kWarmUpSteps = 3;  // the first ones make primitives and choose algorithms

// Runs steps with the profiler on, and returns the milliseconds of a step without it where that differs: on a GPU.
double time_rank(const Settings& settings, const Plan& plan, int64_t steps, Worker& worker) {
  auto& [profiler, comm, model, sgd, step] = worker;
  model.initialize(settings.run.seed);
  step.prepare(plan.request.step_rows);
  const Batch batch = on_all_hosts(comm, [&] {
    return made_up_batch(settings.model, plan.rows(plan.request.step_rows).of(comm.rank()), plan.request,
                         step.wanted_images(plan.request.step_rows));
  });
  constexpr Step::Rates kRates{1e-6, 1e-6};  // leave the made-up task finite
  int64_t number = 0;
  for (int64_t i = -kWarmUpSteps; i < steps; ++i) {
    profiler.enable(i >= 0);
    profiler.begin_step();
    step.train(batch, number++, kRates, false);
    profiler.end_step();
  }
  if (plan.request.on.device == Device::kCpu) return 0;
  profiler.enable(false);
  for (int i = 1; i < step.most_in_flight(); ++i) step.start_training(batch, number++, kRates, false);
  const auto begin = Profiler::Clock::now();
  for (int64_t i = 0; i < steps; ++i) {
    step.start_training(batch, number++, kRates, false);
    step.finish();
  }
  const double ms = std::chrono::duration<double, std::milli>(Profiler::Clock::now() - begin).count();
  for (int i = 1; i < step.most_in_flight(); ++i) step.finish();
  return ms / static_cast<double>(steps);
}

}  // namespace

TimeOutcome time_steps(Settings settings, const TimeOptions& options) {
  start_together("time", settings, {option_fact("steps", std::to_string(options.steps))});
  check_outputs({options.trace, options.csv});
  const Session session(settings, options.threads);
  settle_strategy(settings, session);
  const Plan plan = settings.plan_to_run();
  log_device(settings);
  std::vector<Profiler> profilers(static_cast<size_t>(plan.ranks()));
  double untimed_ms = 0;
  session.run(plan.ranks(), [&](Communicator& comm) {
    Worker worker(settings, plan, comm);
    worker.profiler.keep_spans(!options.trace.empty());
    const double ms = time_rank(settings, plan, options.steps, worker);
    profilers[static_cast<size_t>(comm.rank())] = std::move(worker.profiler);
    if (comm.rank() == 0) untimed_ms = ms;
  });
  for (const std::string& line : ConvChoices::process().report()) log_info("convolution {}", line);
  for (const std::string& line : ConvChoices::process().warnings()) log_warn("{}", line);
  if (launch().rank != 0) return {};
  TimeOutcome outcome{make_report(profilers, layer_facts(plan, plan.request.step_rows), plan.request.step_rows), ""};
  outcome.report.untimed_ms = untimed_ms;
  if (!options.trace.empty()) outcome.trace = trace_json(profilers);
  return outcome;
}

}  // namespace owt
