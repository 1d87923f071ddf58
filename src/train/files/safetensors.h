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
#include <string_view>
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
    Shape shape;                  // up to rank 5; rank 0 is a scalar, or a tensor of more dimensions
    uint64_t begin = 0, end = 0;  // bytes, from the start of the data
    std::string unreadable{};     // why read() refuses it, "has 6 dimensions, ..."; empty: it does not
  };

  // Throws Error: missing, truncated or no safetensors file; a name twice; offsets that overlap, leave gaps or
  // contradict the shape.
  explicit SafetensorsReader(const std::string& path);

  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The tensor of this name, or the only one whose bare name it is; null where there is none.
  const Entry* find(const std::string& name) const;
  std::vector<std::string> names() const;

  // The tensor as f32; F16, BF16 and F64 are converted. Throws Error for an unknown name (with those that there are),
  // for other element types, integers among them, which stand for weights only with scales that the file does not give,
  // and for more than 5 dimensions.
  Tensor read(const std::string& name);
  // Rows of its dimension 0 alone.
  Tensor read_rows(const std::string& name, const Slice& rows);

 private:
  const Entry& wanted(const std::string& name) const;  // throws as read()
  void read_elements(const Entry& entry, int64_t first, Tensor& elements);
  [[noreturn]] void bad(const std::string& message) const;
  std::string read_header(uint64_t file_size);
  void parse_header(const std::string& text);
  void check_coverage(uint64_t data_size) const;

  std::string path_;
  std::ifstream file_;
  uint64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, size_t> by_name_, by_bare_name_;  // numbers of entries
  std::map<std::string, std::string> metadata_;
};

// Without the words that DataParallel, torch.compile and training programs put in front of every name: "module.",
// "_orig_mod." and "model.".
std::string bare_tensor_name(std::string_view name);

// "'conv1.weight', 'conv1.bias', 'fc.weight' and 7 more": for messages.
std::string some_names(const std::vector<std::string>& names);

}  // namespace owt
