#include "src/train/commands/run.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <list>
#include <memory>
#include <optional>
#include <span>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/core/files.h"
#include "src/core/log.h"
#include "src/core/texts.h"
#include "src/core/threads.h"
#include "src/train/advice.h"
#include "src/train/alike.h"
#include "src/train/commands/auto_strategy.h"
#include "src/train/commands/measured_shares.h"
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
  std::string state;  // state.json of the checkpoint; empty: none

  std::vector<double> shares() const {
    return state.empty() ? std::vector<double>() : RunState::from_json(state, place.checkpoint).measured_shares;
  }

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
      // With "auto" one command line begins a run and goes on with it, whose weights have been learnt further since.
      if (!options.start.file.empty() && options.resume != "auto")
        fail("--weights and --resume do not go together: a checkpoint has its own weights");
      found.state = load_checkpoint_state(found.place.checkpoint).to_json();
    }
    return found.text();
  }));
}

// Of the checkpoint that the weights are of, if they are of one.
std::optional<RunState> state_beside(const std::string& weights) {
  const std::string folder = fs::path(weights).parent_path().string();
  if (!fs::is_regular_file(fs::path(folder) / "state.json")) return {};
  return load_checkpoint_state(folder);
}

// Those that were measured for the run of the weights; empty: none.
std::vector<double> shares_beside(const std::string& weights) {
  const std::optional<RunState> state = state_beside(weights);
  return state ? state->measured_shares : std::vector<double>();
}

// Images that another recipe, or another seed, holds out may be those that the run was trained on.
void check_held_out(const Job& job) {
  from_rank_0([&] {
    const std::optional<RunState> state = state_beside(job.weights);
    const uint64_t seed = job.settings.run.seed;
    if (state && (state->seed != seed || state->images != job.train->size()))
      fail("the run of ", job.weights, " has seed ", state->seed, " and was trained on ", state->images,
           " images; with seed ", seed, " and ", job.train->size(),
           " training images other ones are held out; name the run folder in place of the recipe");
    return "";
  });
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

// The job that begins, or goes on, where rank 0 has found.
Job job_of(Settings settings, const TrainOptions& options, const Start& start) {
  Job job;
  job.run_folder = start.place.out;
  job.resume_checkpoint = start.place.checkpoint;
  job.same_run = start.place.same_run;
  job.start = options.start;
  if (!job.resume_checkpoint.empty()) {
    job.resume_state = RunState::from_json(start.state, job.resume_checkpoint);
    const std::string saved = job.resume_state.optimizer, wanted = settings.optimizer.name();
    if (saved != wanted)
      fail("the checkpoint ", job.resume_checkpoint, " has the state of optimizer ", saved, ", the recipe wants ",
           wanted, "; give optimizer.type and its keys as they were, or start a new run with --weights ",
           job.resume_checkpoint, "/weights.safetensors");
    settings.run.seed = job.resume_state.seed;
    settings.recipe.set("run.seed", std::to_string(settings.run.seed));
  }
  job.plan = settings.plan_to_run();
  job.settings = std::move(settings);
  return job;
}

void open_training_data(Job& job, const std::string& given) {
  const std::string data = data_folder(job.settings.data, given);
  open_data(job, data);
  check_same_data(job, data);
  if (!job.resume_checkpoint.empty() && job.resume_state.images != job.train->size())
    fail("the checkpoint ", job.resume_checkpoint, " was made with ", job.resume_state.images,
         " training images, the data has ", job.train->size(),
         job.validation ? concat(" beside ", job.validation->size(), " that data.validation holds out") : "",
         "; give the same data and data.validation, or start a new run with --weights ", job.resume_checkpoint,
         "/weights.safetensors");
  if (job.settings.data.format != "synthetic")
    job.settings.recipe.set("data.dir", std::filesystem::absolute(data).string());
}

// On rank 0: the folder with what is known before the first step; nobody else writes there while the lock lives.
std::unique_ptr<FileLock> open_run_folder(const Job& job) {
  std::unique_ptr<FileLock> lock;
  from_rank_0([&] {
    const std::string& out = job.run_folder;
    make_folder(out);
    lock = std::make_unique<FileLock>(out + "/log.txt");
    if (lock->held_by_another())
      fail("another run is writing to the run folder ", out, "; wait until it has ended, or choose another --out");
    log_to_file(out + "/log.txt");
    write_file_atomically(out + "/config.toml", job.settings.recipe.to_toml());
    if (job.train) write_data_facts(out, {job.statistics, job.train->class_names()});
    return "";
  });
  return lock;
}

void log_changes(const Job& job, uint64_t asked_seed) {
  if (job.settings.run.seed != asked_seed) log_info("seed {}, as in the checkpoint", job.settings.run.seed);
  const int64_t rows = job.plan.request.step_rows;
  if (!job.resume_checkpoint.empty() && job.resume_state.step_rows != rows)
    log_info("the checkpoint's steps had {} images, now they have {}: epochs go on where they were, steps count on",
             job.resume_state.step_rows, rows);
}

// The table of `owt time`, from the first steps of the run, and what bounds them.
void report_times(const Job& job, const StepTimes& times, bool print) {
  if (times.empty()) return;
  const int64_t rows = std::min(job.plan.request.step_rows, job.train->size());  // an epoch has no more
  const TimingReport report = make_report(times.medians, layer_facts(job.plan, rows), rows);
  const std::string bottleneck = explain_step(job.settings.model, job.plan, times, job.links).text();
  if (print) std::cout << report.table() << bottleneck << std::endl;
  print ? log_to_file_only(bottleneck) : log_info("{}", bottleneck);
  write_file_atomically(job.run_folder + "/timing.csv", report.csv());
}

}  // namespace

