// A pass of a convolution whose results do not depend on how the rows are divided among ranks, nor on the threads
// (core/canonical.h): each block of rows is one pass of one thread, always by the same algorithm.
#pragma once

#include <memory>

#include "layers/conv_cpu/conv_algorithm.h"
#include "layers/conv_cpu/conv_pass.h"

namespace owt {

// shape: of all rows, f32. algorithm: as in make_conv_pass(). block_rows: see canonical_rows(). ConvPass's function for
// gradients is canonical_gradients().
std::unique_ptr<ConvPass> make_canonical_conv(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm,
                                              int64_t block_rows);

}  // namespace owt
