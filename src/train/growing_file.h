// A file of a run that grows by records.
#pragma once

#include <string>
#include <string_view>

namespace owt {

class GrowingFile {
 public:
  // Appends to what is there. Throws Error where it cannot be written.
  explicit GrowingFile(const std::string& path);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  // The bytes are with the system when this returns. On a full disk they wait in memory, with a warning, for the next
  // call. Throws Error where they cannot be written for other reasons.
  void append(std::string_view bytes);
  bool is_complete() const { return waiting_.empty(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_;
  std::string waiting_;  // that there was no room for
};

}  // namespace owt
