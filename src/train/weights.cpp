#include "src/train/weights.h"

#include <optional>

#include "src/comm/on_host.h"
#include "src/net/hint.h"
#include "src/parallel/param_gather.h"
#include "src/plan/plan_updates.h"
#include "src/system/log.h"
#include "src/system/no_room.h"

namespace owt {
namespace {

// A selected tensor: its name in the file, its parameter, and the parameter's place in the plan.
struct Meant {
  std::string name;
  size_t layer, number;
  Param& param;
  Tensor tensor;
};

// Visits in layer order.
template <class Visit>
void for_each_tensor(const Plan& plan, RankModel& model, const std::vector<NamedTensors>& tensors, const Visit& visit) {
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const std::vector<Param*> params = model.layer(static_cast<int64_t>(i)).params();
    for (size_t p = 0; p < params.size(); ++p)
      for (const auto& [suffix, tensor_of] : tensors)
        if (const Tensor tensor = tensor_of(*params[p]); tensor.defined())
          visit(Meant{params[p]->name + suffix, i, p, *params[p], tensor});
  }
}

void check_shape(const SafetensorsReader& file, const std::string& path, const Param& param,
                 const std::string& suffix = "") {
  const SafetensorsReader::Entry* entry = file.find(param.name + suffix);
  if (entry && entry->unreadable.empty() && entry->shape != param.file_shape)
    fail(path, ": tensor '", param.name, suffix, "' is ", entry->shape, ", the model wants ", param.file_shape,
         "; it belongs to another model");
}

// Broadcasts pieces that rank 0 reads to the hosts of all ranks.
class Broadcasts {
 public:
  // most: the elements of the largest piece.
  Broadcasts(int64_t most, const Groups& groups)
      : comm_(groups.world()), there_(on_all_hosts(comm_, [&] {
          return comm_.ranks() == 1 ? Tensor() : Tensor({most}, DType::kF32, groups.device());
        })) {}

  Tensor operator()(const Tensor& from_rank_0, const Shape& shape) {
    if (comm_.ranks() == 1) return from_rank_0;
    Tensor piece = there_.part(0, shape);
    if (comm_.rank() == 0) piece.copy_from(from_rank_0);
    comm_.broadcast(piece, piece, 0, {}).wait();
    return piece.to(Device::kCpu);
  }

  void finish() {
    on_all_hosts(comm_, [&] { there_ = Tensor(); });
  }

 private:
  Communicator& comm_;
  Tensor there_;
};

int64_t most_in_a_piece(const std::vector<Param*>& params) {
  int64_t most = 0;
  for (const Param* param : params) most = std::max(most, largest_piece(param->full_shape));
  return most;
}

void take_rows(Param& param, const Slice& rows, const Tensor& in_file_order, const Take& take) {
  const Slice mine = common_part(rows, param.part);
  if (mine.size() == 0) return;
  const int64_t first = (mine.begin - rows.begin) * param.full_shape.row_elements();
  take(param, mine.begin - param.part.begin, param.kept_of(mine.size(), in_file_order.data() + first));
}

}  // namespace

uint64_t save_tensors(const std::string& path, const Plan& plan, RankModel& model, const TensorOf& tensor_of,
                      const Groups& groups, Kept kept) {
  return save_tensors(path, plan, model, std::vector<NamedTensors>{{"", tensor_of}}, groups, kept);
}

uint64_t save_tensors(const std::string& path, const Plan& plan, RankModel& model,
                      const std::vector<NamedTensors>& tensors, const Groups& groups, Kept kept) {
  const bool shares = kept == Kept::kShare;  // shares of tensors that every model group has whole
  if (!shares && groups.replicas().rank() != 0) return 0;
  Communicator& comm = shares ? groups.replicas() : groups.model();
  std::optional<SafetensorsWriter> writer;
  FirstNoRoom no_room;
  if (comm.rank() == 0) {
    std::vector<SafetensorsWriter::NamedShape> entries;
    for_each_tensor(plan, model, tensors, [&](const Meant& one) {
      entries.push_back({one.name, one.param.file_shape});
    });
    no_room.unless_full([&] { writer.emplace(path, entries, std::map<std::string, std::string>{{"format", "pt"}}); });
  }
  for_each_tensor(plan, model, tensors, [&](const Meant& one) {
    const Spread spread = shares ? Spread{updated_parts(plan, static_cast<int64_t>(one.layer), one.number), {}}
                                 : spread_of(plan.layers[one.layer], one.param);
    gather_parameter(spread, one.param, one.tensor, comm,
                     [&](std::span<const float> rows) { no_room.unless_full([&] { writer->write(one.name, rows); }); });
  });
  no_room.rethrow();
  return writer ? writer->finish() : 0;
}

