#include "src/parallel/param_gather.h"

namespace owt {
namespace {

std::span<const float> rows_of(const Tensor& tensor, int64_t first, int64_t rows) {
  const int64_t each = tensor.shape().row_elements();
  return {tensor.data() + first * each, static_cast<size_t>(rows * each)};
}

}  // namespace

void gather_parameter(const LayerPlan& layer, const Param& param, const Tensor& mine, Communicator& comm,
                      const std::function<void(std::span<const float>)>& write) {
  const bool split = layer.layout == Layout::kFeature;
  if (!split && comm.rank() != 0) return;
  // Parts may be uneven: they are padded to the first, which is the longest.
  const int64_t longest = split ? layer.parts.front().size() : param.full_shape.rows();
  Tensor part(param.full_shape.with_rows(longest));
  part.zero();
  param.to_file_order(mine.data(), part.data());
  if (!split) return write(rows_of(part, 0, longest));
  Tensor all(param.full_shape.with_rows(longest * comm.ranks()));
  comm.all_gather(part, all, {}).wait();
  if (comm.rank() != 0) return;
  for (int r = 0; r < comm.ranks(); ++r) write(rows_of(all, r * longest, layer.parts[static_cast<size_t>(r)].size()));
}

}  // namespace owt
