// A list of pairs of images that show the same thing, such as a person, or different ones: `owt verify`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace owt {

struct ImagePair {
  int64_t a = 0, b = 0;  // places among the images of ImagePairs
  bool same = false;
};

struct ImagePairs {
  // The images of the pairs, each once: files, or if there are none, numbers in a data set, in increasing order.
  std::vector<std::string> files{};
  std::vector<int64_t> numbers{};
  std::vector<ImagePair> pairs{};  // in the order of the list

  int64_t images() const { return static_cast<int64_t>(files.empty() ? numbers.size() : files.size()); }
};

// Reads a text file with a line `A B 1` (the same) or `A B 0` (different) for each pair. A and B are paths relative to
// the folder of the file, or numbers from 0; the first line decides which. Words are separated by tabs, or in a line
// without tabs by blanks. Empty lines do not count. Throws Error with the number of a line that is none of these, and
// if there is no pair.
ImagePairs read_pairs(const std::string& path);

}  // namespace owt
