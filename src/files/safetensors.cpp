#include "src/files/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "src/core/check.h"
#include "src/core/config.h"
#include "src/core/json_text.h"
#include "src/core/markup.h"
#include "src/core/printable.h"

namespace owt {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and is copied as it is");

constexpr uint64_t kLengthBytes = 8, kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxRank = 5;
constexpr const char* kMetadata = "__metadata__";
using Texts = std::map<std::string, std::string>;

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

float f32_itself(float value) { return value; }
float f64_to_f32(double value) { return static_cast<float>(value); }

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
    ElementType{"F32", 4, convert_all<float, f32_itself>},
    ElementType{"F16", 2, convert_all<uint16_t, f16_to_f32>},
    ElementType{"BF16", 2, convert_all<uint16_t, bf16_to_f32>},
    ElementType{"F64", 8, convert_all<double, f64_to_f32>},
    ElementType{"I64", 8, nullptr},
    ElementType{"I32", 4, nullptr},
    ElementType{"I16", 2, nullptr},
    ElementType{"I8", 1, nullptr},
    ElementType{"U8", 1, nullptr},
    ElementType{"BOOL", 1, nullptr},
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

// The bytes of a tensor of this shape and type. Throws if the size is absurd.
uint64_t bytes_needed(const std::vector<uint64_t>& extents, const ElementType& type) {
  uint64_t bytes = type.bytes;
  for (const uint64_t extent : extents)
    if (__builtin_mul_overflow(bytes, extent, &bytes) || extent > uint64_t{1} << 48)
      fail("'shape' is too large for any file");
  return bytes;
}

bool is_integer(const std::string& dtype) { return dtype[0] == 'I' || dtype[0] == 'U' || dtype == "BOOL"; }

// A tensor's fields in the header.
struct TensorFields {
  std::string name;
  std::optional<std::string> dtype{};
  std::optional<std::vector<uint64_t>> shape{}, data_offsets{};
};

template <class T>
const T& field_of(const std::optional<T>& field, const char* key) {
  if (!field) fail("there is no '", key, "'");
  return *field;
}

SafetensorsReader::Entry entry_of(const TensorFields& tensor) {
  SafetensorsReader::Entry entry{tensor.name, field_of(tensor.dtype, "dtype"), {}};
  const std::vector<uint64_t>& extents = field_of(tensor.shape, "shape");
  const std::vector<uint64_t>& offsets = field_of(tensor.data_offsets, "data_offsets");
  if (offsets.size() != 2 || offsets[1] < offsets[0])
    fail("'data_offsets' is ", nlohmann::json(offsets).dump(), ", wanted [begin, end]");
  const ElementType* type = element_type(entry.dtype);
  const uint64_t needed = bytes_needed(extents, type ? *type : ElementType{"", 1, nullptr});
  if (type && offsets[1] - offsets[0] != needed)
    fail("'data_offsets' span ", offsets[1] - offsets[0], " bytes, but its shape in ", entry.dtype, " needs ", needed);
  entry.begin = offsets[0];
  entry.end = offsets[1];
  if (extents.size() > kMaxRank)
    entry.unreadable = concat("has ", extents.size(), " dimensions, wanted at most ", kMaxRank);
  else
    entry.shape = shape_of(extents);
  if (!type || !type->convert)
    entry.unreadable =
        concat("has elements of type ", printable(shortened(entry.dtype, 20)), ", wanted F32, F16, BF16 or F64; ",
               is_integer(entry.dtype) ? "integers stand for weights only with their scales: save it unquantised"
                                       : "save it as one of them");
  return entry;
}

// Receives the header piece by piece from nlohmann's parser. Its cost depends on the tensors only, whatever else the
// header contains. Throws Error with the problem.
class HeaderParser {
 public:
  std::vector<SafetensorsReader::Entry> entries{};
  Texts metadata{};

  // Names the tensor with a problem, for messages.
  std::string where() const {
    return level_ > 0 && !tensor_.name.empty() ? concat("tensor '", tensor_.name, "': ") : "";
  }

  bool start_object(size_t) {
    if (level_ > 1) value("an object");
    ++level_;
    return true;
  }
  bool end_object() {
    if (level_ == 2 && tensor_.name != kMetadata) entries.push_back(entry_of(tensor_));
    return end();
  }
  bool start_array(size_t) {
    if (level_ == 2 && tensor_.name != kMetadata && (key_ == kShape || key_ == kOffsets))
      list_ = &(key_ == kShape ? tensor_.shape : tensor_.data_offsets).emplace();
    else
      value("a list");
    ++level_;
    return true;
  }
  bool end_array() { return end(); }
  bool key(std::string& key) {
    if (level_ == 1) {
      tensor_ = {};
      if (!names_.insert(key).second) fail("it names '", key, "' twice");
      tensor_.name = key;
    } else if (level_ == 2) {
      key_ = key;
      const bool twice = tensor_.name == kMetadata ? metadata.contains(key)
                         : key == kType            ? tensor_.dtype.has_value()
                         : key == kShape           ? tensor_.shape.has_value()
                         : key == kOffsets         ? tensor_.data_offsets.has_value()
                                                   : false;
      if (twice) fail("'", key, "' stands there twice");
    }
    return true;
  }
  bool string(std::string& text) {
    if (level_ == 2 && tensor_.name == kMetadata)
      metadata[key_] = text;
    else if (level_ == 2 && key_ == kType)
      tensor_.dtype = text;
    else
      value("a text");
    return true;
  }
  bool number_unsigned(uint64_t number) {
    if (!list_) return value("a number");
    if (list_->size() == kMostExtents) fail("'", key_, "' has more than ", kMostExtents, " numbers");
    list_->push_back(number);
    return true;
  }
  bool number_integer(int64_t number) { return value(list_ ? std::to_string(number) : "a number"); }
  bool number_float(double, const std::string& digits) { return value(list_ ? digits : "a number"); }
  bool boolean(bool) { return value("true or false"); }
  bool null() { return value("null"); }
  bool binary(nlohmann::json::binary_t&) { return value("bytes"); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) { return false; }

 private:
  static constexpr const char *kType = "dtype", *kShape = "shape", *kOffsets = "data_offsets";
  static constexpr size_t kMostExtents = 64;

  bool end() {
    if (--level_ == 2) list_ = nullptr;
    return true;
  }
  // Handles a value of an unexpected kind; values of unknown keys are ignored.
  bool value(const std::string& what) {
    if (level_ == 0) fail("it is no JSON object");
    if (level_ == 1) fail("it is ", what, ", wanted an object");
    if (list_) fail("'", key_, "' holds ", what);
    if (level_ > 2) return true;
    if (tensor_.name == kMetadata || key_ == kType) fail("'", key_, "' is ", what, ", wanted a text");
    if (key_ == kShape || key_ == kOffsets) fail("'", key_, "' is ", what, ", wanted a list of numbers");
    return true;
  }

  int level_ = 0;  // nesting: 1: in the header; 2: in a tensor or the metadata
  TensorFields tensor_{};
  std::string key_{};
  std::vector<uint64_t>* list_ = nullptr;
  std::set<std::string> names_{};
};

std::string make_header(const std::vector<SafetensorsWriter::NamedShape>& entries,
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
  HeaderParser parser;
  try {
    if (!nlohmann::json::sax_parse(text, &parser)) fail("its header is no JSON object");
  } catch (const Error& e) {
    bad(concat("no safetensors file; ", parser.where(), e.what()));
  }
  entries_ = std::move(parser.entries);
  metadata_ = std::move(parser.metadata);
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
  const ElementType& type = *element_type(entry.dtype);
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
