// Any bytes as a safetensors file.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "src/train/safetensors.h"
#include "tests/fuzz/input.h"

namespace {

// A file in memory, under a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* bytes, size_t count) : file_(memfd_create("fuzz", 0)) {
    owt::promise(file_ >= 0 && write(file_, bytes, count) == static_cast<ssize_t>(count), "a file in memory");
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const MemoryFile file(bytes, count);
  owt::try_reading([&] {
    owt::SafetensorsReader reader(file.path());
    for (const auto& entry : reader.entries()) {
      owt::promise(entry.begin <= entry.end && entry.end <= count, "every tensor lies in the file");
      owt::try_reading(
          [&] { owt::promise(reader.read(entry.name).shape() == entry.shape, "a tensor has the shape that is said"); });
    }
  });
  return 0;
}
