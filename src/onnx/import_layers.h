// Chains of ONNX operators as layers of a model file, with their weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/core/shape.h"
#include "src/onnx/import_blocks.h"

namespace owt {

class OnnxToLayers {
 public:
  // A value between two layers.
  struct Rows {
    Shape shape;                 // one row: H x W x C, or F
    bool channels_last = false;  // images are N x H x W x C in the graph
    bool flat = false;           // images are N x (C * H * W) in the graph

    bool image() const { return shape.rank() == 3; }
    bool channels_first() const { return image() && !channels_last && !flat; }
    int64_t columns() const { return shape[shape.rank() - 1]; }
  };
  struct Weight {
    std::string name;
    OnnxConstant of;  // with the dimensions of weights files
  };

  explicit OnnxToLayers(const OnnxSource& source) : source_(source) {}

  // The tables of the chain's layers, one a line; x becomes their output. depth: of indentation. within: what the names
  // of weights begin with. Throws Error with the node that no layer computes.
  std::string layers_of(const OnnxChain& chain, Rows& x, int depth = 1, const std::string& within = "");

  const std::vector<Weight>& weights() const { return weights_; }
  int64_t layers() const { return layers_; }  // inner ones too

 private:
  // A place in the model file.
  struct At {
    Rows& x;
    int depth;
    const std::string& within;
    std::string text{};  // the layers so far
  };
  struct WindowKeys {  // along both dimensions of an image
    std::vector<int64_t> kernel, stride, pad, dilation, out;
    bool round_up = false;
    bool same_padding = true;  // windows hold as many positions beside the image as in the graph
  };
  struct BlockText {
    std::string name;
    std::vector<std::string> texts;  // its branches
    std::vector<Rows> outs;
  };
  // Adds the layer that begins with `part`; returns the number of parts that it covers. next: null at the end.
  using Add = size_t (OnnxToLayers::*)(const OnnxPart& part, const OnnxPart* next, At& at);
  static const std::map<std::string, Add> kAdds;

  size_t add(const OnnxPart& part, const OnnxPart* next, At& at);
  size_t add_relu(const OnnxPart&, const OnnxPart*, At& at);
  size_t add_leaky(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_prelu(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_gelu(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_dropout(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_lrn(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_linear(const OnnxPart& part, const OnnxPart* next, At& at);
  size_t add_batch_norm(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_layer_norm(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_factors(const OnnxPart& part, const OnnxPart* next, At& at);
  size_t add_pool(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_global_pool(const OnnxPart& part, const OnnxPart*, At& at);
  size_t transpose(const OnnxPart& part, const OnnxPart*, At& at);
  size_t reshape(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_residual(const OnnxPart& part, const OnnxPart* next, At& at);
  size_t add_branches(const OnnxPart& part, const OnnxPart*, At& at);
  size_t add_scale(const OnnxPart& part, const OnnxPart*, At& at);

  // Adds the line of a layer, with a new name of this kind; returns the name. keys: "out = 64, kernel = 3"
  std::string add_layer(At& at, const std::string& kind, const std::string& type, const std::string& keys = "");
  size_t add_activation(At& at, const std::string& keys);
  void add_line(At& at, const std::string& name, const std::string& type, const std::string& keys);
  void add_weight(const At& at, const std::string& layer, const std::string& name, OnnxConstant of);
  // deeper: steps of indentation between the block and the layers of its branches
  BlockText block(const OnnxPart& part, const std::string& kind, const At& at, int deeper = 2);
  std::string name_of(const std::string& kind) { return kind + std::to_string(++names_[kind]); }

  OnnxConstant weight(const onnx::NodeProto& node, int input) const;
  OnnxConstant vector(const onnx::NodeProto& node, int input, int64_t wanted) const;
  OnnxConstant per_channel(const OnnxPart& part, const Rows& x) const;
  OnnxConstant matrix(const OnnxPart& part, const Rows& x) const;
  std::string conv_keys(const OnnxPart& part, const OnnxConstant& w, Rows& x) const;
  WindowKeys windows_of(const onnx::NodeProto& node, std::vector<int64_t> kernel, const Rows& x) const;

  const OnnxSource& source_;
  std::map<std::string, int> names_;  // the last number of each kind of layer
  std::vector<Weight> weights_;
  int64_t layers_ = 0;
};

}  // namespace owt
