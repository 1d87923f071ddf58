// cuDNN's entry points: handles, the backend's descriptors, execution.
#include <cudnn_graph.h>

#include <algorithm>

#include "tests/simulated_gpu/dnn_descriptors.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/runtime.h"

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

namespace simulated_gpu {
namespace {

// What the program holds. Descriptors are shared, so that one may be destroyed while others still refer to it.
struct DescriptorHandle {
  std::shared_ptr<Descriptor> descriptor = std::make_shared<Descriptor>();
};

DescriptorHandle& handle_of(cudnnBackendDescriptor_t descriptor) { return *static_cast<DescriptorHandle*>(descriptor); }

thread_local std::string last_words;

cudnnStatus_t refuse(cudnnStatus_t status, const std::string& words) {
  last_words = words;
  return status;
}

const AttributeRule* rule_for(cudnnBackendDescriptorType_t descriptor, cudnnBackendAttributeName_t name) {
  const auto& rules = attribute_rules();
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const AttributeRule& rule) {
    return rule.descriptor == descriptor && rule.name == name;
  });
  return found == rules.end() ? nullptr : &*found;
}

cudnnStatus_t set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t count, const void* elements) {
  if (descriptor.finalized) return refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
  const AttributeRule* rule = rule_for(descriptor.type, name);
  if (!rule) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such attribute: " + std::to_string(name));
  if (rule->type != type)
    return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the type of attribute " + std::to_string(name));
  if (count < 1 || !elements) return refuse(CUDNN_STATUS_BAD_PARAM, "no elements");
  Attribute attribute{type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* descriptors = static_cast<const cudnnBackendDescriptor_t*>(elements);
    for (int64_t i = 0; i < count; ++i) {
      if (!descriptors[i]) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
      const auto& child = handle_of(descriptors[i]).descriptor;
      if (!child->finalized) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that is not finalized");
      attribute.children.push_back(child);
    }
  } else {
    const auto* bytes = static_cast<const std::byte*>(elements);
    attribute.bytes.assign(bytes, bytes + static_cast<size_t>(count) * element_bytes(type));
  }
  descriptor.attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t room, int64_t* count, void* elements) {
  if (!descriptor.finalized) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
  if (!descriptor.has(name)) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such attribute: " + std::to_string(name));
  const Attribute& attribute = descriptor.attributes.at(name);
  if (attribute.type != type)
    return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the type of attribute " + std::to_string(name));
  if (count) *count = attribute.count;
  const int64_t given = std::min(room, attribute.count);
  if (given <= 0 || !elements) return CUDNN_STATUS_SUCCESS;
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::memcpy(elements, attribute.bytes.data(), static_cast<size_t>(given) * element_bytes(type));
    return CUDNN_STATUS_SUCCESS;
  }
  const auto* descriptors = static_cast<const cudnnBackendDescriptor_t*>(elements);
  for (int64_t i = 0; i < given; ++i) {
    const auto& child = attribute.children[static_cast<size_t>(i)];
    auto& into = handle_of(descriptors[i]).descriptor;
    if (into->type != child->type) return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "another type of descriptor");
    into = std::make_shared<Descriptor>(*child);
  }
  return CUDNN_STATUS_SUCCESS;
}

// Memory of every tensor outside the graph, checked. Numbers on the host are read now.
cudnnStatus_t bind(const OperationGraph& graph, const Descriptor& pack, Bindings* bindings,
                   std::map<int64_t, float>* numbers) {
  const auto ids = pack.values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (size_t i = 0; i < ids.size(); ++i) (*bindings)[ids[i]] = pointers[i];
  for (const auto& [id, tensor] : graph.tensors) {
    if (tensor.inside) continue;
    const auto found = bindings->find(id);
    const std::string name = "tensor " + std::to_string(id);
    if (found == bindings->end() || !found->second) return refuse(CUDNN_STATUS_BAD_PARAM, name + " has no memory");
    if (tensor.by_value) {
      if (on_a_device(found->second)) return refuse(CUDNN_STATUS_BAD_PARAM, name + " must be on the host");
      (*numbers)[id] = *static_cast<const float*>(found->second);
      continue;
    }
    if (reinterpret_cast<uintptr_t>(found->second) % static_cast<uintptr_t>(tensor.alignment) != 0)
      return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, name + " is not aligned");
    if (!on_a_device(found->second, tensor.bytes()))
      return refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, name + " is not within device memory");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t execute(const cudnnContext& handle, const Descriptor& plan, const Descriptor& pack) {
  if (!plan.finalized || !pack.finalized || plan.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      pack.type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a finalized plan and variant pack are needed");
  int device = -1;
  if (cudaStreamGetDevice(handle.stream, &device) != cudaSuccess || device != handle.device)
    return refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "the handle has no stream of its device");
  Bindings bindings;
  std::map<int64_t, float> numbers;
  if (const auto status = bind(*plan.graph, pack, &bindings, &numbers); status != CUDNN_STATUS_SUCCESS) return status;
  void* workspace =
      pack.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) ? pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) : nullptr;
  const auto bytes = static_cast<size_t>(plan.engine->workspace);
  if (bytes > 0 && !on_a_device(workspace, bytes))
    return refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "the workspace is not within device memory");
  const cudaError_t queued =
      enqueue(handle.stream, {"cudnnBackendExecute"},
              [graph = plan.graph, engine = plan.engine, bindings, numbers, workspace, bytes]() mutable {
                if (bytes > 0) std::memset(workspace, 0xff, bytes);  // it is the plan's to spoil
                for (auto& [id, number] : numbers) bindings[id] = &number;
                compute(*graph, *engine, bindings);
              });
  return queued == cudaSuccess ? CUDNN_STATUS_SUCCESS
                               : refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, cudaGetErrorString(queued));
}

}  // namespace
}  // namespace simulated_gpu

using namespace simulated_gpu;

size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case 0:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "CUDNN_STATUS_NOT_INITIALIZED";
  }
}

void cudnnGetLastErrorString(char* message, size_t size) {
  if (size == 0) return;
  const size_t length = std::min(last_words.size(), size - 1);
  std::memcpy(message, last_words.data(), length);
  message[length] = '\0';
  last_words.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
  *handle = new cudnnContext{device, nullptr};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  const auto& rules = attribute_rules();
  if (std::none_of(rules.begin(), rules.end(), [&](const AttributeRule& rule) { return rule.descriptor == type; }))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this type of descriptor is not simulated");
  auto created = std::make_unique<DescriptorHandle>();
  created->descriptor->type = type;
  *descriptor = created.release();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<DescriptorHandle*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  try {
    finalize(*handle_of(descriptor).descriptor);
    return CUDNN_STATUS_SUCCESS;
  } catch (const DnnError& error) {
    return refuse(error.status, error.words);
  }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  return set_attribute(*handle_of(descriptor).descriptor, name, type, count, elements);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t* count, void* elements) {
  return get_attribute(*handle_of(descriptor).descriptor, name, type, room, count, elements);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return execute(*handle, *handle_of(plan).descriptor, *handle_of(pack).descriptor);
}
