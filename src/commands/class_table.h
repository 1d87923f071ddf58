// The table of `owt eval --per-class`.
#pragma once

#include <string>
#include <vector>

#include "src/train/evaluation.h"

namespace owt {

// Has a line for each class, in their order. If there are more than kMostClassesOfTable classes, it has the
// kWorstClasses with the lowest top-1 and says how many it leaves out. Classes of equal top-1 are ordered by their
// images, most first. The last line is the mean over all classes.
constexpr size_t kMostClassesOfTable = 1000, kWorstClasses = 50;
std::string class_table(std::vector<ClassAccuracy> classes, bool top5);

}  // namespace owt
