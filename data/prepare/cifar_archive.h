// CIFAR's official archives, unpacked.
#pragma once

#include <string>

namespace owt {

// Unpacks the official cifar-10-binary.tar.gz or cifar-100-binary.tar.gz, so that `dir` holds cifar-10-batches-bin or
// cifar-100-binary, and reads both splits to check them. Returns the path of that folder. It appears as a whole or not
// at all. Files that no official archive has are passed over. Throws Error: a damaged archive, an entry outside the
// archive's folder or that is neither file nor folder, more bytes than CIFAR has, data that read_cifar() rejects, a
// folder that exists already.
std::string unpack_cifar_archive(const std::string& archive, const std::string& dir);

}  // namespace owt
