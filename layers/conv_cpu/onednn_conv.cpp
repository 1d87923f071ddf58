#include "layers/conv_cpu/onednn_conv.h"

#include <unordered_map>

#include "layers/conv_cpu/conv_workspace.h"
#include "src/core/onednn.h"
#include "src/system/check.h"

namespace owt {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory memory_at(const memory::desc& layout, const void* place) {
  return memory(layout, engine(), const_cast<void*>(place));
}

// The convolution in owt's layouts.
struct Problem {
  explicit Problem(const ConvShape& shape) : Problem(shape.geometry, shape) {}

  memory::desc src, dst, weights;
  memory::desc bias;                             // empty without a bias
  memory::dims stride, dilation, before, after;  // dilation: 0 for neighbouring pixels

 private:
  Problem(const ConvGeometry& g, const ConvShape& shape)
      : src({shape.rows, g.in_c, g.in_h, g.in_w}, onednn::type_of(shape.images), Tag::nhwc),
        dst({shape.rows, g.out_c, g.out_h, g.out_w}, onednn::type_of(shape.images), Tag::nhwc),
        weights(g.groups == 1
                    ? memory::desc({g.out_c, g.in_c, g.kernel_h, g.kernel_w}, memory::data_type::f32, Tag::ohwi)
                    : memory::desc({g.groups, g.out_c / g.groups, g.in_c / g.groups, g.kernel_h, g.kernel_w},
                                   memory::data_type::f32, Tag::gohwi)),
        stride{g.stride_h, g.stride_w},
        dilation{g.dilation_h - 1, g.dilation_w - 1},
        before{g.top, g.left},
        after{g.bottom, g.right} {
    if (shape.with_bias) bias = memory::desc({g.out_c}, memory::data_type::f32, Tag::a);
  }
};

// Converts between layouts.
class Copy {
 public:
  Copy() = default;
  Copy(const memory::desc& from, const memory::desc& to, bool adds = false) : from_(from), to_(to) {
    dnnl::primitive_attr attributes;
    if (adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    reorder_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), from, engine(), to, attributes));
  }

  void operator()(dnnl::stream& stream, const void* from, void* to) const {
    memory source = memory_at(from_, from), target = memory_at(to_, to);
    reorder_.execute(stream, source, target);
  }

 private:
  memory::desc from_, to_;
  dnnl::reorder reorder_;
};

// oneDNN divides the work of a primitive when it makes it, so it must run with the same team.
class OnednnConv : public ConvPass {
 public:
  OnednnConv(const ConvShape& shape, PassKind kind) {
    const Problem p(shape);
    src_ = p.src;
    dst_ = p.dst;
    bias_ = p.bias;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    // oneDNN multiplies elements of one type; gradients of weights are sums in f32.
    const memory::desc weights = onednn::any_layout(p.weights, onednn::type_of(p.src)),
                       weight_sums = onednn::any_layout(p.weights, onednn::type_of(p.weights));
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto forward = onednn::describe<dnnl::convolution_forward>(
        engine(), attributes, dnnl::prop_kind::forward_training, algorithm, p.src, weights, p.bias, p.dst, p.stride,
        p.dilation, p.before, p.after);
    if (kind == PassKind::kForward) {
      adopt<dnnl::convolution_forward>(forward, forward.weights_desc());
      weights_in_ = Copy(p.weights, weights_);
    } else if (kind == PassKind::kBackwardData) {
      const auto made = onednn::describe_backward<dnnl::convolution_backward_data>(
          engine(), attributes, forward, algorithm, p.src, weights, p.dst, p.stride, p.dilation, p.before, p.after);
      adopt<dnnl::convolution_backward_data>(made, made.weights_desc());
      weights_in_ = Copy(p.weights, weights_);
    } else {
      const auto made = onednn::describe_backward<dnnl::convolution_backward_weights>(
          engine(), attributes, forward, algorithm, p.src, weight_sums, p.bias, p.dst, p.stride, p.dilation, p.before,
          p.after);
      adopt<dnnl::convolution_backward_weights>(made, made.diff_weights_desc());
      weights_out_ = Copy(weights_, p.weights);
      weights_add_ = Copy(weights_, p.weights, true);
    }
  }

  size_t packed_bytes() const override { return weights_.get_size(); }
  void pack(const float* weights, void* packed) const override { weights_in_(stream_, weights, packed); }

  void forward(const void* x, const void* packed, const float* bias, void* y) const override {
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory_at(src_, x)},
                                              {DNNL_ARG_WEIGHTS, memory_at(weights_, packed)},
                                              {DNNL_ARG_DST, memory_at(dst_, y)}};
    if (bias) arguments.insert({DNNL_ARG_BIAS, memory_at(bias_, bias)});
    run(arguments);
  }

  void backward_data(const void* dy, const void* packed, void* dx) const override {
    std::unordered_map<int, memory> arguments{{DNNL_ARG_DIFF_DST, memory_at(dst_, dy)},
                                              {DNNL_ARG_WEIGHTS, memory_at(weights_, packed)},
                                              {DNNL_ARG_DIFF_SRC, memory_at(src_, dx)}};
    run(arguments);
  }

  void backward_weights(const void* x, const void* dy, float beta, float* weights, float bias_beta,
                        float* bias) const override {
    const size_t bias_bytes = bias_.get_size();
    float* part = bias && bias_beta != 0 ? static_cast<float*>(conv_workspace(ConvBuffer::kBias, bias_bytes)) : bias;
    void* packed = conv_workspace(ConvBuffer::kWeights, packed_bytes());
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory_at(src_, x)},
                                              {DNNL_ARG_DIFF_DST, memory_at(dst_, dy)},
                                              {DNNL_ARG_DIFF_WEIGHTS, memory_at(weights_, packed)}};
    if (part) arguments.insert({DNNL_ARG_DIFF_BIAS, memory_at(bias_, part)});
    run(arguments);
    (beta == 0 ? weights_out_ : weights_add_)(stream_, packed, weights);
    if (part == bias) return;
    for (size_t i = 0; i < bias_bytes / sizeof(float); ++i) bias[i] += part[i];
  }

 private:
  template <class Primitive, class Description>
  void adopt(const Description& made, const memory::desc& weights) {
    primitive_ = Primitive(made);
    weights_ = weights;
    scratchpad_ = made.scratchpad_desc();
  }

  void run(std::unordered_map<int, memory>& arguments) const {
    void* scratchpad = conv_workspace(ConvBuffer::kScratchpad, scratchpad_.get_size());
    arguments.insert({DNNL_ARG_SCRATCHPAD, memory_at(scratchpad_, scratchpad)});
    primitive_.execute(stream_, arguments);
    stream_.wait();
  }

  dnnl::primitive primitive_;
  memory::desc src_, weights_, dst_, bias_, scratchpad_;
  Copy weights_in_, weights_out_, weights_add_;
  mutable dnnl::stream stream_{engine()};
};

}  // namespace

std::unique_ptr<ConvPass> make_onednn_conv(const ConvShape& shape, PassKind kind) {
  try {
    return std::make_unique<OnednnConv>(shape, kind);
  } catch (const dnnl::error& e) {
    fail("oneDNN cannot make a ", name_of(kind), " convolution: ", e.what());
  }
}

}  // namespace owt
