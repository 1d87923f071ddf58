#include "src/train/commands/run.h"

#include <filesystem>
#include <iostream>
#include <optional>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/comm/threads.h"
#include "src/core/files.h"
#include "src/core/log.h"
#include "src/core/texts.h"
#include "src/core/threads.h"
#include "src/train/alike.h"
#include "src/train/commands/auto_strategy.h"
#include "src/train/data_facts.h"
#include "src/train/layer_facts.h"
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

// Where to write and what to go on from (empty: start from the beginning). Another run is never written over.
struct Place {
  std::string out, checkpoint;
  bool same_run = false;  // the checkpoint lies in `out`
};

Place find_place(const Settings& settings, const TrainOptions& options) {
  Place place{options.out.empty() ? "runs/" + settings.name : options.out, ""};
  if (options.resume == "auto") {
    place.checkpoint = newest_checkpoint(place.out).value_or("");
    place.same_run = !place.checkpoint.empty();
    return place;
  }
  if (!options.resume.empty()) {
    const bool is_checkpoint = fs::is_regular_file(fs::path(options.resume) / "state.json");
    const auto found = is_checkpoint ? options.resume : newest_checkpoint(options.resume).value_or("");
    if (found.empty())
      fail("no checkpoint in ", options.resume, " (wanted a run folder, a checkpoint folder, or auto)");
    place.checkpoint = fs::canonical(found).string();  // its own name, from whatever folder it is named
    const auto run = run_folder_of_checkpoint(found);
    if (options.out.empty()) place.out = run.value_or(place.out);
    std::error_code ignored;
    place.same_run = run && fs::equivalent(*run, place.out, ignored);
  }
  if (!place.same_run && newest_checkpoint(place.out))
    fail("the run folder ", place.out, " holds a run already; add --resume auto to go on, or choose another --out");
  return place;
}

// What rank 0 has found and decided, for all ranks: the others may see another disk.
struct Start {
  Place place;
  std::string state;  // state.json of the checkpoint

  std::string text() const { return packed({place.out, place.checkpoint, place.same_run ? "same" : "", state}); }
  static Start from(const std::string& text) {
    const std::vector<std::string> parts = unpacked(text);
    return {{parts.at(0), parts.at(1), !parts.at(2).empty()}, parts.at(3)};
  }
};

Start find_start(const Settings& settings, const TrainOptions& options) {
  return Start::from(from_rank_0([&] {
    Start found{find_place(settings, options), ""};
    if (!found.place.checkpoint.empty()) {
      if (!options.weights.empty()) fail("--weights and --resume do not go together: a checkpoint has its own weights");
      found.state = load_checkpoint_state(found.place.checkpoint).to_json();
    }
    return found.text();
  }));
}

// A failed run says so in its log as well.
template <class Work>
void logged(const Work& work) {
  try {
    work();
  } catch (const std::exception& e) {
    log_to_file_only(format("the run failed: {}", e.what()));
    throw;
  }
}

}  // namespace

void check_outputs(const std::vector<std::string>& files) {
  from_rank_0([&] {
    for (const std::string& file : files)
      if (!file.empty()) check_output(file);
    return "";
  });
}

