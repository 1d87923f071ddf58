#include "src/train/weights.h"

#include <optional>
#include <set>

#include "src/train/safetensors.h"

namespace owt {
namespace {

struct Item {
  Param* param;
  Tensor tensor;
  bool split;  // every rank holds a part
};

std::vector<Item> items_of(const Plan& plan, RankModel& model, const TensorOf& tensor_of) {
  std::vector<Item> items;
  for (size_t i = 0; i < plan.layers.size(); ++i)
    for (Param& param : model.layer(static_cast<int64_t>(i)).params())
      if (Tensor tensor = tensor_of(param); tensor.defined())
        items.push_back({&param, tensor, plan.layers[i].layout == Layout::kFeature});
  return items;
}

std::span<const float> rows_of(const Tensor& tensor, int64_t first, int64_t rows) {
  const int64_t each = tensor.shape().row_elements();
  return {tensor.data() + first * each, static_cast<size_t>(rows * each)};
}

}  // namespace

uint64_t save_tensors(const std::string& path, const Plan& plan, RankModel& model, const TensorOf& tensor_of,
                      Communicator& comm) {
  const std::vector<Item> items = items_of(plan, model, tensor_of);
  std::optional<SafetensorsWriter> writer;
  if (comm.rank() == 0) {
    std::vector<SafetensorsWriter::Entry> entries;
    for (const Item& item : items) entries.push_back({item.param->name, item.param->file_shape});
    writer.emplace(path, entries, std::map<std::string, std::string>{{"format", "pt"}});
  }
  for (const Item& item : items) {
    const Param& param = *item.param;
    if (!item.split && comm.rank() != 0) continue;
    const int64_t all_rows = param.full_shape.rows();
    const int64_t most = item.split ? split(all_rows, comm.ranks(), 0).size() : all_rows;
    Tensor mine(param.full_shape.with_rows(most));
    mine.zero();
    param.to_file_order(item.tensor.data(), mine.data());
    if (!item.split) {
      writer->write(param.name, rows_of(mine, 0, all_rows));
      continue;
    }
    Tensor all(param.full_shape.with_rows(most * comm.ranks()));
    comm.all_gather(mine, all, {}).wait();
    if (!writer) continue;
    for (int r = 0; r < comm.ranks(); ++r)
      writer->write(param.name, rows_of(all, r * most, split(all_rows, comm.ranks(), r).size()));
  }
  return writer ? writer->finish() : 0;
}

std::vector<std::string> load_tensors(const std::string& path, RankModel& model, const TensorOf& tensor_of) {
  SafetensorsReader file(path);
  std::set<std::string> wanted;
  for (Param* param : model.params()) {
    Tensor target = tensor_of(*param);
    if (!target.defined()) continue;
    wanted.insert(param->name);
    const SafetensorsReader::Entry* entry = file.find(param->name);
    if (entry && entry->shape != param->file_shape)
      fail(path, ": tensor '", param->name, "' is ", entry->shape, ", the model wants ", param->file_shape,
           "; it belongs to another model");
    const Tensor whole = file.read(param->name).reshaped(param->full_shape);
    const Tensor part = whole.rows(param->part.begin, param->part.end);
    param->from_file_order(part.data(), target.data());
  }
  std::vector<std::string> unused;
  for (const auto& entry : file.entries())
    // PyTorch's batch norm counts batches; nothing here needs the count.
    if (!wanted.contains(entry.name) && !entry.name.ends_with(".num_batches_tracked")) unused.push_back(entry.name);
  return unused;
}

std::vector<std::string> load_weights(const std::string& path, RankModel& model) {
  const auto unused = load_tensors(path, model, [](Param& param) {
    param.allocate();
    return param.value;
  });
  for (Param* param : model.params()) ++param->version;
  return unused;
}

}  // namespace owt
