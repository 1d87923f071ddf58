// Reads any bytes as the index of a shard; also with a corrected checksum, which a fuzzer does not find.
#include "data/shard_index.h"
#include "src/system/files.h"
#include "tests/fuzz/input.h"

namespace {

void parse(std::string_view bytes) {
  owt::try_reading([&] {
    const owt::ShardIndex index = owt::parse_shard_index(bytes, "fuzz.index");
    for (const owt::ShardRecord& record : index.records) {
      owt::promise(
          record.bytes > 0 && record.offset <= index.tar_bytes && record.bytes <= index.tar_bytes - record.offset,
          "every record lies in the tar file");
      owt::promise(record.label >= 0 && record.height > 0 && record.width > 0, "every record is a labelled image");
    }
    const std::string again = owt::shard_index_bytes(index);
    owt::promise(again == bytes, "an index has one form");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  parse(owt::text_of(bytes, count));
  std::string content(owt::text_of(bytes, count));
  const uint64_t checksum = owt::checksum_of(content);
  content.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  parse(content);
  return 0;
}
