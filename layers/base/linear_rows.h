// What dense and cosine layers share: a weight with a row for each output, which is split by outputs.
#pragma once

#include <optional>
#include <vector>

#include "layers/base/linear_params.h"

namespace owt {

// x: N x F, or N x H x W x C read as H*W*C values in memory order  ->  y: N x outputs of this rank
class LinearRows : public Layer {
 public:
  Shape out_shape(const Shape& in) const override;
  double flops(const Shape& in) const override {
    return 2.0 * static_cast<double>(in.elements()) * static_cast<double>(part_.size());
  }
  std::vector<Param*> params() override { return pointers_to(params_); }
  Columns columns() const override { return Columns::kSplits; }

 protected:
  // Reads the key `out` and the parameters. init, may_have_bias: as in LinearWeight.
  LinearRows(const LayerSpec& spec, const std::string& type, const Initializer& init, bool may_have_bias);

  Shape in_;  // one row of the layer's input
  Slice part_;
  std::optional<Slice> inputs_;
  std::vector<Param> params_;
};

}  // namespace owt
