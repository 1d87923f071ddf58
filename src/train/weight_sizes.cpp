#include "src/train/weight_sizes.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "src/comm/on_host.h"
#include "src/parallel/param_gather.h"

namespace owt {
namespace {

// The sampled elements in this rank's part, as rising indexes in it.
std::vector<int64_t> sampled_elements(const Param& param) {
  const int64_t stride = sample_stride(param.full_shape), row = param.full_shape.row_elements();
  const Slice columns = param.columns.value_or(Slice{0, row});
  std::vector<int64_t> elements;
  const int64_t first = (param.part.begin * row + stride - 1) / stride * stride;
  for (int64_t e = first; e < param.part.end * row; e += stride)
    if (const int64_t column = e % row; column >= columns.begin && column < columns.end)
      elements.push_back((e / row - param.part.begin) * columns.size() + column - columns.begin);
  return elements;
}

}  // namespace

int64_t sample_stride(const Shape& whole) {
  int64_t stride = (whole.elements() + kSampledElements - 1) / kSampledElements;
  while (stride > 1 && std::gcd(stride, whole.row_elements()) > 1) ++stride;
  return stride;
}

WeightSizes::WeightSizes(const std::vector<Param*>& params) {
  for (const Param* param : params)
    if (param->role == ParamRole::kTrained) samples_.push_back({param, sampled_elements(*param)});
}

std::vector<float> WeightSizes::values_of(const Sample& sample, const Stream& stream) {
  std::vector<float> sampled;
  if (sample.elements.empty()) return sampled;
  stream.synchronize();
  auto next = sample.elements.begin();
  const Tensor& values = sample.param->value;
  for_each_piece(values, [&](int64_t first, const Tensor& rows) {
    const int64_t begin = first * values.shape().row_elements(), end = begin + rows.elements();
    for (; next != sample.elements.end() && *next < end; ++next) sampled.push_back(rows.data()[*next - begin]);
  });
  return sampled;
}

void WeightSizes::note(const Stream& stream) {
  for (Sample& sample : samples_) sample.before = values_of(sample, stream);
  noted_ = true;
}

std::vector<WeightSize> WeightSizes::measure(Communicator& comm, const Stream& stream) {
  std::vector<double> sums;  // for each parameter: |w|, |w - w'|, elements
  for (Sample& sample : samples_) {
    double size = 0, change = 0;
    const std::vector<float> now = values_of(sample, stream);
    for (size_t i = 0; i < now.size(); ++i) {
      size += std::abs(static_cast<double>(now[i]));
      if (noted_) change += std::abs(static_cast<double>(now[i]) - static_cast<double>(sample.before[i]));
    }
    sums.insert(sums.end(), {size, change, static_cast<double>(now.size())});
    sample.before = {};
  }
  sums = sums.empty() ? sums : on_host::sum(comm, sums, stream.device());
  const bool noted = std::exchange(noted_, false);
  std::vector<WeightSize> sizes;
  for (size_t i = 0; i < samples_.size(); ++i) {
    const double count = sums[3 * i + 2];
    sizes.push_back({samples_[i].param->name, sums[3 * i] / count});
    if (noted) sizes.back().change = sums[3 * i + 1] / count;
  }
  return sizes;
}

}  // namespace owt
