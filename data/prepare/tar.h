// Tar files: places of the members of a plain file, members of a compressed file, and writing.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/system/files.h"

struct archive;

namespace owt {

// Reads tar files, plain or compressed with gzip. No other filters of libarchive are enabled, because some of them
// start programs.
std::unique_ptr<archive, int (*)(archive*)> gzip_tar_reader();

struct TarMember {
  std::string name;
  uint64_t offset = 0, bytes = 0;  // place of its content in the file
};

// The regular files in the part [offset, offset + bytes) of a file, by default all of it. The part is itself a tar
// file. Reads the headers and skips the rest. Throws Error if it is compressed, truncated, or no tar file.
std::vector<TarMember> tar_members(const std::string& path, uint64_t offset = 0, uint64_t bytes = ~uint64_t{0});

// (name, content) of the members of a tar file, plain or compressed with gzip, whose names end in one of `endings`.
// Throws Error, also if they have more than `most` bytes together: a few kilobytes may unpack to more than the memory.
std::vector<std::pair<std::string, std::string>> unpacked_members(const std::string& path,
                                                                  const std::vector<std::string>& endings,
                                                                  uint64_t most = uint64_t{1} << 28);

// A ustar file that depends on its members only: no times, no owner. It is complete after close(), and removed without
// it.
class TarWriter {
 public:
  explicit TarWriter(const std::string& path);
  ~TarWriter();
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  uint64_t add(const std::string& name, std::string_view content);  // returns the offset of the content in the tar file
  uint64_t close();  // returns the size of the tar file, which is then on the disk

 private:
  static long long on_write(struct archive*, void* writer, const void* bytes, size_t count);
  void check(long long result);
  void flush();

  FileWriter file_;
  std::string path_, buffer_;
  uint64_t bytes_ = 0;
  std::exception_ptr error_;  // the error of on_write()
  std::unique_ptr<struct archive, int (*)(struct archive*)> archive_;
};

}  // namespace owt
