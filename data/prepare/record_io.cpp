#include "data/prepare/record_io.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "data/photos/bytes.h"
#include "src/system/check.h"
#include "src/system/input_file.h"
#include "src/system/printable.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kRecordMagic = 0xced7230a;
constexpr uint64_t kPartHead = 8, kHeader = 24, kOneLabel = 4, kLargestRecord = uint64_t{1} << 30;
constexpr float kMostRecordLabels = 1 << 24;  // floats are exact up to there
enum PartKind : uint32_t { kWhole, kFirst, kMiddle, kLast };

struct RecordPart {
  uint32_t kind = 0;
  uint64_t bytes = 0;  // without the padding

  uint64_t end() const { return kPartHead + (bytes + 3) / 4 * 4; }
  bool ends_record() const { return kind == kWhole || kind == kLast; }
};

RecordPart part_at(const Bytes& bytes, uint64_t offset) {
  if (bytes.little(offset, 4) != kRecordMagic) bytes.damaged("a part does not begin with its number");
  const uint32_t word = bytes.little(offset + 4, 4);
  const RecordPart part{word >> 29, word & ((1u << 29) - 1)};
  if (part.kind > kLast) bytes.damaged("a part of an unknown kind");
  return part;
}

struct RecordHeader {
  uint32_t flag = 0;
  float label = 0;  // the first one
  uint64_t id = 0;
  uint64_t bytes = kHeader;  // with all labels
};

// content: the beginning of a record's content, which has `count` bytes.
RecordHeader header_of(std::string_view content, uint64_t count) {
  const Bytes bytes(content, "record");
  const auto number = [&](uint64_t offset) { return std::bit_cast<float>(bytes.little(offset, 4)); };
  RecordHeader header{.flag = bytes.little(0, 4), .label = number(4)};
  header.id = uint64_t{bytes.little(12, 4)} << 32 | bytes.little(8, 4);
  header.bytes += 4 * uint64_t{header.flag};
  if (header.bytes > count) bytes.damaged("it ends before its labels");
  if (header.flag > 0) header.label = number(kHeader);
  return header;
}

std::string joined_parts(std::string_view record) {
  const Bytes bytes(record, "record");
  std::string content;
  uint64_t offset = 0;
  for (RecordPart part = part_at(bytes, 0);; part = part_at(bytes, offset)) {
    if ((part.kind == kWhole || part.kind == kFirst) != (offset == 0)) bytes.damaged("its parts are in another order");
    if (offset > 0) content.append(reinterpret_cast<const char*>(&kRecordMagic), sizeof(kRecordMagic));
    content += bytes.part(offset + kPartHead, part.bytes);
    if (part.ends_record()) return content;
    offset += part.end();
  }
}

// The headers of a file's records, one after the other.
class RecordReader {
 public:
  explicit RecordReader(const std::string& path) : path_(path), file_(path) {
    if (!file_.is_open()) fail("cannot read ", path, ": ", std::strerror(errno));
    if (file_.size() < 0) fail(path, " is no regular file");
    size_ = static_cast<uint64_t>(file_.size());
  }

  struct RecordPlace {
    uint64_t offset = 0, bytes = 0;
    RecordHeader header{};
    bool has_image = false;
  };
  std::optional<RecordPlace> next() try {
    if (at_ == size_) return std::nullopt;
    const RecordPart first = part(at_);
    uint64_t bytes = first.end();
    for (RecordPart last = first; !last.ends_record() && bytes <= kLargestRecord; bytes += last.end())
      last = part(at_ + bytes);
    if (bytes > size_ - at_) throw BadPhoto("the record ends beyond the file");
    if (bytes > kLargestRecord) throw BadPhoto("a record of more than a gigabyte");
    // Few records have several parts, so these are read whole.
    const bool whole = first.kind == kWhole;
    const std::string content =
        whole ? read(at_ + kPartHead, std::min(first.bytes, kHeader + kOneLabel)) : joined_parts(read(at_, bytes));
    const uint64_t count = whole ? first.bytes : content.size();
    const RecordHeader header = header_of(content, count);
    const RecordPlace record{at_, bytes, header, count > header.bytes};
    at_ += bytes;
    return record;
  } catch (const BadPhoto& e) {
    fail(path_, ", byte ", at_, ": ", e.what(), "; it is no RecordIO file of images, or it is damaged");
  }

