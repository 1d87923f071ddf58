// Reads any bytes as a RecordIO file, and what comes before the first empty line as its index.
#include "data/prepare/record_io.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const std::string_view all = owt::text_of(bytes, count);
  const size_t line = all.find("\n\n"), begin = line == all.npos ? 0 : line + 2;
  const std::string_view records = all.substr(begin);
  const owt::MemoryFile file(bytes + begin, count - begin), index(bytes, begin == 0 ? 0 : begin - 1);
  for (const std::string& index_path : {std::string(), index.path()})
    owt::try_reading([&] {
      for (const owt::ImageRecord& image : owt::image_records(file.path(), index_path)) {
        owt::promise(image.label >= 0 && image.label < 1 << 24, "labels are classes");
        owt::promise(image.offset <= records.size() && image.bytes <= records.size() - image.offset,
                     "every record lies in the file");
        owt::promise(!owt::image_of_record(records.substr(image.offset, image.bytes)).empty(),
                     "every record that is listed has an image");
      }
    });
  return 0;
}
