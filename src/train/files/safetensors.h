// Reading and writing of the safetensors format (huggingface/safetensors, format description in its README):
//   8 bytes: length L of the header, little-endian
//   L bytes: JSON, {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..,
//   "__metadata__": {..}} then the data, row major, little-endian; the offsets count from its start and cover
//   it without gap or overlap.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/core/files.h"
#include "src/core/tensor.h"

namespace owt {

// Writes f32 tensors one after the other; no more than the piece at hand need be in memory. The file is there
// and durable after finish(), and removed when the writer goes before that.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    Shape shape;
  };

  // The tensors in the order in which they will be written. Throws Error where the file cannot be made.
  SafetensorsWriter(const std::string& path, std::vector<Entry> entries,
                    const std::map<std::string, std::string>& metadata = {});

  // The next elements of tensor `name`; a tensor may come in several pieces, and one without elements not at
  // all.
  void write(const std::string& name, std::span<const float> values);
  // Checks that all has been written, syncs, closes. Returns the xxHash64 of the file.
  uint64_t finish();

 private:
  void skip_complete();

  std::string path_;
  std::vector<Entry> entries_;
  FileWriter file_;
  size_t current_ = 0;   // the entry being written
  int64_t written_ = 0;  // of its elements
};

// A safetensors file opened for reading. All of the file's structure is checked at the start, so that reading
// a tensor can fail only if the disk does. Messages name the file and, where there is one, the tensor.
class SafetensorsReader {
 public:
  struct Entry {
    std::string name;
    std::string dtype;            // as in the file: "F32", "F16", ...
    Shape shape;                  // up to rank 5; rank 0 is a scalar
    uint64_t begin = 0, end = 0;  // bytes, from the start of the data
  };

  // Throws Error: missing, truncated or no safetensors file; offsets that overlap, leave gaps or contradict
  // the shape.
  explicit SafetensorsReader(const std::string& path);

  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Entry* find(const std::string& name) const;  // null where there is none

  // The tensor as f32; F16, BF16, F64 and the integers are converted. Throws Error for an unknown name (with
  // the nearest one) and for element types with no conversion (8-bit floats, U16 to U64).
  Tensor read(const std::string& name);
  // Rows of its dimension 0 alone.
  Tensor read_rows(const std::string& name, const Slice& rows);

 private:
  const Entry& wanted(const std::string& name) const;
  void read_elements(const Entry& entry, int64_t first, Tensor& elements);
  [[noreturn]] void bad(const std::string& message) const;
  std::string read_header(uint64_t file_size);
  void parse_header(const std::string& text);
  void check_coverage(uint64_t data_size) const;

  std::string path_;
  std::ifstream file_;
  uint64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace owt
