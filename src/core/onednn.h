// A wrapper of the few calls that differ between oneDNN versions 2.2 to 3.x. No other file includes oneDNN's headers or
// checks its version.
#pragma once

#include <dnnl.hpp>
#include <string>

#include "src/core/tensor.h"

namespace owt::onednn {

// The Primitive::primitive_desc of `operation`: kind, algorithm, layouts, strides ... in oneDNN's order. Throws
// dnnl::error if there is no kernel for it.
//   2.x: a primitive is described by its Primitive::desc, and that by a Primitive::primitive_desc.
//   3.x: by the primitive_desc alone.
template <class Primitive, class... Operation>
auto describe(const dnnl::engine& engine, const dnnl::primitive_attr& attributes, const Operation&... operation) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Primitive::primitive_desc(engine, operation..., attributes);
#else
  return typename Primitive::primitive_desc(typename Primitive::desc(operation...), attributes, engine);
#endif
}

// The description of a backward pass; the forward pass's description is a hint for it.
template <class Primitive, class Hint, class... Operation>
auto describe_backward(const dnnl::engine& engine, const dnnl::primitive_attr& attributes, const Hint& forward,
                       const Operation&... operation) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Primitive::primitive_desc(engine, operation..., forward, attributes);
#else
  return typename Primitive::primitive_desc(typename Primitive::desc(operation...), attributes, engine, forward);
#endif
}

inline dnnl::memory::data_type type_of(DType activations) {
  return activations == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

inline dnnl::memory::data_type type_of(const dnnl::memory::desc& tensor) {
#if DNNL_VERSION_MAJOR >= 3
  return tensor.get_data_type();
#else
  return tensor.data_type();
#endif
}

// A tensor of these dimensions and this element type, in the layout that the primitive prefers.
inline dnnl::memory::desc any_layout(const dnnl::memory::desc& tensor, dnnl::memory::data_type type) {
#if DNNL_VERSION_MAJOR >= 3
  return {tensor.get_dims(), type, dnnl::memory::format_tag::any};
#else
  return {tensor.dims(), type, dnnl::memory::format_tag::any};
#endif
}

// The version of the installed library, "2.6.3".
inline std::string version() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

}  // namespace owt::onednn
