// A dense or cosine layer of which a training step uses some rows of the weight (Pass::sampled). In evaluation it is
// the whole layer.
//   x: N x F  ->  y: N x out, of which training writes the first N x most elements, as a matrix: a column for each
//                    sampled row, and kNoLogit in the columns without a row
// The rows are packed before forward, and a second layer of the same type works on them. Its gradient is in Param::grad
// of this layer, packed too; the caller sets Param::grad_rows. So memory and time of a step grow with the sample, not
// with the layer.
#pragma once

#include <memory>

#include "layers/base/layer.h"
#include "layers/base/sampled_rows.h"

namespace owt {

// The logit of a column without a row: its exponential is 0, and it is below every other logit.
constexpr float kNoLogit = -1e30f;

// packed: a layer like `whole` with the first `most` outputs of it; its initial weight is not used.
std::unique_ptr<Layer> make_sampled(std::unique_ptr<Layer> whole, std::unique_ptr<Layer> packed);

// The view of an output (or of its gradient) that training uses.
inline Tensor sampled_part(const Tensor& output, int64_t most) { return output.part(0, {output.shape().rows(), most}); }

// to[i] = from[rows[i]]; zeros where there is no row. Matrices, or vectors, of the same type.
void gather_rows(Cpu, const Tensor& from, const SampledRows& sampled, Tensor& to, const Stream& stream);
void gather_rows(Cuda, const Tensor& from, const SampledRows& sampled, Tensor& to, const Stream& stream);

// Writes kNoLogit into the columns without a row. y: N x most.
void clear_columns(Cpu, const SampledRows& sampled, Tensor& y, const Stream& stream);
void clear_columns(Cuda, const SampledRows& sampled, Tensor& y, const Stream& stream);

}  // namespace owt
