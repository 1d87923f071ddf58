// The algorithms for a pass of a convolution on the CPU: which can compute it, and how long each takes.
#pragma once

#include <memory>
#include <vector>

#include "layers/conv_algorithm.h"
#include "layers/conv_pass.h"

namespace owt {

// Null where the algorithm, which is neither kAuto nor kByShape, cannot compute the pass on this processor.
std::unique_ptr<ConvPass> make_conv_pass(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm);

// Direct, then the others that can compute the pass.
ConvChoices::Candidates conv_candidates(const ConvShape& shape, PassKind kind);

// Runs each candidate as a training step does, on tensors of its own: once for the caches, then `rounds` times, and the
// least time counts. The candidates take turns, so that a disturbance hits all. Errors are relative to the first.
std::vector<ConvChoices::Measured> measure_conv(const ConvShape& shape, PassKind kind,
                                                const ConvChoices::Candidates& candidates, int rounds);

}  // namespace owt
