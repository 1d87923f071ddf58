// A layer as data, independent of any library: for exporters, planners and other programs that reproduce the
// computation.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "layers/base/param.h"
#include "src/system/check.h"

namespace owt {

// An operator with its attributes. Meaning of the attributes:
//   kernel, stride        of windows, [height, width]
//   pad                   positions around the image that windows cover and that add nothing, [top, left, bottom,
//                         right]; larger than the key `pad` if windows are rounded up
//   zeros                 positions around the image that count as zeros, likewise; the pad positions lie around them
//   groups                number of channel groups, which are convolved separately
//   dilation              distance of the pixels under neighbouring weights, [height, width]; missing: 1
//   size, alpha, beta, k  see layers/lrn.h
//   eps, momentum         see layers/batch_norm.h and layers/layer_norm.h
//   rate                  share of elements, or of rows, that are dropped in training
//   slope                 factor of a leaky activation for x below 0
//   by_tanh               1: gelu uses its tanh formula (layers/activation.h)
//   relu                  1: a relu follows
struct Described {
  using Value = std::variant<int64_t, double, std::vector<int64_t>>;

  std::string op;  // the layer type; for an activation its kind; lrn_within for an lrn within channels
  std::vector<std::pair<std::string, Value>> attributes{};
  std::vector<Param*> params{};  // its own parameters, in the order of Layer::params()

  // The attribute with this name and type. Throws Error if there is none.
  int64_t integer(const std::string& name) const { return get<int64_t>(name); }
  double number(const std::string& name) const { return get<double>(name); }
  const std::vector<int64_t>& integers(const std::string& name) const { return get<std::vector<int64_t>>(name); }

 private:
  template <class T>
  const T& get(const std::string& name) const {
    for (const auto& [key, value] : attributes)
      if (key == name && std::holds_alternative<T>(value)) return std::get<T>(value);
    fail("the description of ", op, " has no '", name, "' of this type");
  }
};

}  // namespace owt
