// Tables of made-up targets.
#pragma once

#include <string>

#include "data/relabelled.h"
#include "src/system/csv.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {

// A target of the class c: several of them are 1, others are between, and some are 0.
inline double made_up_target(int64_t image, int64_t c) { return static_cast<double>((image * 7 + c * 13) % 10) / 9; }

// Writes the table of a split. sum_to_1: the targets of an image.
inline void write_target_table(const std::string& folder, Split split, const Dataset& images, bool sum_to_1) {
  std::string text = "index";
  for (const std::string& line : images.class_lines()) text += "," + csv_quoted(class_key(line));
  for (int64_t image = 0; image < images.size(); ++image) {
    double sum = 0;
    for (int64_t c = 0; c < images.classes(); ++c) sum += made_up_target(image, c);
    text += format("\n{}", image);
    for (int64_t c = 0; c < images.classes(); ++c)
      text += format(",{:.9g}", made_up_target(image, c) / (sum_to_1 ? sum : 1));
  }
  write_file_atomically(targets_path(folder, split), text + "\n");
}

}  // namespace owt
