// One pass of a convolution on the CPU by one algorithm, from and to NHWC images.
#pragma once

#include <cstddef>
#include <memory>

#include "layers/base/geometry.h"
#include "src/core/bf16.h"
#include "src/core/tensor.h"

namespace owt {

enum class PassKind { kForward, kBackwardData, kBackwardWeights };
const char* name_of(PassKind kind);  // "forward", ...

// What to compute. images: the type of x, y and their gradients. Weights and their gradients are f32 outside of a pass.
struct ConvShape {
  ConvGeometry geometry;
  int64_t rows = 0;
  bool with_bias = false;
  DType images = DType::kF32;
};

// A pass implements one of the three functions: the one of its kind. It must run with the team that it was made with.
class ConvPass {
 public:
  virtual ~ConvPass() = default;

  // Forward and backward data read the weights as laid out by pack(). `packed` has packed_bytes() bytes and is aligned
  // to 64 bytes.
  virtual size_t packed_bytes() const { return 0; }
  virtual void pack(const float* weights, void* packed) const;

  virtual void forward(const void* x, const void* packed, const float* bias, void* y) const;
  virtual void backward_data(const void* dy, const void* packed, void* dx) const;
  // weights = beta * weights + their gradient; bias likewise with bias_beta; bias may be null. Each beta is 0 or 1.
  virtual void backward_weights(const void* x, const void* dy, float beta, float* weights, float bias_beta,
                                float* bias) const;
  // Like backward_weights, with f32 images and canonical sums (core/canonical.h). Only make_canonical_conv() makes such
  // passes.
  virtual void canonical_gradients(const float* x, const float* dy, float beta, double* weights, float bias_beta,
                                   double* bias) const;
};

// Makes PassOf<Element>(shape, arguments...), Element being the type of the images.
template <template <class> class PassOf, class... Arguments>
std::unique_ptr<ConvPass> make_of_element(const ConvShape& shape, const Arguments&... arguments) {
  std::unique_ptr<ConvPass> pass;
  with_cpu_element(shape.images,
                   [&](auto element) { pass = std::make_unique<PassOf<decltype(element)>>(shape, arguments...); });
  return pass;
}

}  // namespace owt
