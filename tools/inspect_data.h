// The output of `owt inspect` for a data set.
#pragma once

#include <string>

#include "data/contact_sheet.h"

namespace owt {

struct SheetRequest {
  std::string file;    // the PNG to write; empty: none
  std::string recipe;  // the augmentation to show; empty: a plain one
  ContactSheet sheet{};
};

// Prints facts about the CIFAR files or prepared shards in a folder, and writes the contact sheet to its file. With
// many classes it prints the largest and smallest ones, or all. For a folder of images it prints how to make a data
// set. Throws Error for any other folder.
void inspect_data(const std::string& folder, const SheetRequest& sheet, bool all_classes);

}  // namespace owt
