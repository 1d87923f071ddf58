#include "data/prepare/ilsvrc_devkit.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "data/prepare/photo_sources.h"
#include "data/prepare/tar.h"
#include "src/core/check.h"
#include "src/core/files.h"

namespace owt {
namespace {

// Types of data elements.
enum : uint32_t { kInt8 = 1, kUint8, kInt16, kUint16, kInt32, kUint32, kSingle, kDouble = 9, kInt64 = 12, kUint64 };
enum : uint32_t { kMatrix = 14, kCompressed, kUtf8 };
constexpr uint32_t kStruct = 2;  // a class of matrices
constexpr uint64_t kMostBytes = uint64_t{1} << 28;

struct Element {
  uint32_t type = 0;
  std::string_view data;
};

// Reads data elements in order.
class Elements {
 public:
  Elements(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  bool done() const { return bytes_.empty(); }

  Element next() {
    const uint32_t word = number(0);
    // Elements of at most four bytes have size and type in one word; the next word holds the data.
    if (word >> 16 != 0) return take(word & 0xffff, 4, word >> 16, 8);
    const uint64_t bytes = number(4);
    // Compressed elements are not padded.
    return take(word, 8, bytes, 8 + (word == kCompressed ? bytes : (bytes + 7) / 8 * 8));
  }
  Element next(uint32_t type) {
    const Element element = next();
    if (element.type != type) damaged();
    return element;
  }
  const std::string& path() const { return path_; }
  [[noreturn]] void damaged() const {
    fail(path_, ": its meta.mat is no MATLAB 5 file, or a damaged one; download the development kit again");
  }

 private:
  uint32_t number(size_t offset) const {
    uint32_t value = 0;
    if (bytes_.size() < offset + sizeof value) damaged();
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  Element take(uint32_t type, uint64_t begin, uint64_t count, uint64_t all) {
    if (begin + count > bytes_.size()) damaged();
    const Element element{type, bytes_.substr(begin, count)};
    bytes_.remove_prefix(std::min<uint64_t>(all, bytes_.size()));
    return element;
  }

  std::string_view bytes_;
  const std::string& path_;
};

std::string inflated(std::string_view data, const Elements& where) {
  std::string out;
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) where.damaged();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  char block[1 << 16];
  int result = Z_OK;
  while (result == Z_OK && out.size() < kMostBytes) {
    stream.next_out = reinterpret_cast<Bytef*>(block);
    stream.avail_out = sizeof block;
    result = inflate(&stream, Z_NO_FLUSH);
    out.append(block, sizeof block - stream.avail_out);
  }
  inflateEnd(&stream);
  if (result != Z_STREAM_END) where.damaged();
  return out;
}

// The beginning of all matrices; `rest` are the elements after it.
struct Matrix {
  uint32_t kind = 0;
  uint64_t cells = 1;
  std::string_view name;
  Elements rest;
};

Matrix open_matrix(std::string_view data, const std::string& path) {
  Matrix matrix{.name = {}, .rest = {data, path}};
  const Element flags = matrix.rest.next(kUint32), sizes = matrix.rest.next(kInt32);
  if (flags.data.size() < 4 || sizes.data.size() % 4 != 0) matrix.rest.damaged();
  matrix.kind = static_cast<uint8_t>(flags.data[0]);
  for (size_t i = 0; i < sizes.data.size(); i += 4) {
    int32_t side = 0;
    std::memcpy(&side, sizes.data.data() + i, 4);
    if (side < 0 || matrix.cells * static_cast<uint64_t>(side) > kMostBytes) matrix.rest.damaged();
    matrix.cells *= static_cast<uint64_t>(side);
  }
  matrix.name = matrix.rest.next(kInt8).data;
  return matrix;
}

template <class T>
double first_as(const Element& element, const Elements& where) {
  if (element.data.size() < sizeof(T)) where.damaged();
  T value;
  std::memcpy(&value, element.data.data(), sizeof value);
  return static_cast<double>(value);
}

// Numbers are stored in the smallest type that holds them.
double number_in(std::string_view matrix_data, const std::string& path) {
  Matrix matrix = open_matrix(matrix_data, path);
  const Element e = matrix.rest.next();
  switch (e.type) {
    case kInt8:
      return first_as<int8_t>(e, matrix.rest);
    case kUint8:
      return first_as<uint8_t>(e, matrix.rest);
    case kInt16:
      return first_as<int16_t>(e, matrix.rest);
    case kUint16:
      return first_as<uint16_t>(e, matrix.rest);
    case kInt32:
      return first_as<int32_t>(e, matrix.rest);
    case kUint32:
      return first_as<uint32_t>(e, matrix.rest);
    case kSingle:
      return first_as<float>(e, matrix.rest);
    case kDouble:
      return first_as<double>(e, matrix.rest);
    default:
      matrix.rest.damaged();
  }
}

int id_in(std::string_view matrix_data, const Elements& where) {
  const double number = number_in(matrix_data, where.path());
  if (!(number >= 1 && number <= 1e9)) where.damaged();
  return static_cast<int>(number);
}

std::string text_in(std::string_view matrix_data, const std::string& path) {
  Matrix matrix = open_matrix(matrix_data, path);
  if (matrix.cells == 0) return {};
  const Element e = matrix.rest.next();
  if (e.type != kUint16) return std::string(e.data);
  std::string text;  // UTF-16; the words are ASCII
  for (size_t i = 0; i + 1 < e.data.size(); i += 2) text += e.data[i + 1] == 0 ? e.data[i] : '?';
  return text;
}

std::vector<std::string> field_names(Matrix& matrix) {
  const Element length = matrix.rest.next(kInt32);
  int32_t bytes = 0;
  if (length.data.size() == 4) std::memcpy(&bytes, length.data.data(), 4);
  if (bytes <= 0) matrix.rest.damaged();
  const std::string_view all = matrix.rest.next(kInt8).data;
  std::vector<std::string> names;
  for (size_t at = 0; at + static_cast<size_t>(bytes) <= all.size(); at += static_cast<size_t>(bytes))
    names.emplace_back(std::string(all.substr(at, static_cast<size_t>(bytes))).c_str());  // up to the terminating zero
  return names;
}

std::map<int, Synset> synsets_in(Matrix& matrix) {
  const std::string& path = matrix.rest.path();
  const std::vector<std::string> fields = field_names(matrix);
  std::map<int, Synset> synsets;
  for (uint64_t i = 0; i < matrix.cells; ++i) {
    int id = 0;
    Synset synset;
    for (const std::string& field : fields) {
      const std::string_view cell = matrix.rest.next(kMatrix).data;
      if (field == "ILSVRC2012_ID") id = id_in(cell, matrix.rest);
      if (field == "WNID") synset.wnid = text_in(cell, path);
      if (field == "words") synset.words = text_in(cell, path);
    }
    if (id <= 0 || synset.wnid.empty()) matrix.rest.damaged();
    synsets[id] = synset;
  }
  return synsets;
}

}  // namespace

std::map<int, Synset> parse_synsets(std::string_view mat, const std::string& path) {
  constexpr size_t kHeader = 128;
  Elements elements(mat.substr(std::min(mat.size(), kHeader)), path);
  while (!elements.done()) {
    Element element = elements.next();
    std::string unpacked;
    if (element.type == kCompressed) {
      unpacked = inflated(element.data, elements);
      element = Elements(unpacked, path).next();
    }
    if (element.type != kMatrix) continue;
    Matrix matrix = open_matrix(element.data, path);
    if (matrix.name == "synsets" && matrix.kind == kStruct) return synsets_in(matrix);
  }
  elements.damaged();
}

IlsvrcDevkit read_ilsvrc_devkit(const std::string& path) {
  const std::string mat = "data/meta.mat", truth = "data/ILSVRC2012_validation_ground_truth.txt";
  IlsvrcDevkit devkit;
  for (const auto& [name, content] : unpacked_members(path, {mat, truth})) {
    if (name.ends_with(mat)) devkit.synsets = parse_synsets(content, path);
    if (!name.ends_with(truth)) continue;
    for (const std::string& line : split_lines(content)) {
      int id = 0;
      if (std::from_chars(line.data(), line.data() + line.size(), id).ec != std::errc())
        fail(path, ": its ", truth, " holds '", line.substr(0, 80), "', wanted a number on each line");
      devkit.truth.push_back(id);
    }
  }
  if (devkit.synsets.empty()) fail(path, " holds no ", mat, "; download the development kit for tasks 1 and 2 again");
  if (devkit.truth.empty()) fail(path, " holds no ", truth, "; download the development kit for tasks 1 and 2 again");
  return devkit;
}

}  // namespace owt