void check_outputs(const std::vector<std::string>& files) {
  from_rank_0([&] {
    for (const std::string& file : files)
      if (!file.empty()) check_output(file);
    return "";
  });
}

// Of those that are left, where `lost` workers of the job are.
Job job_without(const Job& job, int lost) {
  Job left = job;
  left.settings = job.settings.without_workers(lost);
  left.plan = left.settings.plan_to_run();
  return left;
}

// A rank's training: where workers are lost, and that is tolerated, with those that are left. finished(trainer, whether
// it has come to the end of the schedule) is called on what ends it.
void train_on_rank(const Job& job, Communicator& comm, const std::function<void(Trainer&, bool)>& finished) {
  std::list<Job> jobs;
  std::list<std::unique_ptr<Communicator>> worlds;  // older ones end what goes on there
  auto trainer = std::make_unique<Trainer>(job, comm);
  TrainingEnd end = trainer->run();
  while (end == TrainingEnd::kWithout) {
    const std::vector<int>& lost = trainer->without();
    jobs.push_back(job_without(jobs.empty() ? job : jobs.back(), static_cast<int>(lost.size())));
    worlds.push_back(go_on_without(lost));
    trainer = std::make_unique<Trainer>(jobs.back(), *worlds.back(), trainer.get());
    end = trainer->run();
  }
  finished(*trainer, end == TrainingEnd::kFinished);
}

