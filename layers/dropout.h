// Dropout, in place (Srivastava et al. 2014), scaled during training.
//   training:   y = x / (1 - rate) where kept, else 0; dx = dy / (1 - rate) where kept, else 0
//   evaluation: y = x
// An element is dropped if its random number is below the rate. The number depends on the seed, the step, the layer's
// name, the row's index in the whole step (Pass::rows) and the column in the whole row. So the mask does not depend on
// how rows and columns are split over ranks.
// drop_path (stochastic depth, Huang et al. 2016, arXiv:1603.09382) does the same with whole rows: the number does not
// depend on the column, so all columns of a row are dropped or kept, on every rank. It is the last layer of a
// residual's body.
// Keys of both: rate, in [0, 1).
#pragma once

#include <functional>

#include "layers/base/layer.h"

namespace owt {

struct DropoutSettings {
  std::string name;  // name of the layer; keys the random numbers
  double rate = 0;
  bool whole_rows = false;  // drop_path

  // Random numbers of a row, and the first one that this rank uses.
  int64_t row_elements = 1;
  int64_t first_column = 0;

  float scale() const { return static_cast<float>(1 / (1 - rate)); }  // factor for kept elements
};

std::unique_ptr<Layer> make_dropout(const LayerSpec& spec);
std::unique_ptr<Layer> make_drop_path(const LayerSpec& spec);
std::unique_ptr<Op> bind_dropout(Cpu, const DropoutSettings& settings, const Shape& in);
std::unique_ptr<Op> bind_dropout(Cuda, const DropoutSettings& settings, const Shape& in);

// The settings of a dropout, valid while it lives; null for any other layer, and for a drop_path.
const DropoutSettings* dropout_settings(const Layer& layer);

// The forward pass of a relu and a following dropout, in place, for batches of at most the shape `in`. It stores
// nothing for backward: y is positive exactly where x was positive and the dropout kept it, and there dx = dy *
// scale().
using ReluDropout = std::function<void(const Pass& pass, Tensor& y)>;
ReluDropout bind_relu_dropout(Cuda, const DropoutSettings& settings, const Shape& in);

}  // namespace owt
