// What `owt inspect` shows of a data set.
#pragma once

#include <string>

#include "data/contact_sheet.h"

namespace owt {

struct SheetRequest {
  std::string file;    // the PNG to write; empty: none
  std::string recipe;  // whose augmentation it shows; empty: a plain one
  ContactSheet sheet{};
};

// Facts about the CIFAR files or the prepared shards in a folder, to the standard output; and the sheet, to its file.
// Of many classes those with the most and the fewest images, or all. Of a folder of images it says how to make a data
// set of it. Throws Error for a folder of something else.
void inspect_data(const std::string& folder, const SheetRequest& sheet, bool all_classes);

}  // namespace owt
