#include "src/files/checkpoint_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/no_room.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kTemporary = ".tmp", kReplaced = ".old";
constexpr const char *kState = "state.json", *kLatest = "latest", *kFolder = "checkpoints";

std::string name_of_step(int64_t step) { return format("{}{:08}", kPrefix, step); }

// The step in the folder name of a complete checkpoint; nothing for other names.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  if (name.ends_with(kReplaced)) name.remove_suffix(kReplaced.size());
  int64_t step = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || stop != name.data() + name.size() || step < 0) return {};
  return step;
}

std::string checkpoints_folder(const std::string& run_folder) { return (fs::path(run_folder) / kFolder).string(); }

[[noreturn]] void fail_to_make(const std::string& folder, const std::error_code& error) {
  const std::string what = concat("cannot make folder ", folder, ": ", error.message(), "; choose another --out");
  if (says_no_room(error.value())) throw NoRoom(what);
  throw Error(what);
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail_to_write(to.string(), error.value());
}

void remove_or_fail(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail("cannot remove ", path.string(), ": ", error.message());
}

// Renames to a .tmp name first, so that after a crash nothing half removed looks complete.
void remove_checkpoint(const fs::path& folder) {
  const fs::path doomed = folder.string() + ".gone" + std::string(kTemporary);
  rename_or_fail(folder, doomed);
  remove_or_fail(doomed);
}

struct Found {
  int64_t step;
  std::string name;
};

// Oldest first; for equal steps the replaced one first.
std::vector<Found> complete_checkpoints(const std::string& folder) {
  std::vector<Found> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto step = step_of(name);
    if (step && entry.is_directory(error)) found.push_back({*step, name});
  }
  // "step-1.old" must come before "step-1".
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.step != b.step ? a.step < b.step : a.name.size() > b.name.size();
  });
  return found;
}

void clear_leftovers(const std::string& folder) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().ends_with(kTemporary)) leftovers.push_back(entry.path());
  for (const fs::path& path : leftovers) remove_or_fail(path);
}

// The checkpoint that the file `latest` names. If a crash has interrupted its replacement, the other one of the same
// step.
struct Latest {
  std::optional<Found> found;
  std::string wrong;  // the reason if it names none; empty if there is no such file
};

Latest read_latest(const fs::path& folder) {
  const fs::path path = folder / kLatest;
  if (!fs::exists(path)) return {};
  if (!fs::is_regular_file(path)) return {{}, "it is no file"};
  std::string name = read_file(path.string());
  while (!name.empty() && name.back() == '\n') name.pop_back();
  if (name.empty()) return {{}, "it is empty"};
  const auto step = step_of(name);
  if (!step) return {{}, "it names no checkpoint"};
  Latest latest;
  for (const Found& found : complete_checkpoints(folder.string()))
    if (step == found.step && !(latest.found && latest.found->name == name)) latest.found = found;
  if (!latest.found) latest.wrong = concat("it names ", name, ", which is not there");
  return latest;
}

std::optional<Found> latest_checkpoint(const fs::path& folder) { return read_latest(folder).found; }

// The latest checkpoint. If it is unknown, the one of the highest step; `doubt` receives the reason.
std::optional<Found> newest_of(const fs::path& folder, std::string& doubt) {
  const Latest latest = read_latest(folder);
  if (latest.found) return latest.found;
  const std::vector<Found> all = complete_checkpoints(folder.string());
  if (all.empty()) return {};
  // After a crash before the first `latest` there is a single checkpoint, so the choice is certain.
  if (!latest.wrong.empty() || all.size() > 1)
    doubt = concat((folder / kLatest).string(), " is ",
                   latest.wrong.empty() ? "missing" : concat("damaged (", latest.wrong, ")"), ": ", all.back().name,
                   ", the checkpoint of the highest step, is used");
  return all.back();
}

std::optional<Found> newest_of(const fs::path& folder) {
  std::string doubt;
  const std::optional<Found> newest = newest_of(folder, doubt);
  if (!doubt.empty()) log_warn("{}", doubt);
  return newest;
}

// Advice about a damaged checkpoint, with the other ones.
std::string other_checkpoints(const fs::path& folder) {
  std::string names;
  for (const Found& found : complete_checkpoints(folder.parent_path().string()))
    if (found.name != folder.filename())
      names += (names.empty() ? "" : ", ") + (folder.parent_path() / found.name).string();
  return names.empty() ? "there is no other checkpoint of the run; train from the start"
                       : "take another checkpoint: " + names;
}

