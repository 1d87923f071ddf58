#include "src/train/run.h"

#include <filesystem>
#include <iostream>

#include "src/comm/threads.h"
#include "src/core/files.h"
#include "src/core/log.h"
#include "src/core/threads.h"
#include "src/train/signals.h"
#include "src/train/trainer.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

void make_folder(const std::string& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) fail("cannot make the run folder ", folder, ": ", code.message(), "; choose another --out");
  if (!writable_folder(folder)) fail("cannot write to the run folder ", folder, "; choose another --out");
}

// The checkpoint folder that --resume means; empty: start from the beginning.
std::string checkpoint_to_resume(const std::string& resume, const std::string& out) {
  if (resume.empty()) {
    if (newest_checkpoint(out))
      fail("the run folder ", out,
           " holds a run already; add --resume auto to go on, or choose another --out");
    return {};
  }
  if (resume == "auto") return newest_checkpoint(out).value_or("");
  if (fs::is_regular_file(fs::path(resume) / "state.json")) return resume;
  const auto newest = newest_checkpoint(resume);
  if (!newest) fail("no checkpoint in ", resume, " (wanted a run folder, a checkpoint folder, or auto)");
  return *newest;
}

// A failed run says so in its log as well.
template <class Work>
void logged(const Work& work) {
  try {
    work();
  } catch (const std::exception& e) {
    log_warn("the run failed: {}", e.what());
    throw;
  }
}

}  // namespace

int threads_per_rank(int threads, int ranks) {
  return std::max(1, (threads > 0 ? threads : hardware_cores()) / ranks);
}

TrainOutcome train(Settings settings, const TrainOptions& options) {
  TrainOutcome outcome;
  const std::string out = options.out.empty() ? "runs/" + settings.name : options.out;
  outcome.run_folder = out;
  Job job;
  job.resume_checkpoint = checkpoint_to_resume(options.resume, out);
  if (!job.resume_checkpoint.empty()) {
    if (!options.weights.empty())
      fail("--weights and --resume do not go together: a checkpoint has its own weights");
    const uint64_t seed = load_checkpoint_state(job.resume_checkpoint).seed;
    if (seed != settings.run.seed) log_info("seed {} from the checkpoint", seed);
    settings.run.seed = seed;
  }
  job.run_folder = out;
  job.weights = options.weights;
  job.settings = settings;
  job.plan = make_plan(settings.model, settings.plan_request());
  ConvChoices::process().set_mode(settings.run.conv_algorithm);
  const int team = threads_per_rank(options.threads, job.plan.ranks());
  set_team_size(threads_per_rank(options.threads, 1));
  const std::string data = data_folder(settings.data, options.data);
  open_data(job, data);
  make_folder(out);
  log_to_file(out + "/log.txt");
  if (settings.data.format != "synthetic") settings.recipe.set("data.dir", fs::absolute(data).string());
  write_file_atomically(out + "/config.toml", settings.recipe.to_toml());
  catch_stop_signals();

  std::vector<Profiler> profilers(static_cast<size_t>(job.plan.ranks()));
  logged([&] {
    run_ranks(job.plan.ranks(), team, [&](Communicator& comm) {
      Trainer trainer(job, comm);
      const bool finished = trainer.run();
      profilers[static_cast<size_t>(comm.rank())] = trainer.profiler();
      if (comm.rank() != 0) return;
      outcome.finished = finished;
      if (trainer.last_evaluation()) outcome.evaluation = *trainer.last_evaluation();
    });
  });
  std::vector<const Profiler*> views;
  for (const Profiler& profiler : profilers) views.push_back(&profiler);
  if (!profilers[0].step_ms().empty()) {
    const TimingReport report = make_report(views, layer_facts(job.plan), job.plan.request.step_rows);
    write_file_atomically(out + "/timing.csv", report.csv());
    if (options.timing) std::cout << report.table() << std::flush;
  }
  log_to_file("");
  return outcome;
}

Evaluation evaluate_file(Settings settings, const std::string& weights, const std::string& data,
                         int threads) {
  Job job;
  job.settings = std::move(settings);
  job.weights = weights;
  job.plan = make_plan(job.settings.model, job.settings.plan_request());
  ConvChoices::process().set_mode(job.settings.run.conv_algorithm);
  set_team_size(threads_per_rank(threads, 1));
  open_data(job, data_folder(job.settings.data, data));
  return evaluate_weights(job, threads_per_rank(threads, job.plan.ranks()));
}

}  // namespace owt
