// A data set whose labels are put in another order: as a network's outputs have it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

// The same images and checksum. outputs: of each class of `images` the label that it gets, below class_lines.size();
// class_lines: of the new classes, as in a classes.txt.
std::shared_ptr<const Dataset> relabelled(std::shared_ptr<const Dataset> images, std::vector<int> outputs,
                                          std::vector<std::string> class_lines);

}  // namespace owt