// Throws Error with the damage.
RunState checked_state(const fs::path& folder) {
  const std::string path = (folder / kState).string();
  RunState state = RunState::from_json(read_file(path), path);
  for (const auto& [file, noted] : state.checksums) {
    const std::string of = (folder / file).string();
    if (!fs::exists(of)) fail(of, " is missing");
    const uint64_t found = file_checksum(of);
    if (found != noted) fail(of, " is damaged: its checksum is ", hex(found), ", state.json says ", hex(noted));
  }
  return state;
}

// Nothing if it is damaged, with a warning.
std::optional<RunState> state_if_whole(const fs::path& folder) {
  try {
    return checked_state(folder);
  } catch (const Error& e) {
    log_warn("the checkpoint {} is passed over: {}", folder.string(), e.what());
    return {};
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(const std::string& run_folder, int keep)
    : folder_(checkpoints_folder(run_folder)), keep_(keep) {
  OWT_CHECK(keep >= 1, "keep is ", keep);
}

std::string CheckpointWriter::begin(int64_t step) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) fail_to_make(folder_, error);
  clear_leftovers(folder_);
  const fs::path beside = fs::path(folder_) / (name_of_step(step) + std::string(kTemporary));
  fs::create_directory(beside, error);
  if (error) fail_to_make(beside.string(), error);
  begun_ = step;
  return beside.string();
}

void CheckpointWriter::give_up(int64_t step, const std::string& why, bool run_continues) {
  clear_leftovers(folder_);
  begun_ = -1;
  if (run_continues)
    log_warn("no checkpoint of step {} was written: {}; training continues, and the next checkpoint is tried", step,
             why);
}

std::string CheckpointWriter::commit(const RunState& state) {
  OWT_CHECK_EQ(state.step, begun_, "commit() ends what begin() began");
  const std::string name = name_of_step(state.step);
  const fs::path complete = fs::path(folder_) / name;
  const fs::path beside = complete.string() + std::string(kTemporary);
  for (const auto& [file, sum] : state.checksums) OWT_CHECK(fs::exists(beside / file), "no file ", file);
  write_file_atomically((beside / kState).string(), state.to_json());
  // A folder cannot be renamed onto a non-empty folder. The old one can still be loaded under its second name.
  const fs::path replaced = complete.string() + std::string(kReplaced);
  if (fs::exists(complete)) {
    if (fs::exists(replaced)) remove_checkpoint(replaced);
    rename_or_fail(complete, replaced);
  }
  rename_or_fail(beside, complete);
  sync_folder(folder_);
  const auto before = latest_checkpoint(folder_);
  set_latest(name);
  begun_ = -1;
  if (before) remove_left_branch(before->step, state.step);
  prune(state);
  return complete.string();
}

std::string CheckpointWriter::note_evaluation(const RunState& state) const {
  try {
    write_file_atomically((fs::path(folder_) / name_of_step(state.step) / kState).string(), state.to_json());
    return "";
  } catch (const NoRoom& e) {
    log_warn("this evaluation could not be added to the checkpoint of step {}: {}", state.step, e.what());
    return e.what();
  }
}

void CheckpointWriter::set_latest(const std::string& name) const {
  write_file_atomically((fs::path(folder_) / kLatest).string(), name + "\n");
}

void CheckpointWriter::resume_from(const std::string& checkpoint_folder) const {
  const std::string name = fs::path(checkpoint_folder).filename().string();
  const auto step = step_of(name);
  OWT_CHECK(step && fs::is_directory(fs::path(folder_) / name), checkpoint_folder, " is no checkpoint of ", folder_);
  set_latest(name);
  for (const Found& later : complete_checkpoints(folder_))
    if (later.step > *step)
      log_info("{} is newer than step {}; it is ignored, and removed when training passes its step", later.name, *step);
}

// This run has written no checkpoint between these steps.
void CheckpointWriter::remove_left_branch(int64_t after, int64_t before) const {
  for (const Found& left : complete_checkpoints(folder_)) {
    if (left.step <= after || left.step >= before) continue;
    log_info("removing {}, which is from before the resume: training has passed its step", left.name);
    remove_checkpoint(fs::path(folder_) / left.name);
  }
}

