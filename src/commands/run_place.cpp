#include "src/commands/run_place.h"

#include <filesystem>

#include "src/comm/processes.h"
#include "src/files/checkpoint_files.h"
#include "src/system/log.h"
#include "src/system/texts.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

bool has_bytes(const fs::path& file) {
  std::error_code none;
  return fs::is_regular_file(file, none) && fs::file_size(file, none) > 0;
}

// Resumes the run of this folder if it has a checkpoint.
void resume_automatically(RunPlace& place) {
  if (const auto newest = newest_whole_checkpoint(place.out)) {
    place.checkpoint = newest->folder;
    place.state = newest->state.to_json();
    place.same_run = true;
    return;
  }
  log_info("nothing to resume: {} has no checkpoint; starting at step 0", place.out);
}

void resume_named(const std::string& named, bool out_is_given, RunPlace& place) {
  if (is_checkpoint(named)) {
    place.checkpoint = named;
    place.state = load_checkpoint_state(named).to_json();
  } else if (const auto newest = newest_whole_checkpoint(named)) {
    place.checkpoint = newest->folder;
    place.state = newest->state.to_json();
  } else {
    fail("no checkpoint in ", named, " (wanted a run folder, a checkpoint folder, or auto)");
  }
  const auto run = run_folder_of_checkpoint(place.checkpoint);
  if (!out_is_given) place.out = run.value_or(place.out);
  // its canonical path, independent of the working directory
  place.checkpoint = fs::canonical(place.checkpoint).string();
  std::error_code ignored;
  place.same_run = run && fs::equivalent(*run, place.out, ignored);
}

RunPlace find_here(const Settings& settings, const TrainOptions& options) {
  RunPlace place{options.out.empty() ? default_run_folder(settings.name) : options.out, "", false, ""};
  if (options.resume == "auto")
    resume_automatically(place);
  else if (!options.resume.empty())
    resume_named(options.resume, !options.out.empty(), place);
  // With "auto" the same command line begins and later resumes a run; its checkpoint is then further than the weights.
  const bool weights = !options.start.file.empty() && !place.checkpoint.empty();
  if (weights && options.resume != "auto")
    fail("--weights and --resume do not go together: a checkpoint has its own weights");
  if (weights) log_info("the weights come from the checkpoint; {} is not read", options.start.file);
  if (options.resume != "auto" && !place.same_run && holds_run(place.out))
    fail("the run folder ", place.out, " holds a run already",
         !options.can_resume ? "; choose another --out"
         : newest_checkpoint(place.out)
             ? "; add --resume auto to resume it, or choose another --out"
             : ", without a checkpoint yet; add --resume auto to restart it, or choose another --out");
  return place;
}

}  // namespace

std::string default_run_folder(const std::string& name) { return "runs/" + name; }

bool holds_run(const std::string& folder) {
  const fs::path run = folder;
  return has_bytes(run / "metrics.jsonl") || has_bytes(run / "log.txt") || !list_checkpoints(folder).empty();
}

std::vector<double> RunPlace::measured_shares() const {
  return state.empty() ? std::vector<double>() : RunState::from_json(state, checkpoint).measured_shares;
}

RunPlace find_place(const Settings& settings, const TrainOptions& options) {
  const std::vector<std::string> found = unpacked(from_rank_0([&] {
    const RunPlace here = find_here(settings, options);
    return packed({here.out, here.checkpoint, here.same_run ? "same" : "", here.state});
  }));
  return {found.at(0), found.at(1), !found.at(2).empty(), found.at(3)};
}

}  // namespace owt
