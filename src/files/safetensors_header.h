// The JSON header of a safetensors file, and its types of elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace owt {

constexpr const char* kSafetensorsMetadata = "__metadata__";

// A tensor of the file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;            // the name in the file: "F32", "F16", ...
  Shape shape;                  // up to rank 5; rank 0: a scalar, or a tensor of more dimensions
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data
  std::string unreadable{};     // why read() refuses it, "has 6 dimensions, ..."; empty: readable
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Throws Error with the problem, and with the tensor that has it.
SafetensorsHeader parse_safetensors_header(const std::string& text);

struct SafetensorsType {
  const char* name;
  uint64_t bytes;
  void (*convert)(const std::byte*, int64_t, float*);  // null: cannot be read
};

// Null for a name that the format does not define.
const SafetensorsType* safetensors_type(const std::string& name);

}  // namespace owt
