// A layer made of layers: branches, which are nets with the same input. Subclasses combine the branches' outputs. An
// inner layer `conv1` of layer `block1` is called block1.conv1. This name is used for its parameters
// (block1.conv1.weight) and for its random numbers. Inner layers may be composite themselves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "layers/base/layer.h"
#include "layers/registry.h"
#include "src/net/net.h"

namespace owt {

class Composite : public Layer {
 public:
  // A branch without layers is the identity. Forward runs the last branch first, backward the first one.
  std::span<const Net> branches() const { return branches_; }

  double flops(const Shape& in) const override;
  std::vector<Param*> params() override;
  int64_t row_group() const override;
  std::string why_not_canonical() override;
  std::vector<int64_t> step_sums(Phase phase, bool wants_dx) override;
  std::vector<Inner> inner(const Shape& in) const override;
  // The gradients of the layer's output and of one branch's input, two gradients of a branch, and the scratch memory of
  // one inner layer at a time.
  int64_t scratch_bytes(const Shape& in, const Compute& on) const override;
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override { return bind_at({}, {}, in, on).op; }

 protected:
  // types: the types that inner layers may have.
  Composite(const LayerSpec& spec, std::string type, std::span<const LayerType> types)
      : Layer(spec.name, std::move(type)), in_(spec.in), types_(types) {}

  // Adds a branch of the layers that `table` has under `key`, with `prefix` before their names. `spec` is the
  // composite's.
  void add_branch(const LayerSpec& spec, Config& table, const std::string& key, const std::string& prefix);
  // Throws Error if two layers have the same name, naming `key` of the composite's table, or if `in` differs from the
  // input that the branches were made for.
  void check_names(const LayerSpec& spec, const std::string& key) const;
  void check_input(const Shape& in) const;

  std::vector<Net> branches_;

 private:
  Shape in_;  // one row
  std::span<const LayerType> types_;
};

}  // namespace owt
