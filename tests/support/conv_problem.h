// One convolution with lists of numbers as factors, and the results of its passes (layers/conv_cpu/conv_pass.h).
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "layers/conv_cpu/conv_pass.h"
#include "tests/support/check_layer.h"
#include "tests/support/conv_reference.h"
#include "tests/support/harness.h"

namespace owt {

// The geometry of a conv with these keys on images of this shape (height, width, channels).
inline ConvGeometry geometry_of(const std::string& keys, const Shape& image) {
  const Shape in = image.batch_of(1);
  return *conv_geometry(*layer_from("type='conv' " + keys, in), in);
}

// Factors are rounded to the type of the images. Results are filled with NaN before a pass.
struct ConvProblem {
  using Values = std::vector<float>;
  struct Gradients {
    Values weight, bias;
  };

  ConvProblem(const ConvGeometry& g, int64_t rows, DType images)
      : shape{g, rows, true, images},
        reference{g, rows},
        x(rounded(rows * g.in_h * g.in_w * g.in_c, 1, images)),
        dy(rounded(rows * g.out_h * g.out_w * g.out_c, 2, images)),
        weight(rounded(g.out_c * g.kernel_h * g.kernel_w * g.in_c / g.groups, 3, images)),
        bias(distinct_values(g.out_c, 1, 4)) {}

  Values y(const ConvPass& pass, bool biased = true) const {
    const Tensor weights = packed(pass);
    Tensor y = unwritten(dy);
    pass.forward(on_cpu(x).raw(), weights.raw(), biased ? bias.data() : nullptr, y.raw());
    return download(y);
  }
  Values dx(const ConvPass& pass) const {
    const Tensor weights = packed(pass);
    Tensor dx = unwritten(x);
    pass.backward_data(on_cpu(dy).raw(), weights.raw(), dx.raw());
    return download(dx);
  }
  Gradients gradients(const ConvPass& pass) const {
    return add_gradients(pass, {Values(weight.size(), kUnwritten), Values(bias.size(), kUnwritten)}, 0, 0);
  }
  Gradients add_gradients(const ConvPass& pass, Gradients to, float beta, float bias_beta) const {
    pass.backward_weights(on_cpu(x).raw(), on_cpu(dy).raw(), beta, to.weight.data(), bias_beta,
                          to.bias.empty() ? nullptr : to.bias.data());
    return to;
  }

  std::string name() const {
    const ConvGeometry& g = shape.geometry;
    return concat(g.in_h, "x", g.in_w, "x", g.in_c, " to ", g.out_h, "x", g.out_w, "x", g.out_c, ", kernel ",
                  g.kernel_h, "x", g.kernel_w, ", ", name_of(shape.images));
  }

  ConvShape shape;
  ConvReference reference;
  Values x, dy, weight, bias;

 private:
  static constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

  static Values rounded(int64_t count, uint64_t seed, DType type) {
    return download(upload(distinct_values(count, 1, seed), {count}, Device::kCpu, type));
  }
  Tensor on_cpu(const Values& values) const {
    return upload(values, {static_cast<int64_t>(values.size())}, Device::kCpu, shape.images);
  }
  Tensor unwritten(const Values& like) const {
    Tensor tensor({static_cast<int64_t>(like.size())}, shape.images);
    fill(tensor, kUnwritten);
    return tensor;
  }
  Tensor packed(const ConvPass& pass) const {
    Tensor packed({static_cast<int64_t>(pass.packed_bytes())}, DType::kU8);
    pass.pack(weight.data(), packed.raw());
    return packed;
  }
};

}  // namespace owt
