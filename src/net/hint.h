// Compares an activation of a student with one of its teacher (FitNets: Romero et al. 2015, arXiv:1412.6550, section
// 2.2). The output is the input. Training adds to the net's loss
//   weight * mean over the values of a row of (r(x) - t)^2,   r: a convolution with 1x1 filters, which learns
// where t is the teacher's activation (Pass::hint), of the same height and width. LossSums do not include it.
//   dx = dy + the gradient of this for x
// Without a body the layer is the teacher's: in evaluation it writes its input to Pass::hint.
// Such a layer is in no model file. open_teacher() (src/train/teacher.h) adds it to both models of a run with a hint.
// Keys: body (an array with the one layer r), weight (0 or more; with body only).
#pragma once

#include <string>

#include "layers/registry.h"

namespace owt {

constexpr const char* kHintLayer = "hint";  // its name and its type

LayerType hint_type();
// The layer's table: for a student whose teacher's activation has this many channels; for the teacher with 0.
Config hint_table(int64_t channels, double weight);
// Whether the tensor of a weights file is of such a layer. Only training uses it.
bool is_of_hint(const std::string& tensor);

}  // namespace owt
