// The development kit of ILSVRC2012 (ILSVRC2012_devkit_t12.tar.gz): the synset of each validation image.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace owt {

struct Synset {
  std::string wnid, words;  // "n01440764", "tench, Tinca tinca"
};

struct IlsvrcDevkit {
  std::map<int, Synset> synsets;  // by ILSVRC2012_ID, from data/meta.mat; images have ids 1 to 1000
  std::vector<int> truth;         // the id of validation image i + 1, from data/ILSVRC2012_validation_ground_truth.txt
};

// Throws Error naming `path`.
IlsvrcDevkit read_ilsvrc_devkit(const std::string& path);

// The struct array "synsets" of a MATLAB 5 file. Throws Error naming `path`. Source: MathWorks, MAT-File Format, "Level
// 5 MAT-File Format". libmatio is not used: version 1.5.23 crashes on one in eighty single-bit errors in such a file,
// and it loads thirty more libraries at every start.
std::map<int, Synset> parse_synsets(std::string_view mat, const std::string& path);

}  // namespace owt
