#include "src/report/pages/run_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "src/files/checkpoint_files.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/own_words.h"
#include "src/system/toml_values.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

std::string file_of(const std::string& folder, const char* name) { return (fs::path(folder) / name).string(); }

template <class Read>
void read_or_note(RunRecord& run, const Read& read) {
  try {
    read();
  } catch (const std::exception& e) {
    run.wrong.push_back(own_words(e));
  }
}

// The earliest time if there is no such folder.
fs::file_time_type changed_folder(const std::string& folder) {
  std::error_code none;
  const fs::file_time_type time = fs::last_write_time(folder, none);
  return none ? fs::file_time_type::min() : time;
}

// For metrics files without this value, if the run has a checkpoint.
double steps_per_epoch_of(const std::optional<RunState>& state) {
  if (!state || state->step_rows <= 0) return 0;
  return std::ceil(static_cast<double>(state->images) / static_cast<double>(state->step_rows));
}

// The last `parts` components of a path.
std::string end_of(const fs::path& path, size_t parts) {
  std::vector<fs::path> names(path.begin(), path.end());
  fs::path end;
  for (size_t i = names.size() - std::min(parts, names.size()); i < names.size(); ++i) end /= names[i];
  return end.string();
}

std::string tidy(const std::string& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).string();
}

}  // namespace

bool has_run_files(const std::string& folder) {
  std::error_code none;
  return fs::exists(file_of(folder, "config.toml"), none) || fs::exists(file_of(folder, "metrics.jsonl"), none);
}

RunReader::RunReader(const std::string& folder) : metrics_("") {
  facts_.folder = folder;
  verified_ = changed_folder(file_of(folder, kVerificationFolder));
  facts_.name = fs::path(tidy(folder)).filename().string();
  if (!has_run_files(folder))
    fail(folder, " is no run folder: it holds neither config.toml nor metrics.jsonl; name the folder that --out named");
  read_facts();
  metrics_ = MetricsReader(file_of(folder, "metrics.jsonl"), steps_per_epoch_of(facts_.state));
}

void RunReader::read_facts() {
  const std::string& folder = facts_.folder;
  facts_.wrong.clear();
  facts_.state.reset();
  if (const std::string file = file_of(folder, "config.toml"); fs::exists(file))
    read_or_note(facts_, [&] { facts_.settings = toml_values(read_file(file), file); });
  if (const std::string file = file_of(folder, "timing.csv"); fs::exists(file))
    read_or_note(facts_, [&] { facts_.times = csv_table_from(read_file(file)); });
  facts_.verifications = verifications_of(folder, facts_.wrong);
  read_or_note(facts_, [&] {
    std::string doubt;
    facts_.checkpoint = newest_checkpoint(folder, doubt).value_or("");
    note_doubt(doubt);
    if (facts_.checkpoint.empty()) return;
    const std::string file = file_of(facts_.checkpoint, "state.json");
    facts_.state = RunState::from_json(read_file(file), file);
  });
}

// The page shows a doubt while it exists; the log reports it once.
void RunReader::note_doubt(const std::string& doubt) {
  if (!doubt.empty()) facts_.wrong.push_back(doubt);
  if (!doubt.empty() && doubt != doubt_) log_warn("{}", doubt);
  doubt_ = doubt;
}

bool RunReader::read() {
  const bool gone = !fs::exists(facts_.folder);
  const bool goes = gone != std::exchange(gone_, gone);
  if (gone) return goes;
  const bool running = is_locked(file_of(facts_.folder, "log.txt"));
  // The last files are written after it has ended.
  const bool ends = running != std::exchange(facts_.running, running);
  const auto changed = changed_folder(file_of(facts_.folder, kVerificationFolder));
  const bool verified = changed != std::exchange(verified_, changed);
  const bool more = metrics_.read() || ends || goes || verified;
  if (more) read_facts();
  return more;
}

RunRecord RunReader::record() const {
  RunRecord run = facts_;
  run.metrics = metrics_.metrics();
  run.changed = metrics_.changed();
  if (gone_) run.running = false, run.wrong.push_back(run.folder + " is gone; this is what it held");
  if (const int64_t lines = run.metrics.unread_lines; lines > 0)
    run.wrong.push_back(concat(file_of(run.folder, "metrics.jsonl"), ": ", lines, " line", lines == 1 ? " is" : "s are",
                               " no record of a run, and left out"));
  return run;
}

RunRecord read_run(const std::string& folder) {
  RunReader reader(folder);
  reader.read();
  RunRecord run = reader.record();
  const Metrics& metrics = run.metrics;
  const bool nothing = run.settings.empty() && run.checkpoint.empty() && run.times.rows.empty() &&
                       metrics.steps.step.empty() && metrics.starts.empty() && metrics.evaluations.empty();
  if (nothing && !run.wrong.empty()) fail("nothing of the run ", folder, " can be read: ", run.wrong.front());
  return run;
}

void tell_apart(std::vector<RunRecord>& runs) {
  for (size_t parts = 1; parts < 16; ++parts) {
    std::set<std::string> names;
    for (RunRecord& run : runs) names.insert(run.name = end_of(tidy(run.folder), parts));
    if (names.size() == runs.size()) return;
  }
}

}  // namespace owt
