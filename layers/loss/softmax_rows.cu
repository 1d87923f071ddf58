#include "layers/loss/softmax_rows.cuh"

#include <algorithm>

namespace owt {
namespace {

constexpr unsigned kAdders = 256;  // threads that add the rows

__global__ void add_results(LossFinish finish) {
  wait_for_previous_kernel();
  finish();
}

template <class T>
T* data_or_null(Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

}  // namespace

LossFinish::LossFinish(std::span<const RowResult> of_rows, Tensor& sums, LossFollowUp& then)
    : results(of_rows.data()),
      rows(static_cast<int>(of_rows.size())),
      sums(sums.data<double>()),
      first(data_or_null<int32_t>(then.first)),
      sums_for_host(data_or_null<double>(then.sums_for_host)),
      first_for_host(data_or_null<int32_t>(then.first_for_host)) {
  const auto now = std::min<size_t>(then.watched.size(), kWatchedPerLaunch);
  for (const Watched& one : std::span(then.watched).first(now)) {
    const int i = arrays++;
    values[i] = one.values.raw();
    count[i] = one.values.elements();
    layer[i] = one.layer;
    bf16[i] = one.values.dtype() == DType::kBF16;
  }
  then.watched.erase(then.watched.begin(), then.watched.begin() + static_cast<std::ptrdiff_t>(now));
}

void add_rows(Cuda, std::span<const RowResult> results, Tensor& sums, LossFollowUp then, const Stream& stream) {
  do {  // once, unless there are more arrays than one launch checks
    launch(add_results, 1, kAdders, stream, LossFinish(results, sums, then));
    results = {};
  } while (!then.watched.empty());
}

}  // namespace owt