void read_parameter(SafetensorsReader& file, const std::string& path, const Param& param,
                    const std::function<void(const Tensor& rows)>& visit) {
  check_shape(file, path, param);
  for (const Slice& rows : pieces_of(param.file_shape, {0, param.file_shape.rows()}))
    visit(file.read_rows(param.name, rows));
}

std::vector<std::string> unused_tensors(const SafetensorsReader& file, const std::set<std::string>& taken) {
  std::set<std::string> used;
  for (const std::string& name : taken)
    if (const auto* entry = file.find(name)) used.insert(entry->name);
  std::vector<std::string> unused;
  for (const auto& entry : file.entries())
    // PyTorch's batch norm counts batches, and a hint is for training only.
    if (!used.contains(entry.name) && !entry.name.ends_with(".num_batches_tracked") && !is_of_hint(entry.name))
      unused.push_back(entry.name);
  return unused;
}

std::vector<std::string> load_tensors(const std::string& path, RankModel& model, const Groups& groups,
                                      const Wants& wants, const Take& take, const std::string& suffix) {
  std::optional<SafetensorsReader> file;
  if (groups.world().rank() == 0) file.emplace(path);
  std::set<std::string> wanted;
  std::string in_front;
  Broadcasts broadcast(most_in_a_piece(model.params()), groups);
  for (Param* param : model.params()) {
    if (!wants(*param)) continue;
    const SafetensorsReader::Entry* entry = file ? file->find(param->name + suffix) : nullptr;
    wanted.insert(param->name + suffix);
    if (entry && entry->name != param->name + suffix) in_front = entry->name.substr(0, entry->name.rfind(param->name));
    if (file) check_shape(*file, path, *param, suffix);
    for (const Slice& rows : pieces_of(param->full_shape, {0, param->full_shape.rows()})) {
      const Tensor piece = file ? file->read_rows(param->name + suffix, rows) : Tensor();
      take_rows(*param, rows, broadcast(piece, {rows.size(), param->full_shape.row_elements()}), take);
    }
  }
  broadcast.finish();
  if (!in_front.empty()) log_info("{}: ignoring the prefix '{}' of its tensor names", path, in_front);
  return file ? unused_tensors(*file, wanted) : std::vector<std::string>{};
}

std::vector<Param*> not_in_file(const std::string& path, const RankModel& model, const Groups& groups,
                                const std::string& suffix) {
  std::vector<Param*> params = model.params();
  std::vector<double> missing(params.size(), 0);
  if (groups.world().rank() == 0) {
    const SafetensorsReader file(path);
    for (size_t i = 0; i < params.size(); ++i) {
      const auto* entry = file.find(params[i]->name + suffix);
      missing[i] = entry && entry->shape == params[i]->file_shape ? 0 : 1;
    }
  }
  missing = on_host::sum(groups.world(), missing, groups.device());
  std::vector<Param*> found;
  for (size_t i = 0; i < params.size(); ++i)
    if (missing[i] > 0) found.push_back(params[i]);
  return found;
}

std::vector<std::string> load_weights(const std::string& path, RankModel& model, const Groups& groups) {
  for (Param* param : model.params())
    if (!param->value.defined()) param->allocate();
  return load_tensors(
      path, model, groups, [](const Param&) { return true; },
      [](Param& param, int64_t first, const Tensor& rows) { param.set_rows(first, rows); });
}

void warn_of_unused(const std::vector<std::string>& unused, const std::string& path) {
  for (const std::string& name : unused) log_warn("{}: the model does not use '{}'", path, name);
}

}  // namespace owt
