// Unpacks CIFAR's official archives.
#pragma once

#include <string>

namespace owt {

// Unpacks the official cifar-10-binary.tar.gz or cifar-100-binary.tar.gz to cifar-10-batches-bin or cifar-100-binary in
// `dir`, and reads both splits to check them. Returns the path of that folder, which is created atomically. Files that
// are in no official archive are skipped. Throws Error for a damaged archive, an entry outside the archive's folder or
// that is neither file nor folder, more bytes than CIFAR has, data that read_cifar() rejects, or a folder that already
// exists.
std::string unpack_cifar_archive(const std::string& archive, const std::string& dir);

}  // namespace owt
