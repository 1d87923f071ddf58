// Converts weights between files (whole tensors, PyTorch's names and order) and ranks (their parts). Independent of K.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/files/safetensors.h"
#include "src/plan/groups.h"
#include "src/plan/rank_model.h"

namespace owt {

// Selects a tensor of a parameter in the parameter's shape(): its value, an optimizer state, ... Undefined: skipped.
using TensorOf = std::function<Tensor(Param&)>;

// Collective: parameters are gathered in pieces, and rank 0 writes the file. Returns its checksum on rank 0. If the
// disk is full, rank 0 throws NoRoom after all ranks have sent their pieces. kShare: every rank has the elements of the
// tensor that it updates (sharded_update.h), in one dimension.
enum class Kept { kWhole, kShare };
uint64_t save_tensors(const std::string& path, const Plan& plan, RankModel& model, const TensorOf& tensor_of,
                      const Groups& groups, Kept kept = Kept::kWhole);
// Saves several tensors per parameter; a tensor's name in the file is the parameter's name and a suffix.
struct NamedTensors {
  std::string suffix;
  TensorOf tensor_of;
};
uint64_t save_tensors(const std::string& path, const Plan& plan, RankModel& model,
                      const std::vector<NamedTensors>& tensors, const Groups& groups, Kept kept);

// Collective: rank 0 reads the file in pieces, and every rank takes its parts. For every parameter that wants()
// selects, take(parameter, first, rows) is called until the rank has all of its rows. `rows` are some of them, from
// number `first` on, on the host in memory order. Throws Error for a missing tensor (with the nearest name), and for a
// wrong shape. suffix: see NamedTensors. Returns the unused tensors of the file on rank 0, for a warning.
using Wants = std::function<bool(const Param&)>;
using Take = std::function<void(Param&, int64_t first, const Tensor& rows)>;
std::vector<std::string> load_tensors(const std::string& path, RankModel& model, const Groups& groups,
                                      const Wants& wants, const Take& take, const std::string& suffix = "");

// Calls visit(rows) for all rows of a parameter's tensor, in file order and in pieces. Throws Error as load_tensors()
// does.
void read_parameter(SafetensorsReader& file, const std::string& path, const Param& param,
                    const std::function<void(const Tensor& rows)>& visit);
// The tensors of the file that are not in `taken`, for a warning.
std::vector<std::string> unused_tensors(const SafetensorsReader& file, const std::set<std::string>& taken);

// Collective: the parameters without a tensor of their shape in the file. Rank 0 reads the file for all. suffix: see
// NamedTensors.
std::vector<Param*> not_in_file(const std::string& path, const RankModel& model, const Groups& groups,
                                const std::string& suffix = "");

// Loads the values with load_tensors(), into CPU memory if parameters have none yet. Accepts any safetensors file with
// the layers' names.
std::vector<std::string> load_weights(const std::string& path, RankModel& model, const Groups& groups);

// Logs a warning for each of these tensors of a weights file.
void warn_of_unused(const std::vector<std::string>& unused, const std::string& path);

}  // namespace owt
