// A layer as data, in no library's terms: for exporters, planners and other programs that are to compute the same.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "layers/param.h"
#include "src/core/check.h"

namespace owt {

// An operator with what it needs to know besides its input. What an attribute means:
//   kernel, stride        of windows, [height, width]
//   pad                   positions around the image that windows reach and that add nothing, [top, left, bottom,
//                         right]; more than the key `pad` says where windows are rounded up
//   zeros                 positions around the image that count as zeros, likewise; pad lies around them
//   groups                of channels, each convolved by itself
//   size, alpha, beta, k  of layers/lrn.h
//   eps, momentum         of layers/batch_norm.h
//   rate                  of what is dropped in training
//   slope                 of what a leaky activation is given below 0
//   by_tanh               1: of gelu's two formulas (layers/activation.h) the one by tanh
//   relu                  1: a relu follows
struct Described {
  using Value = std::variant<int64_t, double, std::vector<int64_t>>;

  std::string op;  // the type of the layer; of an activation its kind; lrn_within of an lrn within channels
  std::vector<std::pair<std::string, Value>> attributes{};
  std::vector<Param*> params{};  // its own, in the order of Layer::params()

  // The attribute of that name and type. Throws Error where there is none.
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
