#include "src/onnx/import_blocks.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr int kMostDepth = 64;  // blocks inside each other

bool near(float value, double wanted) { return std::abs(static_cast<double>(value) - wanted) < 1e-4; }

bool is_times(const OnnxPart& part, double wanted) {
  return part.op == "times" && part.number && near(*part.number, wanted);
}
bool is_plus(const OnnxPart& part, double wanted) {
  return part.op == "plus" && part.number && near(*part.number, wanted);
}

// PyTorch's, min(max(x + 3, 0), 6) / 6; the defaults of ONNX are other numbers.
bool is_hard_sigmoid(const OnnxPart& part) {
  return part.op == "hard_sigmoid" ||
         (part.op == "HardSigmoid" && near(attribute_of(*part.node, "alpha", 0.2f), 1.0 / 6) &&
          near(attribute_of(*part.node, "beta", 0.5f), 0.5));
}

// Replaces parts [first, first + count) by one with this operator.
void replace(OnnxChain& chain, size_t first, size_t count, const std::string& op) {
  const onnx::NodeProto* node = chain[first + count - 1].node;
  chain.erase(chain.begin() + static_cast<int64_t>(first), chain.begin() + static_cast<int64_t>(first + count));
  chain.insert(chain.begin() + static_cast<int64_t>(first), OnnxPart{op, node});
}

// erf(x / sqrt(2)) + 1, and with `half` half of it.
bool is_normal_distribution(const OnnxChain& chain, bool half) {
  return chain.size() == (half ? 4u : 3u) && is_times(chain[0], 0.70710678) && chain[1].op == "Erf" &&
         is_plus(chain[2], 1) && (!half || is_times(chain[3], 0.5));
}

// relu(x) - relu(x - 6), as `owt export` writes it.
bool is_relu6(const OnnxPart& difference) {
  const OnnxChain &first = difference.branches[0], &second = difference.branches[1];
  return first.size() == 1 && first[0].op == "Relu" && second.size() == 2 && is_plus(second[0], -6) &&
         second[1].op == "Relu";
}

// The activation x * gate(x); empty if it is none.
std::string gated(const OnnxChain& gate) {
  if (gate.size() == 1 && gate[0].op == "Sigmoid") return "silu";
  if (gate.size() == 1 && is_hard_sigmoid(gate[0])) return "hard_swish";
  if (is_normal_distribution(gate, true)) return "gelu";
  return "";
}

// Activations that the exporters of programs write as several operators.
void find_activations(OnnxChain& chain) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const auto next = [&](size_t by) { return i + by < chain.size() ? &chain[i + by] : nullptr; };
    if (is_plus(chain[i], 3) && next(1) && next(1)->op == "relu6" && next(2) && is_times(*next(2), 1.0 / 6))
      replace(chain, i, 3, "hard_sigmoid");
    if (is_hard_sigmoid(chain[i])) chain[i].op = "hard_sigmoid";
    if (chain[i].op == "difference" && is_relu6(chain[i])) replace(chain, i, 1, "relu6");
    if (chain[i].op != "product") continue;
    std::vector<OnnxChain>& of = chain[i].branches;
    if (of[0].size() > of[1].size()) std::swap(of[0], of[1]);  // the gate is the second
    const bool half_after = next(1) && is_times(*next(1), 0.5),
               half_before = of[0].size() == 1 && is_times(of[0][0], 0.5);
    if (is_normal_distribution(of[1], false) && half_before)
      replace(chain, i, 1, "gelu");
    else if (of[0].empty() && is_normal_distribution(of[1], false) && half_after)
      replace(chain, i, 2, "gelu");
    else if (of[0].empty() && of[1].size() == 2 && is_plus(of[1][0], 3) && of[1][1].op == "relu6" && next(1) &&
             is_times(*next(1), 1.0 / 6))
      replace(chain, i, 2, "hard_swish");
    else if (of[0].empty() && of[1].empty())
      replace(chain, i, 1, "square");
    else if (const std::string activation = of[0].empty() ? gated(of[1]) : ""; !activation.empty())
      replace(chain, i, 1, activation);
  }
}

}  // namespace

