// Describes a folder that is not the expected kind of data set, and says what to do with it.
#pragma once

#include <filesystem>
#include <string>

namespace owt {

// Whether a file or folder exists. A path that cannot be examined does not exist.
bool is_there(const std::filesystem::path& path);

// "it holds folders of images (cat, dog); owt prepare folder PICTURES OUT makes a data set of them". Looks for prepared
// photographs, CIFAR files, the archives of ILSVRC2012, tar files, folders of images and images. Empty if the folder
// holds none of these, or is no folder.
std::string other_data(const std::string& folder);

}  // namespace owt
