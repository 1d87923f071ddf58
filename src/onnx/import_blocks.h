// The blocks of an ONNX graph: chains of operators, and chains that part at a value and meet again.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/onnx/import_source.h"

namespace owt {

// A step of a chain.
struct OnnxPart {
  // The node's operator; or "sum", "difference", "product" and "concat" of branches; or "times" and "plus" a constant;
  // or an activation of models.md that several nodes compute, such as "silu".
  std::string op;
  const onnx::NodeProto* node;
  std::string constant{};            // the value of "times" and "plus"
  std::optional<float> number = {};  // the same if it is a single number; 1 / constant or -constant if `inverse`
  bool inverse = false;              // divided by the constant, or the constant subtracted
  std::vector<std::vector<OnnxPart>> branches{};
};
using OnnxChain = std::vector<OnnxPart>;

class OnnxBlocks {
 public:
  explicit OnnxBlocks(const OnnxSource& source) : source_(source) {}

  // The chain that computes `to` from `from`, which dominates it. Throws Error for a node that is part of two branches.
  OnnxChain between(const std::string& from, std::string to, int depth = 0);

 private:
  OnnxPart with_constant(const onnx::NodeProto& node) const;
  OnnxPart joined(const onnx::NodeProto& node, const std::string& from, const std::vector<std::string>& inputs,
                  int depth);

  const OnnxSource& source_;
  std::set<const onnx::NodeProto*> used_;
};

}  // namespace owt
