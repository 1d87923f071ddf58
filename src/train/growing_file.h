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

  // The bytes are with the system when this returns. Throws Error on a full disk.
  void append(std::string_view bytes);

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace owt
