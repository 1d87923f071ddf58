// The passes of a convolution by oneDNN's direct algorithms.
#pragma once

#include <memory>

#include "layers/conv_cpu/conv_pass.h"

namespace owt {

// Throws Error if oneDNN has no kernel for the pass.
std::unique_ptr<ConvPass> make_onednn_conv(const ConvShape& shape, PassKind kind);

}  // namespace owt