OnnxChain OnnxBlocks::between(const std::string& from, std::string to, int depth) {
  OnnxChain chain;  // from its end
  while (to != from) {
    const onnx::NodeProto& node = *source_.maker(to);
    if (node.output(0) != to) source_.refuse(node, "has several outputs, which no layer computes");
    if (!used_.insert(&node).second)
      source_.refuse(node,
                     "is part of two branches that do not meet in one block; owt's networks are made of blocks "
                     "inside blocks");
    if (depth > kMostDepth) source_.refuse(node, "is inside too many blocks");
    std::vector<std::string> inputs = source_.inputs(node);
    const std::string& op = node.op_type();
    if (inputs.size() == 1 && op == "Concat" && node.input_size() > 1)
      source_.refuse(node, "concatenates a constant with a value, which no layer computes");
    if (inputs.size() == 1) {
      const bool passes_on = node.input_size() == 1 && (op == "Concat" || op == "Sum");
      if (op != "Identity" && !passes_on) chain.push_back(with_constant(node));
      to = inputs[0];
    } else {
      if (std::ssize(inputs) != node.input_size())
        source_.refuse(node, "combines several values and a constant, which no layer computes");
      const std::string meeting = source_.meeting_point(inputs);
      chain.push_back(joined(node, meeting, inputs, depth));
      to = meeting;
    }
  }
  std::reverse(chain.begin(), chain.end());
  find_activations(chain);
  return chain;
}

OnnxPart OnnxBlocks::with_constant(const onnx::NodeProto& node) const {
  OnnxPart part{node.op_type(), &node};
  const std::string& op = node.op_type();
  if (op == "Clip") {
    const auto bound = [&](int input, const char* name, float otherwise) {
      if (node.input_size() <= input || node.input(input).empty()) return attribute_of(node, name, otherwise);
      const OnnxConstant value = source_.constant(node.input(input));
      return value.values.size() == 1 ? value.values[0] : otherwise;
    };
    const float low = bound(1, "min", -HUGE_VALF), high = bound(2, "max", HUGE_VALF);
    if (low != 0 || (high != 6 && high < 3e38f)) source_.refuse(node, "has bounds other than 0 and 6, or 0 alone");
    part.op = high == 6 ? "relu6" : "Relu";
  }
  const bool times = op == "Mul" || op == "Div", plus = op == "Add" || op == "Sub" || op == "Sum";
  if ((!times && !plus) || node.input_size() != 2) return part;
  const bool first = source_.is_constant(node.input(0));
  part.inverse = op == "Div" || op == "Sub";
  if (first && part.inverse) source_.refuse(node, "has a constant as its first input, which no layer computes");
  part.op = times ? "times" : "plus";
  part.constant = node.input(first ? 0 : 1);
  const OnnxConstant value = source_.constant(part.constant);
  if (value.values.size() == 1) {
    const float number = value.values[0];
    part.number = !part.inverse ? number : times ? 1 / number : -number;
  }
  return part;
}

OnnxPart OnnxBlocks::joined(const onnx::NodeProto& node, const std::string& from,
                            const std::vector<std::string>& inputs, int depth) {
  static const std::map<std::string, std::string> ops{
      {"Add", "sum"}, {"Sum", "sum"}, {"Mul", "product"}, {"Concat", "concat"}, {"Sub", "difference"}};
  const auto known = ops.find(node.op_type());
  if (known == ops.end()) source_.refuse(node, "combines several values, which no layer computes");
  OnnxPart part{known->second, &node};
  if (part.op != "concat" && inputs.size() != 2) source_.refuse(node, "has more than two inputs");
  // Inputs that share a value after `from` are a block inside this one. Exporters merge such concatenations.
  for (size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
    const std::string shared = source_.below(from, inputs[begin]);
    while (end < inputs.size() && source_.below(from, inputs[end]) == shared) ++end;
    const std::vector<std::string> group(inputs.begin() + static_cast<int64_t>(begin),
                                         inputs.begin() + static_cast<int64_t>(end));
    if (group.size() == 1 || shared == from) {
      for (const std::string& input : group) part.branches.push_back(between(from, input, depth + 1));
    } else {
      const std::string meeting = source_.meeting_point(group);
      OnnxChain chain = between(from, meeting, depth + 1);
      chain.push_back(joined(node, meeting, group, depth + 1));
      part.branches.push_back(std::move(chain));
    }
  }
  return part;
}

}  // namespace owt