 private:
  std::string read(uint64_t offset, uint64_t count) const {
    if (offset > size_ || count > size_ - offset) throw BadPhoto("the record ends beyond the file");
    std::string bytes(count, '\0');
    if (const std::string problem = file_.read(offset, bytes); !problem.empty())
      fail("cannot read ", path_, ": ", problem);
    return bytes;
  }
  RecordPart part(uint64_t offset) const {
    const std::string head = read(offset, kPartHead);
    return part_at({head, "record"}, 0);
  }

  std::string path_;
  InputFile file_;
  uint64_t size_ = 0, at_ = 0;
};

struct IndexEntry {
  uint64_t offset = 0, key = 0;
};

// The entries in the order of the offsets.
std::vector<IndexEntry> read_record_index(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("cannot read ", path, ": ", std::strerror(errno));
  std::vector<IndexEntry> entries;
  for (std::string line; std::getline(file, line);) {
    IndexEntry entry;
    const char* const end = line.data() + line.size();
    const auto [tab, no_key] = std::from_chars(line.data(), end, entry.key);
    const auto [rest, no_offset] = std::from_chars(std::min(tab + 1, end), end, entry.offset);
    if (no_key != std::errc() || no_offset != std::errc() || *tab != '\t' || (rest != end && *rest != '\r'))
      fail(path, ":", entries.size() + 1, ": wanted `key<TAB>offset`, found '", printable(line.substr(0, 80)), "'");
    entries.push_back(entry);
  }
  if (file.bad()) fail("cannot read ", path, ": ", std::strerror(errno));
  std::ranges::sort(entries, {}, &IndexEntry::offset);
  const auto twice = std::ranges::adjacent_find(entries, {}, &IndexEntry::offset);
  if (twice != entries.end()) fail(path, ": offset ", twice->offset, " is there twice");
  return entries;
}

int32_t label_of(const std::string& path, uint64_t key, float label) {
  if (!(label >= 0 && label < kMostRecordLabels && label == std::floor(label)))
    fail(path, ": record ", key, " has label ", label, ", wanted an integer from 0 to ", (int64_t{1} << 24) - 1);
  return static_cast<int32_t>(label);
}

}  // namespace

std::vector<ImageRecord> image_records(const std::string& path, const std::string& index) {
  std::vector<IndexEntry> entries;
  if (!index.empty()) entries = read_record_index(index);
  auto entry = entries.begin();
  std::vector<ImageRecord> images;
  double end = HUGE_VAL;  // images have lower keys
  RecordReader reader(path);
  while (const auto record = reader.next()) {
    ImageRecord image{.key = record->header.id, .offset = record->offset, .bytes = record->bytes};
    if (!index.empty()) {
      if (entry == entries.end() || entry->offset > record->offset) continue;  // the index leaves it out
      if (entry->offset < record->offset) break;
      image.key = (entry++)->key;
    }
    if (image.key == 0 && record->header.flag > 1 && !record->has_image) {
      end = record->header.label;
    } else if (record->has_image) {
      image.label = label_of(path, image.key, record->header.label);
      images.push_back(image);
    }
  }
  if (entry != entries.end())
    fail(index, " has offset ", entry->offset, ", but no record of ", path,
         " begins there; they do not belong together");
  std::erase_if(images, [&](const ImageRecord& image) { return static_cast<double>(image.key) >= end; });
  if (images.empty()) fail(path, " holds no images");
  return images;
}

std::string image_of_record(std::string_view bytes) {
  std::string content = joined_parts(bytes);
  content.erase(0, header_of(content, content.size()).bytes);
  return content;
}

PhotoSources record_sources(const std::string& path, const std::vector<std::string>& classes) {
  PhotoSources sources{.archives = {path}, .records = true, .classes = classes};
  const fs::path index = fs::path(path).replace_extension(".idx");
  const std::string name = fs::path(path).filename().string();
  for (const ImageRecord& image : image_records(path, fs::exists(index) && index != path ? index.string() : "")) {
    if (!classes.empty() && image.label >= std::ssize(classes))
      fail(path, ": record ", image.key, " has label ", image.label, ", but there are ", classes.size(), " classes");
    sources.photos.push_back({.name = concat(name, ":", image.key),
                              .label = image.label,
                              .archive = 0,
                              .offset = image.offset,
                              .bytes = image.bytes});
  }
  number_classes(sources, path);
  return sources;
}

}  // namespace owt
