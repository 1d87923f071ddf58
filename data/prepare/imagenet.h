// The files of ILSVRC2012 as lists of photos. Classes are in the usual order, sorted by synset id ("n01440764", ...).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/prepare/photo_sources.h"

namespace owt {

// ILSVRC2012_img_train.tar (a tar file of one tar file of JPEGs per synset), or a folder train with a folder per
// synset. nullopt if `dir` has neither. `out`: as for folder_sources(). Throws Error, also if a synset occurs twice.
std::optional<PhotoSources> imagenet_train_sources(const std::string& dir, const std::string& out = "");

// ILSVRC2012_img_val.tar or a folder val, flat or with a folder per synset. Flat files get their labels from the first
// of
//   - `labels`, if not empty: lines `name label`; label is a class's key, or an integer, the index in `classes`; also
//     Kaggle's LOC_val_solution.csv, which is also used if it is in `dir`;
//   - the validation ground truth in ILSVRC2012_devkit_t12.tar.gz, if that is in `dir`.
// `classes`: the known classes (lines of a classes.txt), or empty: the classes of the labels. nullopt if `dir` has no
// validation images. `out`: as for folder_sources(). Throws Error.
std::optional<PhotoSources> imagenet_val_sources(const std::string& dir, const std::string& labels,
                                                 const std::vector<std::string>& classes, const std::string& out = "");

// Lines of a classes.txt: "key<TAB>words" for keys that are synsets of ILSVRC2012, else the key.
std::vector<std::string> named_classes(std::vector<std::string> keys);

}  // namespace owt
