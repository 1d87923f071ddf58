#include "src/files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "src/system/check.h"
#include "src/system/markup.h"
#include "src/system/printable.h"

namespace owt {
namespace {

constexpr size_t kMaxRank = 5;

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

constexpr std::array kElementTypes = {
    SafetensorsType{"F32", 4, convert_all<float, f32_itself>},
    SafetensorsType{"F16", 2, convert_all<uint16_t, f16_to_f32>},
    SafetensorsType{"BF16", 2, convert_all<uint16_t, bf16_to_f32>},
    SafetensorsType{"F64", 8, convert_all<double, f64_to_f32>},
    SafetensorsType{"I64", 8, nullptr},
    SafetensorsType{"I32", 4, nullptr},
    SafetensorsType{"I16", 2, nullptr},
    SafetensorsType{"I8", 1, nullptr},
    SafetensorsType{"U8", 1, nullptr},
    SafetensorsType{"BOOL", 1, nullptr},
    SafetensorsType{"U64", 8, nullptr},
    SafetensorsType{"U32", 4, nullptr},
    SafetensorsType{"U16", 2, nullptr},
    SafetensorsType{"F8_E4M3", 1, nullptr},
    SafetensorsType{"F8_E5M2", 1, nullptr},
};

Shape shape_of(const std::vector<uint64_t>& extents) {
  Shape shape;
  for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent)
    shape = shape.batch_of(static_cast<int64_t>(*extent));
  return shape;
}

// The bytes of a tensor of this shape and type. Throws if the size is absurd.
uint64_t bytes_needed(const std::vector<uint64_t>& extents, const SafetensorsType& type) {
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

SafetensorsEntry entry_of(const TensorFields& tensor) {
  SafetensorsEntry entry{tensor.name, field_of(tensor.dtype, "dtype"), {}};
  const std::vector<uint64_t>& extents = field_of(tensor.shape, "shape");
  const std::vector<uint64_t>& offsets = field_of(tensor.data_offsets, "data_offsets");
  if (offsets.size() != 2 || offsets[1] < offsets[0])
    fail("'data_offsets' is ", nlohmann::json(offsets).dump(), ", wanted [begin, end]");
  const SafetensorsType* type = safetensors_type(entry.dtype);
  const uint64_t needed = bytes_needed(extents, type ? *type : SafetensorsType{"", 1, nullptr});
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
  std::vector<SafetensorsEntry> entries{};
  std::map<std::string, std::string> metadata{};

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
    if (level_ == 2 && tensor_.name != kSafetensorsMetadata) entries.push_back(entry_of(tensor_));
    return end();
  }
  bool start_array(size_t) {
    if (level_ == 2 && tensor_.name != kSafetensorsMetadata && (key_ == kShape || key_ == kOffsets))
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
      const bool twice = tensor_.name == kSafetensorsMetadata ? metadata.contains(key)
                         : key == kType                       ? tensor_.dtype.has_value()
                         : key == kShape                      ? tensor_.shape.has_value()
                         : key == kOffsets                    ? tensor_.data_offsets.has_value()
                                                              : false;
      if (twice) fail("'", key, "' stands there twice");
    }
    return true;
  }
  bool string(std::string& text) {
    if (level_ == 2 && tensor_.name == kSafetensorsMetadata)
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
    if (tensor_.name == kSafetensorsMetadata || key_ == kType) fail("'", key_, "' is ", what, ", wanted a text");
    if (key_ == kShape || key_ == kOffsets) fail("'", key_, "' is ", what, ", wanted a list of numbers");
    return true;
  }

  int level_ = 0;  // nesting: 1: in the header; 2: in a tensor or the metadata
  TensorFields tensor_{};
  std::string key_{};
  std::vector<uint64_t>* list_ = nullptr;
  std::set<std::string> names_{};
};

}  // namespace

const SafetensorsType* safetensors_type(const std::string& name) {
  const auto found =
      std::find_if(kElementTypes.begin(), kElementTypes.end(), [&](const auto& type) { return name == type.name; });
  return found == kElementTypes.end() ? nullptr : &*found;
}

SafetensorsHeader parse_safetensors_header(const std::string& text) {
  HeaderParser parser;
  try {
    if (!nlohmann::json::sax_parse(text, &parser)) fail("its header is no JSON object");
  } catch (const Error& e) {
    fail(parser.where(), e.what());
  }
  return {std::move(parser.entries), std::move(parser.metadata)};
}

}  // namespace owt
