// cuDNN's backend descriptors: sets of attributes that become constant.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulated_gpu/dnn_graph.h"

namespace simulated_gpu {

struct Descriptor;

constexpr int kReductionIsDeterministic = 1602;  // an attribute that older headers lack

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<std::byte> bytes;                             // elements of all types but descriptors
  std::vector<std::shared_ptr<const Descriptor>> children;  // these
};

struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<int, Attribute> attributes;
  // What finalizing made of it, by type.
  std::shared_ptr<const OperationGraph> graph;  // operation graphs, heuristics, engines, configurations, plans
  const Engine* engine = nullptr;               // engines, configurations, plans

  bool has(int name) const { return attributes.count(name) > 0; }
  template <class T>
  std::vector<T> values(int name) const {
    const Attribute& attribute = attributes.at(name);
    std::vector<T> values(static_cast<size_t>(attribute.count));
    std::memcpy(values.data(), attribute.bytes.data(), attribute.bytes.size());
    return values;
  }
  template <class T>
  T value(int name) const {  // the first
    T value;
    std::memcpy(&value, attributes.at(name).bytes.data(), sizeof value);
    return value;
  }
  const Descriptor& child(int name) const { return *attributes.at(name).children.front(); }
};

// An attribute that a type of descriptor has.
struct AttributeRule {
  cudnnBackendDescriptorType_t descriptor;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  bool required;
};
const std::vector<AttributeRule>& attribute_rules();

// Size of an element in bytes; 0 for types that are not simulated.
size_t element_bytes(cudnnBackendAttributeType_t type);

// Errors carry a status and a sentence for cudnnGetLastErrorString.
struct DnnError {
  cudnnStatus_t status;
  std::string words;
};

// Checks the attributes and fills the fields that finalizing makes. Throws DnnError.
void finalize(Descriptor& descriptor);

// A plan as JSON, with a checksum.
std::string plan_text(const Descriptor& plan);

}  // namespace simulated_gpu
