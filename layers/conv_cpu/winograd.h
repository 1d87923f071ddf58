// Convolutions of stride 1 by Winograd's algorithm F(m x m, r x r) (Lavin and Gray 2015). Images are cut into tiles
// that overlap by r - 1 pixels. The tile, the weights and the outputs are transformed, so that (m + r - 1)^2 matrix
// products replace the (m r)^2 products of the direct sum. F(4x4, 3x3) needs 4 times, F(4x4, 5x5) 6.25 times and F(2x2,
// 3x3) 2.25 times fewer multiplications.
//
// Factors are f32, or bf16 with f32 sums. With bf16 the transformed factors are rounded once more. F(2x2, 3x3)
// tolerates this (a relative error of 0.3 percent); the others do not (2 percent and more).
//
// A NaN or infinity reaches all outputs of the tiles that hold it, as NaN. A direct sum would limit it to the outputs
// whose window holds it.
#pragma once

#include <memory>

#include "layers/conv_cpu/conv_pass.h"

namespace owt {

// Null if the algorithm cannot compute the pass: another kernel or stride, groups, fewer than 5 input channels, or no
// instructions for products of that type.
std::unique_ptr<ConvPass> make_winograd(const ConvShape& shape, PassKind kind, DType products);

// Used by make_winograd() only.
std::unique_ptr<ConvPass> make_winograd_weights(const ConvShape& shape, DType products);

}  // namespace owt