TrainOutcome train(Settings settings, const TrainOptions& options) {
  catch_stop_signals();  // a wish to stop is heard after the first step
  // The weights themselves are read on rank 0, and a checkpoint is found there.
  start_together(
      "train", settings,
      {option_is_given("weights", !options.start.file.empty()), option_fact("except", joined(options.start.except)),
       option_is_given("except-mismatched", options.start.except_mismatched), option_fact("resume", options.resume)});
  const Start start = find_start(settings, options);
  const Session session(settings, options.threads);
  const std::string shares = settle_shares(settings, session, start.shares());
  const std::optional<Network> links = settle_strategy(settings, session);
  const uint64_t asked_seed = settings.run.seed;
  Job job = job_of(std::move(settings), options, start);
  job.links = links;
  open_training_data(job, options.data);
  const std::unique_ptr<FileLock> lock = open_run_folder(job);
  if (!shares.empty()) log_info("{}", shares);
  log_changes(job, asked_seed);

  TrainOutcome outcome;
  outcome.run_folder = job.run_folder;
  if (job.tolerates_loss()) tolerate_loss(job.plan.dispensable_workers());
  StepTimes times;
  logged([&] {
    session.run(job.plan.ranks(), [&](Communicator& comm) {
      train_on_rank(job, comm, [&](Trainer& trainer, bool finished) {
        const StepTimes& of_all = trainer.times();
        if (comm.rank() == 0) times = of_all;
        if (comm.rank() == 0 || launch().several()) outcome.finished = finished;
        if (comm.rank() == 0 && trainer.last_evaluation()) outcome.evaluation = *trainer.last_evaluation();
      });
    });
  });
  if (launch().rank == 0) report_times(job, times, options.timing);
  log_to_file("");
  return outcome;
}

SimulateOutcome simulate(Settings settings, const SimulateOptions& options) {
  catch_stop_signals();
  TrainOptions as_train;
  as_train.data = options.data;
  as_train.out = options.out;
  as_train.start = options.start;
  const Start start = find_start(settings, as_train);
  settings = settings_of_virtual_workers(std::move(settings), options.cluster, options.strategy);
  const Session session(settings, options.threads);
  Job job = job_of(std::move(settings), as_train, start);
  job.plan = plan_of_virtual_workers(job.settings);
  if (!options.cluster.times_only) open_training_data(job, options.data);
  const std::unique_ptr<FileLock> lock = open_run_folder(job);
  SimulateOutcome outcome{.run_folder = job.run_folder};
  logged([&] {
    const std::unique_ptr<ComputeModel> compute = options.compute(job.settings);
    outcome.compute = compute->text();
    VirtualCluster cluster = options.cluster;
    if (!options.strategy.empty())
      cluster.planned = planned_step(job.settings, options.strategy, cluster.link, *compute);
    log_info("simulated: {} workers, {}; compute times: {}", job.plan.ranks(),
             cluster.planned ? options.strategy : cluster.rules.text(), outcome.compute);
    const int threads = options.threads > 0 ? options.threads : hardware_cores();
    outcome.virtual_run = VirtualRun(job, cluster, *compute, std::min(threads, job.plan.ranks())).run();
  });
  log_to_file("");
  return outcome;
}

Evaluation evaluate_file(Settings settings, const EvalOptions& options) {
  const EvaluationRequest& request = options.request;
  start_together(
      "eval", settings,
      {option_fact("split", name_of(request.split)), option_fact("views", request.views.name()),
       option_is_given("predictions", !request.predictions.empty()),
       option_is_given("confusion", !request.confusion.empty()), option_is_given("per-class", request.per_class)});
  check_outputs({request.predictions, request.confusion, options.json});
  Job job;
  job.settings = std::move(settings);
  job.settings.ema = {};  // nothing is averaged here
  // Any number of workers takes as many rows, whatever batch norm's groups are: no figure depends on those.
  if (DataSettings& data = job.settings.data; data.batch_per_rank > 0)
    data.batch = data.batch_per_rank * job.settings.computing_ranks(), data.batch_per_rank = 0;
  job.weights = options.weights;
  const Session session(job.settings, options.threads, options.weights);
  log_device(job.settings);
  const std::string shares = settle_shares(job.settings, session, shares_beside(options.weights));
  if (!shares.empty()) log_info("{}", shares);
  job.plan = job.settings.plan_to_run(request.wants_logits());
  const std::string data = data_folder(job.settings.data, options.data);
  open_data(job, data, request.split, options.run_folder);
  check_same_data(job, data);
  if (request.split == Split::kValidation) check_held_out(job);
  return evaluate_weights(job, request, session);
}

}  // namespace owt
