// What is in a folder that was taken for a data set of another kind, and what to do with it.
#pragma once

#include <string>

namespace owt {

// "it holds folders of images (cat, dog); owt prepare folder PICTURES OUT makes a data set of them": looks for prepared
// photographs, CIFAR files, the archives of ILSVRC2012, tar files, folders of images and images. Empty where it holds
// none of these, or is no folder.
std::string other_data(const std::string& folder);

}  // namespace owt
