#include "src/commands/average.h"

#include <algorithm>
#include <filesystem>

#include "layers/base/param.h"
#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"
#include "src/recipe/settings.h"
#include "src/system/check.h"
#include "src/system/files.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

void check_place(const AverageOptions& options) {
  const fs::path out = options.out;
  if (is_checkpoint(out.parent_path().string()))
    fail(options.out, " is in a checkpoint, whose files have checksums; choose another --out");
  check_output(options.out);
  if (fs::exists(out) && !options.force)
    fail(options.out, " exists already; add --force to overwrite it, or choose another --out");
}

// The folders of the last checkpoints, oldest first.
std::vector<std::string> last_checkpoints(const AverageOptions& options) {
  const std::string recipe = (fs::path(options.run_folder) / "config.toml").string();
  if (!fs::is_regular_file(recipe)) fail(options.run_folder, " is no run folder: it holds no config.toml; name a run");
  std::vector<std::string> folders = checkpoints_to_latest(options.run_folder);
  const int64_t kept = read_settings(recipe).run.keep_checkpoints;  // beside the best one, which may be far off
  constexpr int64_t kFewest = 2, kMost = 5;                         // if --last is not given
  const int64_t found = std::ssize(folders),
                last = options.last > 0 ? options.last : std::clamp(std::min(found, kept), kFewest, kMost);
  if (found < last) {
    const std::string longer = kept < last
                                   ? concat("with run.keep_checkpoints = ", last, " or more (it was ", kept, ")")
                                   : "for longer, or with more checkpoints (run.checkpoint_every_steps)";
    fail(options.run_folder, " has ", found, found == 1 ? " checkpoint" : " checkpoints",
         options.last > 0 ? ", --last wants " : ", a mean wants ", last,
         found > 1 ? concat("; ask for --last ", found, " at most, or") : ";", " train ", longer);
  }
  folders.erase(folders.begin(), folders.end() - last);
  return folders;
}

struct Checkpoint {
  explicit Checkpoint(const std::string& folder)
      : step(load_checkpoint_state(folder).step),
        path((fs::path(folder) / "weights.safetensors").string()),
        weights(path) {}

  int64_t step;
  std::string path;
  SafetensorsReader weights;
};

// If the run was resumed with another model, its checkpoints have different tensors.
void check_same_tensors(const Checkpoint& a, const Checkpoint& b) {
  const auto cure = "; the model has changed during the run; average only checkpoints of the same model";
  for (const auto& entry : a.weights.entries()) {
    const auto* other = b.weights.find(entry.name);
    if (!other) fail(b.path, " has no tensor '", entry.name, "', which ", a.path, " has", cure);
    if (other->shape != entry.shape)
      fail(b.path, ": tensor '", entry.name, "' is ", other->shape, ", in ", a.path, " it is ", entry.shape, cure);
  }
}

// The mean of some rows of a tensor.
std::vector<float> mean_of(std::vector<Checkpoint>& checkpoints, const std::string& name, const Slice& rows) {
  std::vector<double> sums;
  for (Checkpoint& checkpoint : checkpoints) {
    const Tensor values = checkpoint.weights.read_rows(name, rows);
    sums.resize(static_cast<size_t>(values.elements()));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(values.data()[i]);
  }
  std::vector<float> means;
  for (const double sum : sums) means.push_back(static_cast<float>(sum / static_cast<double>(checkpoints.size())));
  return means;
}

int64_t write_mean(std::vector<Checkpoint>& checkpoints, const std::string& path) {
  std::vector<SafetensorsWriter::NamedShape> entries;
  for (const auto& entry : checkpoints.front().weights.entries()) entries.push_back({entry.name, entry.shape});
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  int64_t values = 0;
  for (const auto& [name, shape] : entries) {
    values += shape.elements();
    for (const Slice& rows : pieces_of(shape, {0, shape.rows()})) writer.write(name, mean_of(checkpoints, name, rows));
  }
  writer.finish();
  return values;
}

}  // namespace

AverageOutcome average_checkpoints(const AverageOptions& options) {
  OWT_CHECK(options.last >= 0);
  const std::vector<std::string> folders = last_checkpoints(options);
  check_place(options);
  std::vector<Checkpoint> checkpoints;
  for (const std::string& folder : folders) checkpoints.emplace_back(folder);
  AverageOutcome outcome;
  for (const Checkpoint& checkpoint : checkpoints) {
    outcome.steps.push_back(checkpoint.step);
    check_same_tensors(checkpoints.front(), checkpoint);
    check_same_tensors(checkpoint, checkpoints.front());
  }
  const std::string beside = options.out + ".tmp";
  outcome.values = write_mean(checkpoints, beside);
  std::error_code error;
  fs::rename(beside, options.out, error);
  if (error) fail("cannot rename ", beside, " to ", options.out, ": ", error.message());
  sync_folder(fs::absolute(options.out).parent_path().string());
  return outcome;
}

}  // namespace owt
