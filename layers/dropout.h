// Dropout, in place (Srivastava et al. 2014, scaled in training).
//   training:   y = x / (1 - rate) where kept, else 0; dx = dy / (1 - rate) where kept, else 0
//   evaluation: y = x
// An element is dropped where its random number is below the rate. The number is a function of the seed, the
// step, the layer's name, the row's index in the whole step (Pass::rows) and the column of the whole row, so that the
// mask is the same however rows and columns are split over ranks. Keys: rate, in [0, 1).
#pragma once

#include <functional>

#include "layers/layer.h"

namespace owt {

struct DropoutSettings {
  std::string name;  // the layer's; keys the random numbers
  double rate = 0;

  float scale() const { return static_cast<float>(1 / (1 - rate)); }  // multiplies what is kept
  int64_t row_elements = 0;                                           // the whole row's
  int64_t first_column = 0;                                           // where the columns begin that are kept here
};

std::unique_ptr<Layer> make_dropout(const LayerSpec& spec);
std::unique_ptr<Op> bind_dropout(Cpu, const DropoutSettings& settings, const Shape& in);
std::unique_ptr<Op> bind_dropout(Cuda, const DropoutSettings& settings, const Shape& in);

// The settings of a dropout, as long as it lives; null for any other layer.
const DropoutSettings* dropout_settings(const Layer& layer);

// The forward pass of a relu and the dropout behind it, in place, on batches of at most the shape `in`. Nothing is kept
// for backward: y is positive exactly where x was and the dropout kept it, and dx = dy * scale() there.
using ReluDropout = std::function<void(const Pass& pass, Tensor& y)>;
ReluDropout bind_relu_dropout(Cuda, const DropoutSettings& settings, const Shape& in);

}  // namespace owt
