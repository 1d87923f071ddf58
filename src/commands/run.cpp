#include "src/commands/run.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <list>
#include <memory>
#include <optional>
#include <span>

#include "src/comm/launch.h"
#include "src/comm/on_host.h"
#include "src/comm/processes.h"
#include "src/comm/signals.h"
#include "src/commands/auto_strategy.h"
#include "src/commands/measured_shares.h"
#include "src/commands/run_folder.h"
#include "src/commands/run_place.h"
#include "src/core/threads.h"
#include "src/plan/plan_updates.h"
#include "src/predict/memory_need.h"
#include "src/recipe/strategy_settings.h"
#include "src/report/layer_facts.h"
#include "src/roster/membership.h"
#include "src/simulate/virtual_run.h"
#include "src/system/files.h"
#include "src/system/kept_log.h"
#include "src/system/log.h"
#include "src/system/own_words.h"
#include "src/system/texts.h"
#include "src/train/advice.h"
#include "src/train/alike.h"
#include "src/train/data_identity.h"
#include "src/train/memory_check.h"
#include "src/train/teacher.h"
#include "src/train/trainer.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

// Writes the failure of a run to its log too.
template <class Work>
void logged(const Work& work) {
  try {
    work();
  } catch (const std::exception& e) {
    const bool continues = launch().changes() && is_loss(e);
    if (continues)
      log_to_file("");
    else
      log_to_file_only(format("the run failed: {}", own_words(e)));
    throw;
  }
}

// The job that begins, or resumes, at the place that rank 0 has found.
Job job_of(Settings settings, const TrainOptions& options, const RunPlace& place) {
  Job job;
  job.run_folder = place.out;
  job.resume_checkpoint = place.checkpoint;
  job.same_run = place.same_run;
  job.start = options.start;
  job.memory = options.memory;
  job.continues = job.memory && run_world().number > 0;
  job.from_memory = place.checkpoint.empty() && !place.state.empty();
  if (job.resumes()) {
    job.resume_state = RunState::from_json(place.state, job.resume_checkpoint);
    const std::string saved = job.resume_state.optimizer, wanted = settings.optimizer.name();
    if (saved != wanted)
      fail("the checkpoint ", job.resume_checkpoint, " has the state of optimizer ", saved, ", the recipe wants ",
           wanted, "; give optimizer.type and its keys as they were, or start a new run with --weights ",
           job.resume_checkpoint, "/weights.safetensors");
    if (settings.run.seed != job.resume_state.seed) {
      settings.run.seed = job.resume_state.seed;
      settings.recipe.set("run.seed", std::to_string(settings.run.seed));
    }
  }
  job.plan = settings.plan_to_run();
  job.settings = std::move(settings);
  return job;
}

// Refuses to resume with other images unless --other-data is given.
void check_resumed_data(Job& job, const std::string& data, bool other_data) {
  if (!job.resumes()) return;
  RunState& state = job.resume_state;
  if (same_training_images(state, *job.train)) {
    if (other_data && launch().rank == 0) log_info("--other-data: {} holds the images that the run has seen", data);
    return;
  }
  if (!other_data)
    fail("the checkpoint ", job.resume_checkpoint, " was made with ", state.images, " training images, ",
         state.images == job.train->size() ? concat("and those in ", data, " are others")
                                           : concat("the data has ", job.train->size()),
         job.validation ? concat(" beside ", job.validation->size(), " that data.validation holds out") : "",
         job.settings.data.targets ? ", or have other targets (data.targets)" : "",
         "; give the same data and data.validation, add --other-data to resume with these, or start a new run with "
         "--weights ",
         job.resume_checkpoint, "/weights.safetensors");
  if (launch().rank == 0)
    log_warn(
        "the run continues with other training images from the start of epoch {}; its best evaluation ({}), which was "
        "with the old ones, is reset",
        state.epoch + 1, state.best_step < 0 ? "none" : concat("step ", state.best_step));
  begin_with_other_data(state);
}

void open_training_data(Job& job, const std::string& given, bool other_data = false) {
  const std::string data = data_folder(job.settings.data, given);
  open_data(job, data,
            job.from_memory  ? facts_of_run(job.settings, job.run_folder)
            : !job.resumes() ? known_of_start(job.settings, job.start)
                             : known_of_resumed(job.settings, job.resume_checkpoint));
  check_same_data(job, data);
  check_resumed_data(job, data, other_data);
  Config& recipe = job.settings.recipe;
  if (job.settings.data.classes == "data") recipe.set("data.classes", "");  // the run's model has these classes
  if (job.settings.data.format != "synthetic") recipe.set("data.dir", std::filesystem::absolute(data).string());
}

// Runs on rank 0 only; null on the others.
std::unique_ptr<RunFolder> claim_run_folder(const Job& job) {
  std::unique_ptr<RunFolder> folder;
  from_rank_0([&] {
    folder = std::make_unique<RunFolder>(job);
    return "";
  });
  return folder;
}

