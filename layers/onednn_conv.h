// The passes of a convolution on the CPU, by oneDNN: from and to NHWC images directly, or by Winograd's algorithm on
// images in blocks of 16 channels, which are then copied in and out. Weights are always packed into the layout that the
// primitive asks for.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>

#include "layers/conv.h"
#include "src/core/onednn.h"
#include "src/core/tensor.h"

namespace owt::onednn {

const dnnl::engine& engine();

enum class PassKind { kForward, kBackwardData, kBackwardWeights };
const char* name_of(PassKind kind);  // "forward", ...

// What is computed, in the layouts of owt.
struct ConvProblem {
  // images: the type of x, y and their gradients; weights and their gradients are f32 outside of a pass.
  ConvProblem(const ConvGeometry& geometry, int64_t rows, bool with_bias, DType images = DType::kF32);

  dnnl::memory::desc src, dst, weights;
  dnnl::memory::desc bias;  // empty where there is none
  dnnl::memory::dims stride, before, after;
};

// A change of layout.
class Copy {
 public:
  Copy(const dnnl::memory::desc& from, const dnnl::memory::desc& to, bool adds = false);
  void operator()(dnnl::stream& stream, const void* from, void* to) const;

 private:
  dnnl::memory::desc from_, to_;
  dnnl::reorder reorder_;
};

// One pass by one algorithm. src is x or dx, dst y or dy, weights w or dw. All passes of a host thread share a
// workspace, because one runs at a time.
class ConvPass {
 public:
  // Empty where the algorithm cannot compute the pass.
  static std::optional<ConvPass> make(const ConvProblem& problem, PassKind kind, bool winograd);

  const dnnl::memory::desc& dst_layout() const { return dst_; }

  // The images in the layout of this pass: themselves, or a copy in the workspace, until another pass runs.
  const void* enter_src(dnnl::stream& stream, const void* nhwc) const;
  const void* enter_dst(dnnl::stream& stream, const void* nhwc) const;

  // Forward and backward data: the weights as the primitive wants them.
  size_t packed_bytes() const { return weights_.get_size(); }
  void pack(dnnl::stream& stream, const void* weights, void* packed) const { (*weights_in_)(stream, weights, packed); }

  void forward(dnnl::stream& stream, const void* src, const void* packed, const void* bias, void* dst_nhwc) const;
  void backward_data(dnnl::stream& stream, const void* dst, const void* packed, void* src_nhwc) const;
  // weights = beta * weights + their gradient, and so for the bias, which may be null. Each beta is 0 or 1.
  void backward_weights(dnnl::stream& stream, const void* src, const void* dst, float beta, void* weights,
                        float bias_beta, float* bias) const;

 private:
  ConvPass(const ConvProblem& problem, PassKind kind, bool winograd);
  void adopt(const dnnl::memory::desc& src, const dnnl::memory::desc& weights, const dnnl::memory::desc& dst,
             const dnnl::memory::desc& scratchpad);
  void run(dnnl::stream& stream, std::unordered_map<int, dnnl::memory>& arguments) const;

  dnnl::primitive primitive_;
  dnnl::memory::desc src_, weights_, dst_, bias_, scratchpad_;
  std::optional<Copy> src_in_, src_out_, dst_in_, dst_out_, weights_in_, weights_out_, weights_add_;
};

}  // namespace owt::onednn
