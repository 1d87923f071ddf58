#include "src/parallel/param_gather.h"

#include <algorithm>

namespace owt {
namespace {

std::span<const float> values_of(const Tensor& tensor) {
  return {tensor.data(), static_cast<size_t>(tensor.elements())};
}

// On rank 0 the ranks' `mine` one below the other, each padded to `longest` rows; elsewhere nothing.
Tensor gather_rows(const Tensor& mine, int64_t longest, Communicator& comm) {
  Tensor here;
  {
    Tensor part(mine.shape().with_rows(longest), DType::kF32, mine.device());
    part.zero();
    part.rows(0, mine.shape().rows()).copy_from(mine);
    Tensor all(mine.shape().with_rows(longest * comm.ranks()), DType::kF32, mine.device());
    // As words, which arrive as they are whatever the communicator does to f32.
    Tensor words = all.viewed_as(DType::kI32);
    comm.all_gather(part.viewed_as(DType::kI32), words, {}).wait();
    if (comm.rank() == 0) here = all.to(Device::kCpu);
  }
  comm.meet();
  return here;
}

// Columns are no rows: every rank sends its block as one long row.
Tensor gather_columns(const LayerPlan& layer, const Param& param, const Tensor& mine, Communicator& comm) {
  const int64_t rows = param.full_shape.rows(), widest = layer.inputs.front().size();
  const Tensor blocks = gather_rows(mine.reshaped({mine.elements(), 1}), rows * widest, comm);
  if (comm.rank() != 0) return {};
  Tensor whole(param.full_shape);
  const int64_t width = param.full_shape.row_elements();
  for (int r = 0; r < comm.ranks(); ++r) {
    const Slice& columns = layer.inputs[static_cast<size_t>(r)];
    const float* block = blocks.data() + r * rows * widest;
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(block + row * columns.size(), columns.size(), whole.data() + row * width + columns.begin);
  }
  return whole;
}

}  // namespace

Tensor gather_shares(const std::vector<Slice>& parts, const Param& param, const Tensor& mine, Communicator& comm) {
  int64_t longest = 0;
  for (const Slice& part : parts) longest = std::max(longest, part.size());
  const Tensor shares = gather_rows(mine.reshaped({mine.elements(), 1}), longest, comm);
  if (comm.rank() != 0) return {};
  Tensor whole(param.shape());
  for (size_t r = 0; r < parts.size(); ++r)
    std::copy_n(shares.data() + static_cast<int64_t>(r) * longest, parts[r].size(), whole.data() + parts[r].begin);
  return whole;
}

void gather_parameter(const LayerPlan& layer, const Param& param, const Tensor& mine, Communicator& comm,
                      const std::function<void(std::span<const float>)>& write) {
  const auto write_rows = [&](const Tensor& rows) {
    const Tensor here = rows.to(Device::kCpu);
    Tensor in_file_order(here.shape());
    param.to_file_order(here.shape().rows(), here.data(), in_file_order.data());
    write(values_of(in_file_order));
  };
  // The bias of a layer that is split by inputs is whole on rank 0.
  if (layer.layout != Layout::kFeature || (layer.by_inputs() && !param.columns)) {
    if (comm.rank() == 0) write_rows(mine);
    return;
  }
  if (layer.by_inputs()) {
    const Tensor whole = gather_columns(layer, param, mine, comm);
    if (comm.rank() == 0) write_rows(whole);
    return;
  }
  const int64_t longest = layer.parts.front().size();
  const Tensor all = gather_rows(mine, longest, comm);
  if (comm.rank() != 0) return;
  for (int r = 0; r < comm.ranks(); ++r)
    write_rows(all.rows(r * longest, r * longest + layer.parts[static_cast<size_t>(r)].size()));
}

}  // namespace owt
