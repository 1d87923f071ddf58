// A file of a run to which records are appended.
#pragma once

#include <string>
#include <string_view>

namespace owt {

class GrowingFile {
 public:
  // Appends to an existing file. Throws Error if it cannot be written.
  explicit GrowingFile(const std::string& path);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  // The system has the bytes when this returns. If the disk is full, it logs a warning and keeps them in memory for the
  // next call. Throws Error if they cannot be written for other reasons.
  void append(std::string_view bytes);
  bool is_complete() const { return waiting_.empty(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_;
  std::string waiting_;  // bytes for which there was no room
};

}  // namespace owt
