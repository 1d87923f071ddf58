// Convolutions of stride 1 by Winograd's algorithm F(m x m, r x r) (Lavin and Gray 2015): images are cut into tiles
// that overlap by r - 1 pixels; a tile, the weights and the outputs are transformed so that (m + r - 1)^2 products of
// matrices replace the (m r)^2 of the sum itself. F(4x4, 3x3) needs 4 times, F(4x4, 5x5) 6.25 times and F(2x2, 3x3)
// 2.25 times fewer multiplications.
//
// The products are of f32, or of bf16 with sums of f32: then the transformed factors are rounded once more, which
// F(2x2, 3x3) bears (a relative error of 0.3 percent) and the others do not (2 percent and more).
//
// A NaN or an infinity reaches all outputs of the tiles that hold it, as NaN, where the sum itself would keep it to the
// outputs whose window holds it.
#pragma once

#include <memory>

#include "layers/conv_pass.h"

namespace owt {

// Null where the algorithm cannot compute the pass: another kernel or stride, groups, less than 5 input
// channels, no products of that type here.
std::unique_ptr<ConvPass> make_winograd(const ConvShape& shape, PassKind kind, DType products);

// For make_winograd() alone.
std::unique_ptr<ConvPass> make_winograd_weights(const ConvShape& shape, DType products);

}  // namespace owt
