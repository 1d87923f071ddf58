#include "src/train/files/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "src/core/check.h"
#include "src/core/config.h"
#include "src/core/json_text.h"

namespace owt {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and is copied as it is");

constexpr uint64_t kLengthBytes = 8, kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxRank = 5;
constexpr const char* kMetadata = "__metadata__";

float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half >> 15) << 31, exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;  // the biases are 15 and 127
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

template <class T>
float cast_to_f32(T value) {
  return static_cast<float>(value);
}

template <class T, float (*convert)(T)>
void convert_all(const std::byte* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    to[i] = convert(value);
  }
}

struct ElementType {
  const char* name;
  uint64_t bytes;
  void (*convert)(const std::byte*, int64_t, float*);  // null: cannot be read
};

constexpr std::array kElementTypes = {
    ElementType{"F32", 4, convert_all<float, cast_to_f32<float>>},
    ElementType{"F16", 2, convert_all<uint16_t, f16_to_f32>},
    ElementType{"BF16", 2, convert_all<uint16_t, bf16_to_f32>},
    ElementType{"F64", 8, convert_all<double, cast_to_f32<double>>},
    ElementType{"I64", 8, convert_all<int64_t, cast_to_f32<int64_t>>},
    ElementType{"I32", 4, convert_all<int32_t, cast_to_f32<int32_t>>},
    ElementType{"I16", 2, convert_all<int16_t, cast_to_f32<int16_t>>},
    ElementType{"I8", 1, convert_all<int8_t, cast_to_f32<int8_t>>},
    ElementType{"U8", 1, convert_all<uint8_t, cast_to_f32<uint8_t>>},
    ElementType{"BOOL", 1, convert_all<uint8_t, cast_to_f32<uint8_t>>},
    ElementType{"U64", 8, nullptr},
    ElementType{"U32", 4, nullptr},
    ElementType{"U16", 2, nullptr},
    ElementType{"F8_E4M3", 1, nullptr},
    ElementType{"F8_E5M2", 1, nullptr},
};

const ElementType* element_type(const std::string& name) {
  const auto found =
      std::find_if(kElementTypes.begin(), kElementTypes.end(), [&](const auto& type) { return name == type.name; });
  return found == kElementTypes.end() ? nullptr : &*found;
}

Shape shape_of(const std::vector<uint64_t>& extents) {
  Shape shape;
  for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent)
    shape = shape.batch_of(static_cast<int64_t>(*extent));
  return shape;
}

std::vector<int64_t> extents_of(const Shape& shape) {
  std::vector<int64_t> extents;
  for (int dim = 0; dim < shape.rank(); ++dim) extents.push_back(shape[dim]);
  return extents;
}

std::vector<uint64_t> unsigned_list(const nlohmann::json& tensor, const char* key) {
  std::vector<uint64_t> list;
  for (const nlohmann::json& value : tensor.at(key)) {
    if (!value.is_number_unsigned())
      throw std::invalid_argument(concat("'", key, "' holds ", value.is_number() ? value.dump() : value.type_name()));
    list.push_back(value.get<uint64_t>());
  }
  return list;
}

// The bytes of `extents` elements of `type`; throws where the number is absurd.
uint64_t bytes_needed(const std::vector<uint64_t>& extents, const ElementType& type) {
  uint64_t bytes = type.bytes;
  for (const uint64_t extent : extents)
    if (__builtin_mul_overflow(bytes, extent, &bytes) || extent > uint64_t{1} << 48)
      throw std::invalid_argument("'shape' is too large for any file");
  return bytes;
}

// Throws std::exception with what is wrong.
SafetensorsReader::Entry parse_entry(const std::string& name, const nlohmann::json& tensor) {
  SafetensorsReader::Entry entry{name, tensor.at("dtype").get<std::string>(), {}, 0, 0};
  const ElementType* type = element_type(entry.dtype);
  if (!type) throw std::invalid_argument("unknown dtype '" + entry.dtype + "'");
  const std::vector<uint64_t> extents = unsigned_list(tensor, "shape");
  if (extents.size() > kMaxRank)
    throw std::invalid_argument(concat("has ", extents.size(), " dimensions, wanted at most ", kMaxRank));
  const std::vector<uint64_t> offsets = unsigned_list(tensor, "data_offsets");
  if (offsets.size() != 2 || offsets[1] < offsets[0])
    throw std::invalid_argument("'data_offsets' is " + tensor.at("data_offsets").dump() + ", wanted [begin, end]");
  const uint64_t needed = bytes_needed(extents, *type);
  if (offsets[1] - offsets[0] != needed)
    throw std::invalid_argument(concat("'data_offsets' span ", offsets[1] - offsets[0], " bytes, but its shape in ",
                                       entry.dtype, " needs ", needed));
  entry.shape = shape_of(extents);
  entry.begin = offsets[0];
  entry.end = offsets[1];
  return entry;
}

std::string make_header(const std::vector<SafetensorsWriter::Entry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t offset = 0;
  for (const auto& entry : entries) {
    OWT_CHECK(!header.contains(entry.name) && entry.name != kMetadata, "tensor name '", entry.name, "' twice");
    const int64_t end = offset + entry.shape.elements() * 4;
    header[entry.name] = {{"dtype", "F32"}, {"shape", extents_of(entry.shape)}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // readers that map the file want aligned data
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<Entry> entries,
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
  const Entry& entry = entries_[current_];
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
  if (file_size < kLengthBytes) bad(concat("no safetensors file, it holds only ", file_size, " bytes"));
  file_.read(reinterpret_cast<char*>(&length), kLengthBytes);
  const bool starts_json = file_size > kLengthBytes && file_.peek() == '{';
  if (!starts_json || length > kMaxHeader) bad("no safetensors file, it does not begin with a header");
  if (length > file_size - kLengthBytes)
    bad(concat("truncated: the header has ", length, " bytes, the file ", file_size));
  std::string text(length, '\0');
  if (!file_.read(text.data(), static_cast<std::streamsize>(length))) fail("cannot read ", path_, ": disk error");
  data_begin_ = kLengthBytes + length;
  return text;
}

void SafetensorsReader::parse_header(const std::string& text) {
  nlohmann::json header;
  try {
    header = json_object<nlohmann::json>(text);
  } catch (const Error& e) {
    bad(concat("no safetensors file; of its header: ", e.what()));
  }
  for (const auto& [name, value] : header.items()) {
    try {
      if (name == kMetadata)
        metadata_ = value.get<std::map<std::string, std::string>>();
      else
        entries_.push_back(parse_entry(name, value));
    } catch (const std::exception& e) {
      bad(concat("tensor '", name, "': ", e.what()));
    }
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
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
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

const SafetensorsReader::Entry& SafetensorsReader::wanted(const std::string& name) const {
  if (const Entry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const Entry& e : entries_) names.push_back(e.name);
  const std::string near = nearest(name, names);
  fail(path_, ": no tensor '", name, "'", near.empty() ? "" : concat("; the nearest is '", near, "'"));
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
  const ElementType& type = *element_type(entry.dtype);
  if (!type.convert)
    fail(path_, ": tensor '", entry.name, "' has elements of type ", entry.dtype, "; save it as F32, F16 or BF16");
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
