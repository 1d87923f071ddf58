// A data set with its labels in the order of a network's outputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

// The same images and checksum. outputs: the new label of each class of `images`, below class_lines.size();
// class_lines: the new classes, as in a classes.txt.
std::shared_ptr<const Dataset> relabelled(std::shared_ptr<const Dataset> images, std::vector<int> outputs,
                                          std::vector<std::string> class_lines);

}  // namespace owt
