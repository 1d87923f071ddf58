#include "data/shard_index.h"

#include <cstring>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr std::string_view kMagic = "OWTSHARD";
constexpr uint32_t kVersion = 1;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "index files are little-endian and copied as they lie");

struct IndexHeader {
  char magic[8];
  uint32_t version, records;
  uint64_t tar_bytes, name_bytes;
};
struct IndexRecord {
  uint64_t offset, checksum;
  uint32_t bytes, height, width;
  int32_t label;
  uint32_t name_bytes, zero;
};
static_assert(sizeof(IndexHeader) == 32 && sizeof(IndexRecord) == 40);

template <class T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
T at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

constexpr const char* kPrepareAgain = "; run owt prepare again";

}  // namespace

std::string shard_index_bytes(const ShardIndex& index) {
  uint64_t name_bytes = 0;
  for (const ShardRecord& record : index.records) name_bytes += record.name.size();
  IndexHeader header{{}, kVersion, static_cast<uint32_t>(index.records.size()), index.tar_bytes, name_bytes};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  std::string out;
  append(out, header);
  for (const ShardRecord& r : index.records)
    append(out, IndexRecord{r.offset, r.checksum, r.bytes, r.height, r.width, r.label,
                            static_cast<uint32_t>(r.name.size()), 0});
  for (const ShardRecord& record : index.records) out += record.name;
  append(out, checksum_of(out));
  return out;
}

ShardIndex parse_shard_index(std::string_view bytes, const std::string& path) {
  constexpr size_t kLeast = sizeof(IndexHeader) + sizeof(uint64_t);
  if (bytes.size() < kLeast || bytes.substr(0, kMagic.size()) != kMagic)
    fail(path, " is no shard index", bytes.empty() ? " (it is empty)" : "", kPrepareAgain);
  const auto header = at<IndexHeader>(bytes, 0);
  if (header.version != kVersion)
    fail(path, " is a shard index of version ", header.version, ", wanted ", kVersion, kPrepareAgain);
  const size_t room = bytes.size() - kLeast;
  const uint64_t entry_bytes = uint64_t{header.records} * sizeof(IndexRecord);
  if (entry_bytes > room || header.name_bytes != room - entry_bytes)
    fail(path, " has ", bytes.size(), " bytes, which do not fit its ", header.records, " records: it is truncated",
         kPrepareAgain);
  if (checksum_of(bytes.substr(0, bytes.size() - sizeof(uint64_t))) !=
      at<uint64_t>(bytes, bytes.size() - sizeof(uint64_t)))
    fail(path, " is damaged: its checksum does not match", kPrepareAgain);
  ShardIndex index;
  index.tar_bytes = header.tar_bytes;
  index.records.reserve(header.records);
  std::string_view names = bytes.substr(sizeof(IndexHeader) + entry_bytes, header.name_bytes);
  for (uint32_t i = 0; i < header.records; ++i) {
    const auto e = at<IndexRecord>(bytes, sizeof(IndexHeader) + i * sizeof(IndexRecord));
    if (e.bytes == 0 || e.offset > header.tar_bytes || e.bytes > header.tar_bytes - e.offset || e.height == 0 ||
        e.width == 0 || e.label < 0 || e.zero != 0 || e.name_bytes > names.size())
      fail(path, ": record ", i, " (from 0) is out of range", kPrepareAgain);
    index.records.push_back(
        {e.offset, e.checksum, e.bytes, e.height, e.width, e.label, std::string(names.substr(0, e.name_bytes))});
    names.remove_prefix(e.name_bytes);
  }
  if (!names.empty()) fail(path, " holds ", names.size(), " bytes of names too many", kPrepareAgain);
  return index;
}

std::string shard_file_name(int64_t shard, const std::string& suffix) { return format("{:06}", shard) + suffix; }

}  // namespace owt