TrainOutcome train(Settings settings, const TrainOptions& options) {
  catch_stop_signals();  // a wish to stop is heard after the first step
  // The weights themselves are read on rank 0, and a checkpoint is found there.
  start_together("train", settings,
                 {option_is_given("weights", !options.weights.empty()), option_fact("resume", options.resume)});
  const Start start = find_start(settings, options);
  settle_strategy(settings, options.threads);
  const auto& [out, checkpoint, same_run] = start.place;
  const bool writes = launch().rank == 0;
  TrainOutcome outcome;
  outcome.run_folder = out;
  Job job;
  job.resume_checkpoint = checkpoint;
  job.same_run = same_run;
  const uint64_t asked_seed = settings.run.seed;
  if (!checkpoint.empty()) {
    job.resume_state = RunState::from_json(start.state, checkpoint);
    settings.run.seed = job.resume_state.seed;
    settings.recipe.set("run.seed", std::to_string(settings.run.seed));
  }
  job.run_folder = out;
  job.weights = options.weights;
  job.settings = settings;
  job.plan = settings.plan_to_run();
  ConvChoices::process().set_mode(settings.run.conv_algorithm);
  const int team = threads_per_rank(options.threads, job.plan.ranks());
  set_team_size(threads_per_rank(options.threads, 1));
  const std::string data = data_folder(settings.data, options.data);
  open_data(job, data);
  check_same_data(job, data);
  if (!checkpoint.empty() && job.resume_state.images != job.train->size())
    fail("the checkpoint ", checkpoint, " was made with ", job.resume_state.images, " training images, the data has ",
         job.train->size(), "; give the same data, or start a new run with --weights ", checkpoint,
         "/weights.safetensors");
  if (settings.data.format != "synthetic") settings.recipe.set("data.dir", fs::absolute(data).string());
  std::optional<FileLock> lock;
  from_rank_0([&] {
    make_folder(out);
    lock.emplace(out + "/log.txt");
    if (lock->held_by_another())
      fail("another run is writing to the run folder ", out, "; wait until it has ended, or choose another --out");
    log_to_file(out + "/log.txt");
    write_file_atomically(out + "/config.toml", settings.recipe.to_toml());
    write_data_facts(out, {job.statistics, job.train->class_names()});
    return "";
  });
  if (settings.run.seed != asked_seed) log_info("seed {}, as in the checkpoint", settings.run.seed);
  if (!checkpoint.empty() && job.resume_state.step_rows != job.plan.request.step_rows)
    log_info(
        "the checkpoint's steps had {} images, now they have {}: epochs go on where they were, steps count "
        "on",
        job.resume_state.step_rows, job.plan.request.step_rows);

  std::vector<Profiler> profilers(static_cast<size_t>(job.plan.ranks()));
  logged([&] {
    run_ranks(
        job.plan.ranks(), team,
        [&](Communicator& comm) {
          Trainer trainer(job, comm);
          const bool finished = trainer.run();
          profilers[static_cast<size_t>(comm.rank())] = std::move(trainer.profiler());
          if (comm.rank() == 0 || launch().several()) outcome.finished = finished;
          if (comm.rank() != 0) return;
          if (trainer.last_evaluation()) outcome.evaluation = *trainer.last_evaluation();
        },
        job.plan.request.on.device);
  });
  if (!writes) return outcome;
  std::vector<const Profiler*> views;
  for (const Profiler& profiler : profilers) views.push_back(&profiler);
  if (!profilers[0].step_ms().empty()) {
    const int64_t rows =
        std::min(job.plan.request.step_rows, job.train->size());  // of a step: no more than an epoch has
    const TimingReport report = make_report(views, layer_facts(job.plan, rows), rows);
    if (options.timing) std::cout << report.table() << std::flush;
    write_file_atomically(out + "/timing.csv", report.csv());
  }
  log_to_file("");
  return outcome;
}

Evaluation evaluate_file(Settings settings, const EvalOptions& options) {
  const EvaluationRequest& request = options.request;
  start_together("eval", settings,
                 {option_fact("split", request.split == Split::kTrain ? "train" : "test"),
                  option_fact("views", std::to_string(request.views)),
                  option_is_given("predictions", !request.predictions.empty()),
                  option_is_given("confusion", !request.confusion.empty())});
  check_outputs({request.predictions, request.confusion});
  Job job;
  job.settings = std::move(settings);
  job.weights = options.weights;
  job.plan = job.settings.plan_to_run(options.request.wants_logits());
  log_device(job.settings, job.plan.request.on);
  set_team_size(threads_per_rank(options.threads, 1));
  use_algorithms_of(options.weights, job.settings);
  const std::string data = data_folder(job.settings.data, options.data);
  open_data(job, data, options.request.split, options.run_folder);
  check_same_data(job, data);
  return evaluate_weights(job, options.request, threads_per_rank(options.threads, job.plan.ranks()));
}

}  // namespace owt
