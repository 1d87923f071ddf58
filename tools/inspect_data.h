// The output of `owt inspect` for a data set.
#pragma once

#include <string>

#include "data/contact_sheet.h"

namespace owt {

struct SheetRequest {
  std::string file;    // the PNG file to write; empty: none
  std::string recipe;  // recipe with the augmentation to show; empty: a plain one
  ContactSheet sheet{};
};

struct DataReport {
  bool all_classes = false;  // otherwise the classes with the most and the fewest images
  bool json = false;         // all classes, as JSON
};

// Prints facts about the CIFAR files or the prepared shards in a folder, and writes the sheet to its file. For a folder
// of images, prints how to make a data set of it. Throws Error for other folders.
void inspect_data(const std::string& folder, const SheetRequest& sheet, const DataReport& report);

}  // namespace owt
