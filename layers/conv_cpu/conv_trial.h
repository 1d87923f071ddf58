// Lists the algorithms that can compute a pass of a convolution on the CPU, and times them.
#pragma once

#include <memory>
#include <vector>

#include "layers/conv_cpu/conv_algorithm.h"
#include "layers/conv_cpu/conv_pass.h"

namespace owt {

// `algorithm`: neither kAuto nor kByShape. Null if it cannot compute the pass on this processor.
std::unique_ptr<ConvPass> make_conv_pass(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm);

// Direct, then the others that can compute the pass.
ConvChoices::Candidates conv_candidates(const ConvShape& shape, PassKind kind);

// Runs each candidate as a training step does, on its own tensors: once to warm the caches, then `rounds` times; the
// least time counts. The candidates alternate, so that a disturbance affects all of them. Errors are relative to the
// first candidate.
std::vector<ConvChoices::Timing> measure_conv(const ConvShape& shape, PassKind kind,
                                              const ConvChoices::Candidates& candidates, int rounds);

}  // namespace owt
