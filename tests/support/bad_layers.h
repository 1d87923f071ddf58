// Which layer is reported for a loss that is not finite.
#pragma once

#include <vector>

#include "layers/loss/softmax_rows.h"
#include "src/core/dispatch.h"
#include "tests/support/harness.h"

namespace owt {

// The layer that is recorded for these activations, computed on the stream, when the sum of losses is `loss` and
// `first` was recorded before.
inline int32_t noted_layer(const std::vector<Watched>& watched, double loss, int32_t first, const Stream& stream) {
  const Device device = stream.device();
  Tensor sums({kLossSums}, DType::kF64);
  sums.zero();
  sums.data<double>()[kLossSum] = loss;
  Tensor device_sums = sums.to(device);
  const Tensor noted = upload_labels({first}, device);
  dispatch(device, [&](auto tag) { add_rows(tag, {}, device_sums, {watched, noted}, stream); });
  stream.synchronize();
  return download_labels(noted)[0];
}

}  // namespace owt
