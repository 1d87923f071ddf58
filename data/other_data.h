// What is in a folder that was taken for a data set of another kind, and what to do with it.
#pragma once

#include <filesystem>
#include <string>

namespace owt {

// Whether there is such a file or folder. What cannot be looked at is not there.
bool is_there(const std::filesystem::path& path);

// "it holds folders of images (cat, dog); owt prepare folder PICTURES OUT makes a data set of them": looks for prepared
// photographs, CIFAR files, the archives of ILSVRC2012, tar files, folders of images and images. Empty where it holds
// none of these, or is no folder.
std::string other_data(const std::string& folder);

}  // namespace owt
