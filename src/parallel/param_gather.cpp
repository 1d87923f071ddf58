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
  const auto write_part = [&](const Tensor& part) {
    const Tensor here = part.to(Device::kCpu);
    Tensor in_file_order(here.shape());
    param.to_file_order(here.shape().rows(), here.data(), in_file_order.data());
    write(rows_of(in_file_order, 0, here.shape().rows()));
  };
  if (!split) return write_part(mine);
  // Parts may be uneven: they are padded to the first, which is the longest.
  const int64_t longest = layer.parts.front().size();
  Tensor here;  // of all ranks, one below the other
  {
    Tensor part(param.full_shape.with_rows(longest), DType::kF32, mine.device());
    part.zero();
    part.rows(0, mine.shape().rows()).copy_from(mine);
    Tensor all(param.full_shape.with_rows(longest * comm.ranks()), DType::kF32, mine.device());
    comm.all_gather(part, all, {}).wait();
    if (comm.rank() == 0) here = all.to(Device::kCpu);
  }
  comm.meet();
  if (comm.rank() != 0) return;
  for (int r = 0; r < comm.ranks(); ++r)
    write_part(here.rows(r * longest, r * longest + layer.parts[static_cast<size_t>(r)].size()));
}

}  // namespace owt
