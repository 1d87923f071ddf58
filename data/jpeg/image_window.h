// A part of an image, and a row of a batch that may hold a JPEG file in place of its pixels.
#pragma once

#include <cstdint>

namespace owt {

// A part of an image, in its pixels.
struct ImageWindow {
  int64_t top = 0, left = 0, height = 0, width = 0;

  bool operator==(const ImageWindow&) const = default;
};

// What a row of a batch holds if a GPU decodes: a JPEG file, of which the row shows a window, or pixels.
struct FileRow {
  int64_t bytes = 0;              // length of the file; 0: pixels
  int64_t height = 0, width = 0;  // extents of the whole image
  ImageWindow window{};
};

}  // namespace owt
