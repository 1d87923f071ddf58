// Reads any bytes as the dataset.json or stats.json of a prepared data set.
#include "data/json_numbers.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const owt::MemoryFile file(bytes, count);
  owt::try_reading([&] {
    const owt::JsonNumbers json(file.path());
    for (const char* key : {"shards", "images", "classes"})
      owt::try_reading([&] {
        const int64_t found = json.count(key);
        owt::promise(found >= 0 && found <= int64_t{1'000'000'000'000'000}, "a count is one");
      });
    for (const size_t wanted : {3, 9})
      for (const char* key : {"mean", "std", "covariance", "eigenvalues", "eigenvectors"})
        owt::try_reading(
            [&] { owt::promise(json.numbers(key, wanted).size() == wanted, "as many numbers as asked for"); });
  });
  return 0;
}