void log_changes(const Job& job, const RunFolder* folder, uint64_t asked_seed) {
  if (folder) folder->log_changes(job);
  if (job.continues) return;
  if (job.settings.run.seed != asked_seed) log_info("seed {}, as in the checkpoint", job.settings.run.seed);
  const int64_t rows = job.plan.request.step_rows;
  if (job.resumes() && job.resume_state.step_rows != rows)
    log_info(
        "a step had {} images in the checkpoint and has {} now: epoch {} continues after image {} of {}, and the step "
        "number continues",
        job.resume_state.step_rows, rows, job.resume_state.epoch + 1, job.resume_state.images_in_epoch,
        job.resume_state.images);
}

// Writes the table of `owt time` for the first steps of the run, and what limits them.
void report_times(const Job& job, const StepTimes& times, bool print) {
  if (times.empty()) return;
  const int64_t rows = std::min(job.plan.request.step_rows, job.train->size());  // an epoch has no more
  const TimingReport report = make_report(times.medians, layer_facts(job.plan, rows), rows);
  const std::string bottleneck = explain_step(job.settings.model, job.plan, times, job.links).text();
  if (print) std::cout << report.table() << bottleneck << std::endl;
  print ? log_to_file_only(bottleneck) : log_info("{}", bottleneck);
  write_file_atomically(job.run_folder + "/timing.csv", report.csv());
}

// A run whose workers have changed continues from the memory of its workers, else from its newest checkpoint.
RunPlace place_to_continue(const Settings& settings, const TrainOptions& options, const Session& session) {
  std::optional<RunState> state;
  session.run(settings.parallel.workers,
              [&](Communicator& comm) { state = options.memory->mirror.agree(comm, settings.compute().device); });
  TrainOptions again = options;
  again.resume = "auto";
  const std::string folder = from_rank_0([&] { return options.memory->run_folder; });
  if (!folder.empty()) again.out = folder;
  if (state) return {again.out, "", /*same_run=*/true, state->to_json()};
  if (launch().rank == 0)
    log_warn("{}; no complete state is in memory, so the run continues from its newest checkpoint", run_world().change);
  const RunPlace place = find_place(settings, again);
  if (place.checkpoint.empty() && !options.resume.empty() && options.resume != "auto")
    fail(run_world().change, "; no complete state is in memory, and the run has no checkpoint since it resumed from ",
         options.resume, "; start the command again");
  return place;
}

// Ends the mirror's messages while the communicator exists.
struct MirrorLeavesWorld {
  RunMemory* memory;
  ~MirrorLeavesWorld() {
    if (memory) memory->mirror.leave_world();
  }
};

// The steps that some worker had begun, and that are lost. Collective.
int64_t steps_to_repeat(const RunMemory& memory, int64_t from_step) {
  int64_t most = from_step;
  for (const std::string& step : from_every_rank(std::to_string(memory.step)))
    most = std::max<int64_t>(most, std::stoll(step));
  return most - from_step;
}

}  // namespace

void check_outputs(const std::vector<std::string>& files) {
  from_rank_0([&] {
    for (const std::string& file : files)
      if (!file.empty()) check_output(file);
    return "";
  });
}

// The job of the remaining workers, after `lost` workers were lost.
Job job_without(const Job& job, int lost) {
  Job left = job;
  left.settings = job.settings.without_workers(lost);
  left.plan = left.settings.plan_to_run();
  return left;
}

// Trains on one rank. If workers are lost and that is tolerated, it continues with the remaining workers. Calls
// begin(trainer) when every rank is ready, and finished(trainer, how it has ended) at the end.
void train_on_rank(const Job& job, Communicator& comm, const std::function<void(Trainer&)>& begin,
                   const std::function<void(Trainer&, TrainingEnd)>& finished) {
  std::list<Job> jobs;
  std::list<std::unique_ptr<Communicator>> worlds;  // the destructors of older ones end their communication
  auto trainer = std::make_unique<Trainer>(job, comm);
  on_host::sum(comm, {0.0}, job.plan.request.on.device);
  begin(*trainer);
  TrainingEnd end = trainer->run();
  while (end == TrainingEnd::kWithout) {
    const std::vector<int>& lost = trainer->without();
    jobs.push_back(job_without(jobs.empty() ? job : jobs.back(), static_cast<int>(lost.size())));
    worlds.push_back(continue_without(lost));
    trainer = std::make_unique<Trainer>(jobs.back(), *worlds.back(), trainer.get());
    end = trainer->run();
  }
  finished(*trainer, end);
}

