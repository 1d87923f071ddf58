// Reads and writes the safetensors format (huggingface/safetensors, format description in its README):
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

#include "src/core/tensor.h"
#include "src/files/safetensors_header.h"
#include "src/system/files.h"

namespace owt {

// Writes f32 tensors in order; only the current piece need be in memory. The file is complete and durable after
// finish(). If the writer is destroyed before, the file is removed.
class SafetensorsWriter {
 public:
  struct NamedShape {
    std::string name;
    Shape shape;
  };

  // entries: the tensors in the order of writing. Throws Error if the file cannot be created.
  SafetensorsWriter(const std::string& path, std::vector<NamedShape> entries,
                    const std::map<std::string, std::string>& metadata = {});

  // Writes the next elements of tensor `name`. A tensor may be written in several pieces; an empty one need not be
  // written.
  void write(const std::string& name, std::span<const float> values);
  // Checks that all tensors are complete, syncs and closes. Returns the xxHash64 of the file.
  uint64_t finish();

 private:
  void skip_complete();

  std::string path_;
  std::vector<NamedShape> entries_;
  FileWriter file_;
  size_t current_ = 0;   // the entry being written
  int64_t written_ = 0;  // number of its elements
};

// Reads a safetensors file. The structure of the whole file is checked when it is opened, so reading a tensor can fail
// only if the disk fails. Error messages have the file and, where possible, the tensor.
class SafetensorsReader {
 public:
  using Entry = SafetensorsEntry;

  // Throws Error if the file is missing, truncated or no safetensors file, if a name occurs twice, and if offsets
  // overlap, leave gaps or contradict a shape.
  explicit SafetensorsReader(const std::string& path);

  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The tensor with this name, or the only one with this bare name; null if there is none.
  const Entry* find(const std::string& name) const;
  std::vector<std::string> names() const;

  // The tensor as f32, converted from F16, BF16 or F64 if needed. Throws Error for an unknown name (with the known
  // ones), for other element types, and for more than 5 dimensions. Integers are refused because the file does not give
  // their scales.
  Tensor read(const std::string& name);
  // Reads some rows, i.e. indexes of dimension 0.
  Tensor read_rows(const std::string& name, const Slice& rows);

 private:
  const Entry& wanted(const std::string& name) const;  // throws as read() does
  void read_elements(const Entry& entry, int64_t first, Tensor& elements);
  [[noreturn]] void bad(const std::string& message) const;
  std::string read_header(uint64_t file_size);
  void parse_header(const std::string& text);
  void check_coverage(uint64_t data_size) const;

  std::string path_;
  std::ifstream file_;
  uint64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, size_t> by_name_, by_bare_name_;  // indexes into entries_
  std::map<std::string, std::string> metadata_;
};

// The name without the prefixes of DataParallel, torch.compile and training programs: "module.", "_orig_mod." and
// "model.".
std::string bare_tensor_name(std::string_view name);

// "'conv1.weight', 'conv1.bias', 'fc.weight' and 7 more": for messages.
std::string some_names(const std::vector<std::string>& names);

}  // namespace owt
