#include "src/train/worker_files.h"

#include <algorithm>
#include <filesystem>

#include "src/files/checkpoint_files.h"
#include "src/net/layer_names.h"
#include "src/system/log.h"
#include "src/system/no_room.h"
#include "src/train/weights.h"

namespace owt {
namespace {

std::string file_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

bool has_states(const Param& param) { return param.role == ParamRole::kTrained; }

// The parameters without states in the file, because their layers were frozen.
std::vector<Param*> begin_anew(const std::string& file, const std::string& state, Worker& worker) {
  std::vector<Param*> begins = not_in_file(file, worker.model, worker.step.groups(), state);
  std::erase_if(begins, [](const Param* param) { return !has_states(*param); });
  if (worker.comm.rank() == 0 && !begins.empty())
    log_info("the optimizer state of {} starts at 0, because these layers were frozen in the checkpoint",
             joined(layers_with_weights(begins)));
  return begins;
}

// Takes the elements that this rank updates from some rows of a parameter, beginning with row `first`.
void take_state(Worker& worker, size_t state, Param& param, int64_t first, const Tensor& rows) {
  const Slice kept = worker.step.updated(param);
  const int64_t begin = first * param.shape().row_elements();
  const Slice taken = common_part(kept, {begin, begin + rows.elements()});
  if (taken.size() == 0) return;
  worker.optimizer.states(param, kept)[state]
      .part(taken.begin - kept.begin, {taken.size()})
      .copy_from(rows.part(taken.begin - begin, {taken.size()}));
}

void load_states(const std::string& file, Worker& worker) {
  const std::vector<std::string> names = worker.optimizer.settings().states();
  const std::vector<Param*> begins = begin_anew(file, names.front(), worker);
  const Wants wants = [&](const Param& param) {
    return has_states(param) && std::ranges::find(begins, &param) == begins.end();
  };
  for (size_t i = 0; i < names.size(); ++i)
    load_tensors(
        file, worker.model, worker.step.groups(), wants,
        [&](Param& param, int64_t first, const Tensor& rows) { take_state(worker, i, param, first, rows); }, names[i]);
}

std::vector<NamedTensors> states(Worker& worker) {
  std::vector<NamedTensors> all;
  for (const std::string& name : worker.optimizer.settings().states())
    all.push_back({name, [&worker, i = all.size()](Param& param) {
                     return has_states(param) ? worker.optimizer.states(param, worker.step.updated(param))[i]
                                              : Tensor();
                   }});
  return all;
}

}  // namespace

void load_worker(const std::string& folder, Worker& worker) {
  load_weights(file_in(folder, kWeightsFile), worker.model, worker.step.groups());
  load_states(file_in(folder, kOptimizerFile), worker);
}

void load_ema(const std::string& folder, Worker& worker) {
  WeightEma& ema = *worker.step.ema();
  load_tensors(
      file_in(folder, kEmaFile), worker.model, worker.step.groups(), [](const Param&) { return true; },
      [&](Param& param, int64_t first, const Tensor& rows) {
        const int64_t begin = first * param.shape().row_elements();
        ema.of(param).part(begin, {rows.elements()}).copy_from(rows.part(0, {rows.elements()}));
      });
}

std::map<std::string, uint64_t> save_worker(const std::string& folder, const Plan& plan, Worker& worker) {
  const Groups& groups = worker.step.groups();
  std::map<std::string, uint64_t> checksums;
  FirstNoRoom no_room;
  // All ranks save every file, even if rank 0 could not write an earlier one.
  const auto save = [&](const char* file, const std::vector<NamedTensors>& tensors, Kept kept) {
    FirstNoRoom here;
    here.unless_full(
        [&] { checksums[file] = save_tensors(file_in(folder, file), plan, worker.model, tensors, groups, kept); });
    no_room.unless_full([&] { here.rethrow(); });
  };
  save(kWeightsFile, {{"", [](Param& param) { return param.value; }}}, Kept::kWhole);
  save(kOptimizerFile, states(worker), plan.shares_update() ? Kept::kShare : Kept::kWhole);
  if (WeightEma* averages = worker.step.ema())
    save(kEmaFile, {{"", [&](Param& param) { return averages->of(param); }}}, Kept::kWhole);
  no_room.rethrow();
  return checksums;
}

}  // namespace owt
