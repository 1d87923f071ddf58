// The 1,000 classes of ILSVRC2012.
#pragma once

#include <string_view>
#include <vector>

namespace owt {

struct Synset {
  std::string_view wnid, words;  // "n01440764", "tench, Tinca tinca"
};

std::vector<Synset> ilsvrc_synsets();  // element i has ILSVRC2012_ID i + 1

}  // namespace owt
