// A computation for cuDNN: a few operations on tensors, independent of how they are computed. For .cu files.
//
//   CudnnGraph graph;
//   const auto x = graph.image(DType::kBF16, {128, 27, 27, 64}), w = graph.image(DType::kBF16, {192, 5, 5, 64}),
//              y = graph.image(DType::kBF16, {128, 27, 27, 192});
//   graph.conv_forward(geometry, x, w, y);
//
// All sums are f32. Images are NHWC, filters [out, kh, kw, in / groups]. cuDNN derives the number of groups from the
// channels of both.
#pragma once

#include <string>
#include <vector>

#include "layers/base/geometry.h"
#include "layers/gpu/cudnn.h"

namespace owt {

class CudnnGraph {
 public:
  using Id = int64_t;  // names a tensor of this graph

  // An input or output of the graph.
  struct Outside {
    Id id;
    int64_t bytes;
    bool on_host;  // one number, read when work is queued
  };

  Id image(DType dtype, const Shape& nhwc);
  Id channels(DType dtype, int64_t count) { return image(dtype, {1, 1, 1, count}); }
  Id number();                    // an f32 in host memory
  Id between(const Shape& nhwc);  // an f32 tensor between two operations, without memory

  void conv_forward(const ConvGeometry& geometry, Id x, Id w, Id y);
  void conv_data_gradient(const ConvGeometry& geometry, Id dy, Id w, Id dx);
  void conv_weight_gradient(const ConvGeometry& geometry, Id x, Id dy, Id dw);
  void add(Id a, Id b, Id y);  // b may be one number per channel
  void relu(Id x, Id y);
  void relu_backward(Id y, Id dy, Id dx);  // dx = dy where y > 0, else 0
  // sums[c] = the sum of x over all positions of channel c. deterministic: in a fixed order; throws Error before cuDNN
  // 9.11, which cannot be asked for that.
  void sum_channels(Id x, Id sums, bool deterministic);
  // Batch normalisation in training; scale, bias, mean and inverse_std are f32 per channel.
  void norm_forward(Id x, Id scale, Id bias, Id epsilon, Id mean, Id inverse_std, Id y);
  void norm_backward(Id x, Id dy, Id scale, Id mean, Id inverse_std, Id dscale, Id dbias, Id dx);

  // Equal for equal tensors and operations, in any process.
  const std::string& text() const { return text_; }
  const std::vector<Outside>& outside() const { return outside_; }
  std::vector<const CudnnDescriptor*> operations() const;

 private:
  Id tensor(DType dtype, const Shape& nhwc, bool inside, bool on_host);
  const CudnnDescriptor& at(Id id) const { return tensors_[static_cast<size_t>(id - 1)]; }
  void convolve(const char* name, cudnnBackendDescriptorType_t type, const ConvGeometry& geometry,
                const std::vector<std::pair<cudnnBackendAttributeName_t, Id>>& tensors,
                cudnnBackendAttributeName_t settings, cudnnBackendAttributeName_t alpha,
                cudnnBackendAttributeName_t beta);
  void pointwise(const char* name, cudnnPointwiseMode_t mode,
                 const std::vector<std::pair<cudnnBackendAttributeName_t, Id>>& tensors);
  CudnnDescriptor& operation(const char* name, cudnnBackendDescriptorType_t type,
                             const std::vector<std::pair<cudnnBackendAttributeName_t, Id>>& tensors);

  std::vector<CudnnDescriptor> tensors_;  // the tensor with Id i is at index i - 1
  std::vector<CudnnDescriptor> settings_, operations_;
  std::vector<Outside> outside_;
  std::string text_;
};

}  // namespace owt