// Checkpoints of later steps belong to an abandoned branch and stay.
void CheckpointWriter::prune(const RunState& state) const {
  std::vector<Found> found = complete_checkpoints(folder_);
  std::reverse(found.begin(), found.end());
  int kept = 0;
  for (const Found& checkpoint : found) {
    const fs::path folder = fs::path(folder_) / checkpoint.name;
    const bool replaced =
        checkpoint.name.ends_with(kReplaced) && fs::exists(fs::path(folder_) / name_of_step(checkpoint.step));
    if (replaced) {
      remove_checkpoint(folder);
    } else if (checkpoint.step <= state.step && ++kept > keep_ && checkpoint.step != state.best_step) {
      remove_checkpoint(folder);
    }
  }
}

bool is_checkpoint(const std::string& folder) { return fs::is_regular_file(fs::path(folder) / kState); }

std::vector<std::string> list_checkpoints(const std::string& run_folder) {
  const std::string folder = checkpoints_folder(run_folder);
  std::vector<std::string> folders;
  for (const Found& found : complete_checkpoints(folder)) folders.push_back((fs::path(folder) / found.name).string());
  return folders;
}

std::vector<std::string> checkpoints_to_latest(const std::string& run_folder) {
  const fs::path folder = checkpoints_folder(run_folder);
  const std::optional<Found> latest = newest_of(folder);
  std::vector<Found> all = complete_checkpoints(folder.string());
  std::vector<std::string> folders;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool left = latest && all[i].step > latest->step;
    const bool replaced = i + 1 < all.size() && all[i + 1].step == all[i].step;
    if (!left && !replaced) folders.push_back((folder / all[i].name).string());
  }
  return folders;
}

std::optional<std::string> newest_checkpoint(const std::string& run_folder) {
  std::string doubt;
  const auto newest = newest_checkpoint(run_folder, doubt);
  if (!doubt.empty()) log_warn("{}", doubt);
  return newest;
}

std::optional<std::string> newest_checkpoint(const std::string& run_folder, std::string& doubt) {
  const fs::path folder = checkpoints_folder(run_folder);
  const auto newest = newest_of(folder, doubt);
  if (!newest) return {};
  return (folder / newest->name).string();
}

std::optional<WholeCheckpoint> newest_whole_checkpoint(const std::string& run_folder) {
  const auto newest = newest_checkpoint(run_folder);
  if (!newest) return {};
  std::vector<std::string> all = list_checkpoints(run_folder);
  all.erase(std::ranges::find(all, *newest), all.end());  // includes abandoned branches
  all.push_back(*newest);
  for (auto folder = all.rbegin(); folder != all.rend(); ++folder)
    if (auto state = state_if_whole(*folder)) return WholeCheckpoint{*folder, std::move(*state)};
  fail("none of the checkpoints of ", run_folder, " is whole; restore one of them, or train anew with another --out");
}

std::optional<std::string> best_checkpoint(const std::string& run_folder) {
  const std::optional<WholeCheckpoint> newest = newest_whole_checkpoint(run_folder);
  if (!newest) return {};
  const RunState& state = newest->state;
  const fs::path best = fs::path(checkpoints_folder(run_folder)) / name_of_step(state.best_step);
  if (state.best_step < 0 || best == newest->folder || !fs::is_directory(best)) return newest->folder;
  const std::optional<RunState> then = state_if_whole(best);
  const bool same = then && then->best_step == state.best_step && then->best_top1 == state.best_top1;
  return same ? best.string() : newest->folder;
}

std::string trained_weights_of(const std::string& checkpoint_folder) {
  const fs::path folder = checkpoint_folder;
  return (folder / (fs::is_regular_file(folder / kEmaFile) ? kEmaFile : kWeightsFile)).string();
}

std::optional<std::string> run_folder_of_checkpoint(const std::string& checkpoint_folder) {
  std::error_code error;
  const fs::path named = (fs::absolute(checkpoint_folder, error) / "").lexically_normal().parent_path();
  // The path as given, since RUN/checkpoints may be a link to another disk; else its target, if it is a link itself.
  for (const fs::path& folder : {named, fs::canonical(checkpoint_folder, error)}) {
    const fs::path all = folder.parent_path();
    if (all.filename() == kFolder && fs::equivalent(folder, checkpoint_folder, error))
      return all.parent_path().string();
  }
  return {};
}

RunState load_checkpoint_state(const std::string& checkpoint_folder) {
  fs::path folder = fs::path(checkpoint_folder).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();  // the path had a slash at its end
  try {
    return checked_state(folder);
  } catch (const Error& e) {
    fail(e.what(), "; ", other_checkpoints(folder));
  }
}

}  // namespace owt
