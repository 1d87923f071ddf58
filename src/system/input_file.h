// A file that is read at given places; several threads may read it at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace owt {

class InputFile {
 public:
  InputFile() = default;
  explicit InputFile(const std::string& path);  // does not wait for the other end of a pipe
  InputFile(InputFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  InputFile& operator=(InputFile&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~InputFile();

  bool is_open() const { return file_ >= 0; }  // false: errno says why, directly after the constructor
  // Bytes; -1 if it is not open or no regular file.
  int64_t size() const;
  // Only the bytes that are read are fetched from the disk, all at once.
  void expect_random_access() const;
  // Fills `bytes` with the content from `offset` on. Returns why that is impossible; empty: it is done.
  std::string read(uint64_t offset, std::span<char> bytes) const;

 private:
  int file_ = -1;
};

}  // namespace owt
