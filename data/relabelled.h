// The images of a data set with other labels: in the order of a network's outputs, or targets from a table.
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

// The table of targets of a data set in this folder; split: kTrain or kTest.
std::string targets_path(const std::string& folder, Split split);

// The images with the targets of a CSV file. Its header is `index` or `name`, then the keys of all classes, or without
// names their numbers, in any order. There is a line for each image, in any order: its number from 0 or its
// Dataset::name(), then a target in [0, 1] for each class. The label becomes the class with the largest target, the
// first among equals. The checksum covers the targets. classes: of the network; target 0 for classes
// that the images do not have. sum_to_1: the targets of an image must. Throws Error with file and line.
std::shared_ptr<const Dataset> with_targets(std::shared_ptr<const Dataset> images, const std::string& path,
                                            int64_t classes, bool sum_to_1);

}  // namespace owt
