#include "src/train/weights.h"

#include <optional>

#include "src/core/log.h"
#include "src/parallel/param_gather.h"
#include "src/parallel/sharded_update.h"

namespace owt {
namespace {

// Calls visit(number of the layer in the plan, number of the parameter in the layer, parameter, tensor) for every tensor
// that is meant, in layer order.
template <class Visit>
void for_each_tensor(const Plan& plan, RankModel& model, const TensorOf& tensor_of, const Visit& visit) {
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const std::vector<Param*> params = model.layer(static_cast<int64_t>(i)).params();
    for (size_t p = 0; p < params.size(); ++p)
      if (const Tensor tensor = tensor_of(*params[p]); tensor.defined()) visit(i, p, *params[p], tensor);
  }
}

// Rank 0's tensor, on the host of every rank.
Tensor spread(const Tensor& from_rank_0, const Shape& shape, const Groups& groups) {
  Communicator& comm = groups.world();
  if (comm.ranks() == 1) return from_rank_0;
  Tensor here;
  {
    Tensor there(shape, DType::kF32, groups.device());
    comm.broadcast(comm.rank() == 0 ? from_rank_0.to(groups.device()) : Tensor(), there, 0, {}).wait();
    here = there.to(Device::kCpu);
  }
  comm.meet();
  return here;
}

}  // namespace

uint64_t save_tensors(const std::string& path, const Plan& plan, RankModel& model, const TensorOf& tensor_of,
                      const Groups& groups, Kept kept) {
  const bool first_replica = groups.replicas().rank() == 0;  // it has it all, or gets it
  if (!first_replica && kept == Kept::kWhole) return 0;
  Communicator& comm = groups.model();
  std::optional<SafetensorsWriter> writer;
  if (first_replica && comm.rank() == 0) {
    std::vector<SafetensorsWriter::Entry> entries;
    for_each_tensor(plan, model, tensor_of, [&](size_t, size_t, const Param& param, const Tensor&) {
      entries.push_back({param.name, param.file_shape});
    });
    writer.emplace(path, entries, std::map<std::string, std::string>{{"format", "pt"}});
  }
  for_each_tensor(plan, model, tensor_of, [&](size_t layer, size_t number, const Param& param, Tensor tensor) {
    if (kept == Kept::kShare) {
      const std::vector<Slice> parts = updated_parts(plan, static_cast<int64_t>(layer), number);
      tensor = gather_shares(parts, param, tensor, groups.replicas());
    }
    if (!first_replica) return;
    gather_parameter(plan.layers[layer], param, tensor, comm,
                     [&](std::span<const float> rows) { writer->write(param.name, rows); });
  });
  return writer ? writer->finish() : 0;
}

Tensor read_parameter(SafetensorsReader& file, const std::string& path, const Param& param) {
  const SafetensorsReader::Entry* entry = file.find(param.name);
  if (entry && entry->shape != param.file_shape)
    fail(path, ": tensor '", param.name, "' is ", entry->shape, ", the model wants ", param.file_shape,
         "; it belongs to another model");
  return file.read(param.name);
}

std::vector<std::string> unused_tensors(const SafetensorsReader& file, const std::set<std::string>& taken) {
  std::vector<std::string> unused;
  for (const auto& entry : file.entries())
    // PyTorch's batch norm counts batches; nothing here needs the count.
    if (!taken.contains(entry.name) && !entry.name.ends_with(".num_batches_tracked")) unused.push_back(entry.name);
  return unused;
}

std::vector<std::string> load_tensors(const std::string& path, RankModel& model, const Groups& groups,
                                      const Wants& wants, const Take& take) {
  std::optional<SafetensorsReader> file;
  if (groups.world().rank() == 0) file.emplace(path);
  std::set<std::string> wanted;
  for (Param* param : model.params()) {
    if (!wants(*param)) continue;
    wanted.insert(param->name);
    const Tensor whole = spread(file ? read_parameter(*file, path, *param).reshaped(param->full_shape) : Tensor(),
                                param->full_shape, groups);
    take(*param, param->kept_of(whole.rows(param->part.begin, param->part.end).data()));
  }
  return file ? unused_tensors(*file, wanted) : std::vector<std::string>{};
}

std::vector<std::string> load_weights(const std::string& path, RankModel& model, const Groups& groups) {
  return load_tensors(
      path, model, groups, [](const Param&) { return true; },
      [](Param& param, const Tensor& value) {
        if (!param.value.defined()) param.allocate();
        param.set_value(value);
      });
}

void warn_of_unused(const std::vector<std::string>& unused, const std::string& path) {
  for (const std::string& name : unused) log_warn("{}: nothing in the model takes '{}'", path, name);
}

}  // namespace owt
