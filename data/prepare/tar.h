// Tar files: where the members of a plain one lie, members of a compressed one, and writing.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/files.h"

struct archive;

namespace owt {

// Reads tar files, plain or compressed with gzip, and no others: of libarchive's filters some start programs.
std::unique_ptr<archive, int (*)(archive*)> gzip_tar_reader();

struct TarMember {
  std::string name;
  uint64_t offset = 0, bytes = 0;  // where its content lies in the file
};

// The regular files in the part [offset, offset + bytes) of a file, by default all of it, which is a tar file itself.
// Reads the headers and skips the rest. Throws Error for what is no uncompressed tar file, or a truncated one.
std::vector<TarMember> tar_members(const std::string& path, uint64_t offset = 0, uint64_t bytes = ~uint64_t{0});

// (name, content) of the members of a tar file, compressed with gzip or not, whose names end in one of `endings`.
// Throws Error, also where they have more than `most` bytes together: a few kilobytes can be unpacked to all of the
// memory.
std::vector<std::pair<std::string, std::string>> unpacked_members(const std::string& path,
                                                                  const std::vector<std::string>& endings,
                                                                  uint64_t most = uint64_t{1} << 28);

// A ustar file that depends on its members alone: no times, no owner. Complete after close(), gone without it.
class TarWriter {
 public:
  explicit TarWriter(const std::string& path);
  ~TarWriter();
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  uint64_t add(const std::string& name, std::string_view content);  // the offset of the content in the tar file
  uint64_t close();                                                 // bytes of the tar file, which is on the disk now

 private:
  static long long on_write(struct archive*, void* writer, const void* bytes, size_t count);
  void check(long long result);
  void flush();

  FileWriter file_;
  std::string path_, buffer_;
  uint64_t bytes_ = 0;
  std::exception_ptr error_;  // what failed in on_write()
  std::unique_ptr<struct archive, int (*)(struct archive*)> archive_;
};

}  // namespace owt
