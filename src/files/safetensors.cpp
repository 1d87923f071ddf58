#include "src/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/system/check.h"
#include "src/system/config.h"
#include "src/system/json_text.h"
#include "src/system/markup.h"

namespace owt {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and is copied as it is");

constexpr uint64_t kLengthBytes = 8, kMaxHeader = 100'000'000;  // the limit of the reference implementation

std::vector<int64_t> extents_of(const Shape& shape) {
  std::vector<int64_t> extents;
  for (int dim = 0; dim < shape.rank(); ++dim) extents.push_back(shape[dim]);
  return extents;
}

std::string make_header(const std::vector<SafetensorsWriter::NamedShape>& entries,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kSafetensorsMetadata] = metadata;
  int64_t offset = 0;
  for (const auto& entry : entries) {
    OWT_CHECK(!header.contains(entry.name) && entry.name != kSafetensorsMetadata, "tensor name '", entry.name,
              "' twice");
    const int64_t end = offset + entry.shape.elements() * 4;
    header[entry.name] = {{"dtype", "F32"}, {"shape", extents_of(entry.shape)}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // readers that map the file need aligned data
  return text;
}

}  // namespace

std::string bare_tensor_name(std::string_view name) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view word : {"module.", "model.", "_orig_mod."})
      if (name.starts_with(word) && name.size() > word.size()) name.remove_prefix(word.size()), found = true;
  }
  return std::string(name);
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<NamedShape> entries,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), entries_(std::move(entries)), file_(path) {
  const std::string header = make_header(entries_, metadata);
  const uint64_t length = header.size();
  file_.write(&length, sizeof length);
  file_.write(header.data(), header.size());
  skip_complete();
}

void SafetensorsWriter::skip_complete() {
  while (current_ < entries_.size() && written_ == entries_[current_].shape.elements()) ++current_, written_ = 0;
}

void SafetensorsWriter::write(const std::string& name, std::span<const float> values) {
  if (values.empty()) return;
  OWT_CHECK(current_ < entries_.size(), path_, " is complete; surplus tensor '", name, "'");
  const NamedShape& entry = entries_[current_];
  OWT_CHECK_EQ(name, entry.name, "tensors are written in the order declared");
  written_ += static_cast<int64_t>(values.size());
  OWT_CHECK(written_ <= entry.shape.elements(), "tensor '", name, "' is ", entry.shape, ", got ", written_,
            " elements");
  file_.write(values.data(), values.size_bytes());
  skip_complete();
}

uint64_t SafetensorsWriter::finish() {
  OWT_CHECK_EQ(current_, entries_.size(), path_, " lacks tensors");
  file_.close();
  return file_.checksum();
}

void SafetensorsReader::bad(const std::string& message) const {
  fail(path_, ": ", message, "; take another copy of this file");
}

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || !file_) fail("cannot read ", path, ": ", error ? error.message() : "it cannot be opened");
  parse_header(read_header(size));
  check_coverage(size - data_begin_);
}

std::string SafetensorsReader::read_header(uint64_t file_size) {
  uint64_t length = 0;
  const auto other_file = [&](const auto&... why) {
    fail(path_, ": no safetensors file, ", why..., "; give one that safetensors' save_file() wrote, or a run");
  };
  if (file_size < kLengthBytes) other_file("it holds only ", file_size, " bytes");
  file_.read(reinterpret_cast<char*>(&length), kLengthBytes);
  const bool starts_json = file_size > kLengthBytes && file_.peek() == '{';
  if (!starts_json || length > kMaxHeader) other_file("it does not begin with a header");
  if (length > file_size - kLengthBytes)
    bad(concat("truncated: the header has ", length, " bytes, the file ", file_size));
  std::string text(length, '\0');
  if (!file_.read(text.data(), static_cast<std::streamsize>(length))) fail("cannot read ", path_, ": disk error");
  data_begin_ = kLengthBytes + length;
  return text;
}

