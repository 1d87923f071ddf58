// Reads any bytes as a safetensors file.
#include "src/files/safetensors.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const owt::MemoryFile file(bytes, count);
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
