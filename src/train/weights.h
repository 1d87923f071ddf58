// Weights between files (whole tensors, PyTorch's names and order) and ranks (their parts). Independent of K.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/parallel/groups.h"
#include "src/parallel/rank_model.h"
#include "src/train/files/safetensors.h"

namespace owt {

// The tensor of a parameter that is meant: its value, a state of the optimizer, ... with the parameter's shape();
// undefined: left out.
using TensorOf = std::function<Tensor(Param&)>;

// Collective: parameters are gathered in pieces and rank 0 writes the file. Returns its checksum on rank 0, which
// throws NoRoom where the disk is full, after all ranks have brought all of their pieces.
// kShare: every rank brings the elements of the tensor that it updates (sharded_update.h), in one dimension.
enum class Kept { kWhole, kShare };
uint64_t save_tensors(const std::string& path, const Plan& plan, RankModel& model, const TensorOf& tensor_of,
                      const Groups& groups, Kept kept = Kept::kWhole);
// The same of several tensors of each parameter; the file has them under its name and what each adds to that.
struct NamedTensors {
  std::string suffix;
  TensorOf tensor_of;
};
uint64_t save_tensors(const std::string& path, const Plan& plan, RankModel& model,
                      const std::vector<NamedTensors>& tensors, const Groups& groups, Kept kept);

// Collective: rank 0 reads the file in pieces, and every rank takes its parts of them: take(parameter, first, rows)
// gets some of the rows that the rank keeps, from number `first` of these on, on the host and in memory order, until it
// has had all, for every parameter that wants() some. Throws Error for a missing tensor (with the nearest name) and for
// one of another shape. suffix: as of NamedTensors. Tensors nobody asks for come back on rank 0, for a warning.
using Wants = std::function<bool(const Param&)>;
using Take = std::function<void(Param&, int64_t first, const Tensor& rows)>;
std::vector<std::string> load_tensors(const std::string& path, RankModel& model, const Groups& groups,
                                      const Wants& wants, const Take& take, const std::string& suffix = "");

// The whole tensor of a parameter, of its file_shape. Throws Error as load_tensors() does.
Tensor read_parameter(SafetensorsReader& file, const std::string& path, const Param& param);
// Tensors of the file that none of the names takes, for a warning.
std::vector<std::string> unused_tensors(const SafetensorsReader& file, const std::set<std::string>& taken);

// Collective: the parameters of which the file has no tensor in their shape; rank 0 looks, for all. suffix: as of
// NamedTensors.
std::vector<Param*> not_in_file(const std::string& path, const RankModel& model, const Groups& groups,
                                const std::string& suffix = "");

// load_tensors() of the values, into memory on the CPU where there is none yet. Any safetensors file with the layers'
// names will do.
std::vector<std::string> load_weights(const std::string& path, RankModel& model, const Groups& groups);

// A line to the log for each of these tensors of a weights file.
void warn_of_unused(const std::vector<std::string>& unused, const std::string& path);

}  // namespace owt