TrainOutcome train(Settings settings, const TrainOptions& options) {
  catch_stop_signals(kCheckpointFollows);  // a wish to stop is noticed after the first step
  note_kept_step(0);
  keep_log_for_file();
  // Weights are read by rank 0 only, which also finds the checkpoint.
  start_together(
      "train", settings,
      {option_is_given("weights", !options.start.file.empty()), option_fact("except", joined(options.start.except)),
       option_is_given("except-mismatched", options.start.except_mismatched), option_fact("resume", options.resume),
       option_is_given("other-data", options.other_data)});
  if (options.memory) {
    check_workers_may_change(settings);
    settings.elastic.on = true;
  }
  const Session session(settings, options.threads);
  const bool continues = options.memory && run_world().number > 0;
  const RunPlace place = continues ? place_to_continue(settings, options, session) : find_place(settings, options);
  StartWeights weights = options.start;
  const std::string data = data_folder(settings.data, options.data);
  settings = with_classes_of_data(std::move(settings), data, weights);
  const std::string shares =
      settle_shares(settings, session, continues ? std::vector<double>() : place.measured_shares());
  const std::optional<Network> links = settle_strategy(settings, session);
  open_teacher(settings, place.same_run ? place.out : "");
  const uint64_t asked_seed = settings.run.seed;
  Job job = job_of(std::move(settings), options, place);
  job.links = links;
  job.start = weights;
  if (job.continues) job.repeated_steps = steps_to_repeat(*job.memory, job.resume_state.step);
  if (job.memory) job.memory->run_folder = job.run_folder;
  note_kept_step(job.resume_state.step);
  const std::unique_ptr<RunFolder> folder = claim_run_folder(job);
  open_training_data(job, options.data, options.other_data);
  check_teacher(job);
  check_hint(job.settings, job.plan);
  // The mirror of the workers before exists, and the second renewal replaces it (mirror.h).
  const RankNeed beside = [&](const Plan& plan, int rank) {
    return teacher_bytes(job.settings, plan, rank) - (job.continues ? mirror_bytes(plan, rank) / 2 : 0);
  };
  check_memory(job.plan, {.batches = 2 * kLoadedBatches, .beside = beside});  // for training and evaluation
  if (!shares.empty()) log_info("{}", shares);
  if (!options.stays.empty() && !job.resume_checkpoint.empty()) log_info("{}", options.stays);
  log_changes(job, folder.get(), asked_seed);

  TrainOutcome outcome;
  outcome.run_folder = job.run_folder;
  outcome.classes = job.settings.model.classes;
  if (job.tolerates_loss()) tolerate_loss(dispensable_workers(job.plan));
  StepTimes times;
  logged([&] {
    session.run(job.plan.ranks(), [&](Communicator& comm) {
      const MirrorLeavesWorld at_the_end{job.memory};
      const auto begin = [&](const Trainer& trainer) {
        if (comm.rank() == 0) folder->open(job, !trainer.is_over());
      };
      train_on_rank(job, comm, begin, [&](Trainer& trainer, TrainingEnd end) {
        outcome.workers_change = end == TrainingEnd::kChange;
        if (outcome.workers_change) return;
        const StepTimes& of_all = trainer.times();
        if (comm.rank() == 0) times = of_all;
        if (comm.rank() == 0 || launch().several()) outcome.finished = end == TrainingEnd::kFinished;
        if (comm.rank() == 0 && trainer.last_evaluation()) outcome.evaluation = *trainer.last_evaluation();
      });
    });
  });
  if (launch().rank == 0) report_times(job, times, options.timing);
  log_to_file("");
  return outcome;
}

SimulateOutcome simulate(Settings settings, const SimulateOptions& options) {
  catch_stop_signals("stopping; the best checkpoint is kept; press again to end at once");
  TrainOptions as_train;
  as_train.can_resume = false;
  as_train.data = options.data;
  as_train.out = options.out;
  as_train.start = options.start;
  if (as_train.out.empty()) as_train.out = default_run_folder(settings.name + "-simulated");
  const bool writes = !options.cluster.times_only || !options.out.empty();
  keep_log_for_file();
  const RunPlace place = writes ? find_place(settings, as_train) : RunPlace();
  const std::string data = data_folder(settings.data, options.data);
  if (!options.cluster.times_only) settings = with_classes_of_data(std::move(settings), data, as_train.start);
  settings = settings_of_virtual_workers(std::move(settings), options.cluster, options.strategy);
  const Session session(settings, options.threads);
  Job job = job_of(std::move(settings), as_train, place);
  job.plan = plan_of_virtual_workers(job.settings);
  const std::unique_ptr<RunFolder> folder = writes ? claim_run_folder(job) : nullptr;
  const int threads = std::min(options.threads > 0 ? options.threads : default_threads(), job.plan.ranks());
  if (!options.cluster.times_only) {
    open_training_data(job, options.data);
    check_memory(job.plan, [&](const Plan& plan, int) { return bytes_of_simulation(plan, threads); });
  }
  SimulateOutcome outcome{.run_folder = job.run_folder};
  logged([&] {
    const std::unique_ptr<ComputeModel> compute = options.compute(job.settings);
    outcome.compute = compute->text();
    VirtualCluster cluster = options.cluster;
    if (!options.strategy.empty())
      cluster.planned = planned_step(job.settings, options.strategy, cluster.link, *compute);
    log_info("simulated: {} workers, {}; compute times: {}", job.plan.ranks(),
             cluster.planned ? options.strategy : cluster.rules.text(), outcome.compute);
    VirtualRun run(job, cluster, *compute, threads);
    if (folder) folder->open(job, true);
    outcome.virtual_run = run.run();
  });
  log_to_file("");
  return outcome;
}

}  // namespace owt
