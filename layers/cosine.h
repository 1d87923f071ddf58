// Cosines between rows of features and rows of a weight: the last layer of a net that is trained with a margin
// (softmax_loss.h).
//   x: N x F, or N x H x W x C read as H*W*C values in memory order  ->  y: N x out, in [-1, 1] up to rounding
//   y[n,o] = x[n] . weight[o] / (|x[n]| |weight[o]|)
// A row of x or of the weight with a norm below 1e-12 counts as zeros: its cosines are 0 and it gets no gradient. So a
// weight must not begin with zeros.
// Keys: out, init (gaussian, std 0.01: only directions matter, but a shorter row turns faster), lr, decay.
// Parameter: `name.weight`, in memory [out, H, W, C] (after an image) or [out, F], in files [out, C*H*W].
// LayerSpec::part: as in dense.h. The inputs cannot be split, because a norm is of a whole row.
// In bf16 the product is rounded, and again after the division by the norms: a cosine has a relative error of at most
// 2^-8. Norms are f32.
// Sources: Wang et al. 2017, "NormFace" (arXiv:1704.06369); the weight begins as in InsightFace's partial_fc_v2.py.
#pragma once

#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_cosine(const LayerSpec& spec);

// The parts of its op. Rows may have any number of elements. inverses: f32, one for each row.

constexpr double kLeastSquare = 1e-24;  // square of the least norm

// inverses[r] = 1 / |of[r]|; 0 if the norm is below 1e-12. of: f32 or bf16.
void invert_norms(Cpu, const Tensor& of, Tensor& inverses, const Stream& stream);
void invert_norms(Cuda, const Tensor& of, Tensor& inverses, const Stream& stream);

// to[r,c] = from[r,c] * of_rows[r] * of_columns[c]. from and to have the same type and may be the same.
void scale_by_norms(Cpu, const Tensor& from, const Tensor& of_rows, const Tensor& of_columns, Tensor& to,
                    const Stream& stream);
void scale_by_norms(Cuda, const Tensor& from, const Tensor& of_rows, const Tensor& of_columns, Tensor& to,
                    const Stream& stream);

// Removes from each row of `gradient` its component along the same row of `of`, whose norms have these inverses.
void remove_radial(Cpu, const Tensor& of, const Tensor& inverses, Tensor& gradient, const Stream& stream);
void remove_radial(Cuda, const Tensor& of, const Tensor& inverses, Tensor& gradient, const Stream& stream);

}  // namespace owt