void SafetensorsReader::parse_header(const std::string& text) {
  if (json_depth(text) > kDeepestJson)
    bad(concat("no safetensors file; its header is nested deeper than ", kDeepestJson, " levels"));
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(text);
  } catch (const Error& e) {
    bad(concat("no safetensors file; ", e.what()));
  }
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  for (size_t i = 0; i < entries_.size(); ++i) {
    by_name_[entries_[i].name] = i;
    const auto [same, is_new] = by_bare_name_.emplace(bare_tensor_name(entries_[i].name), i);
    if (!is_new) same->second = entries_.size();  // ambiguous
  }
}

void SafetensorsReader::check_coverage(uint64_t data_size) const {
  uint64_t covered = 0;
  for (const Entry& entry : entries_) {
    if (entry.begin < covered) bad(concat("tensor '", entry.name, "' overlaps the one before it"));
    if (entry.begin > covered)
      bad(concat(entry.begin - covered, " bytes before tensor '", entry.name, "' are no tensor's"));
    covered = entry.end;
  }
  if (covered > data_size) bad(concat("truncated: its tensors need ", covered, " bytes, it holds ", data_size));
  if (covered < data_size) bad(concat("holds ", data_size, " bytes of data, its tensors need only ", covered));
}

const SafetensorsReader::Entry* SafetensorsReader::find(const std::string& name) const {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return &entries_[found->second];
  const auto found = by_bare_name_.find(name);
  return found == by_bare_name_.end() || found->second == entries_.size() ? nullptr : &entries_[found->second];
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i)
    text += concat(i ? ", '" : "'", shortened(names[i], 80), "'");
  return names.size() > kShown ? concat(text, " and ", names.size() - kShown, " more") : text;
}

const SafetensorsReader::Entry& SafetensorsReader::wanted(const std::string& name) const {
  if (const Entry* entry = find(name)) {
    if (!entry->unreadable.empty()) fail(path_, ": tensor '", entry->name, "' ", entry->unreadable);
    return *entry;
  }
  const std::string near = nearest(name, names());
  if (!near.empty()) fail(path_, ": no tensor '", name, "'; the nearest is '", near, "'");
  fail(path_, ": no tensor '", name, "'; it has ", entries_.empty() ? "none" : some_names(names()));
}

Tensor SafetensorsReader::read(const std::string& name) {
  const Entry& entry = wanted(name);
  Tensor tensor(entry.shape);
  read_elements(entry, 0, tensor);
  return tensor;
}

Tensor SafetensorsReader::read_rows(const std::string& name, const Slice& rows) {
  const Entry& entry = wanted(name);
  OWT_CHECK(0 <= rows.begin && rows.end <= entry.shape.rows(), "rows ", rows.begin, " to ", rows.end, " of '", name,
            "', which is ", entry.shape);
  Tensor tensor(entry.shape.with_rows(rows.size()));
  read_elements(entry, rows.begin * entry.shape.row_elements(), tensor);
  return tensor;
}

void SafetensorsReader::read_elements(const Entry& entry, int64_t first, Tensor& elements) {
  const SafetensorsType& type = *safetensors_type(entry.dtype);
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(data_begin_ + entry.begin + static_cast<uint64_t>(first) * type.bytes));
  constexpr int64_t kChunk = 1 << 16;  // elements
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kChunk, elements.elements())) * type.bytes);
  for (int64_t done = 0; done < elements.elements();) {
    const int64_t count = std::min(kChunk, elements.elements() - done);
    const auto bytes = static_cast<std::streamsize>(count) * static_cast<std::streamsize>(type.bytes);
    if (!file_.read(reinterpret_cast<char*>(buffer.data()), bytes))
      fail("cannot read tensor '", entry.name, "' of ", path_, ": the file became shorter or the disk failed");
    type.convert(buffer.data(), count, elements.data() + done);
    done += count;
  }
}

}  // namespace owt
