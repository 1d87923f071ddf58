#include "layers/onednn_conv.h"

#include <algorithm>
#include <array>

#include "src/core/check.h"
#include "src/core/tensor.h"

namespace owt::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// Memory that all convolutions of a host thread share; it grows to the largest. It is not Pass::scratch: how much
// oneDNN needs is known when a pass is made, which is when it first runs, or runs with another team, and making one
// measures, in the same memory.
enum class Buffer { kScratchpad, kSrc, kDst, kWeights, kBias };

void* workspace(Buffer buffer, size_t bytes) {
  static thread_local std::array<Tensor, 5> buffers;
  Tensor& memory = buffers[static_cast<size_t>(buffer)];
  const int64_t wanted = std::max<int64_t>(static_cast<int64_t>(bytes), 64);
  if (!memory.defined() || memory.bytes() < wanted) {
    memory = {};  // free first: the two need not fit side by side
    memory = Tensor({wanted}, DType::kU8);
  }
  return memory.raw();
}

memory memory_at(const memory::desc& layout, const void* place) {
  return memory(layout, engine(), const_cast<void*>(place));
}

std::optional<Copy> between(const memory::desc& from, const memory::desc& to) {
  if (from == to) return std::nullopt;
  return Copy(from, to);
}

const void* enter(dnnl::stream& stream, const std::optional<Copy>& copy, const void* nhwc, Buffer buffer,
                  const memory::desc& layout) {
  if (!copy) return nhwc;
  void* entered = workspace(buffer, layout.get_size());
  (*copy)(stream, nhwc, entered);
  return entered;
}

void* place(const std::optional<Copy>& copy, void* nhwc, Buffer buffer, const memory::desc& layout) {
  return copy ? workspace(buffer, layout.get_size()) : nhwc;
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

const char* name_of(PassKind kind) {
  switch (kind) {
    case PassKind::kForward:
      return "forward";
    case PassKind::kBackwardData:
      return "backward data";
    default:
      return "backward weights";
  }
}

ConvProblem::ConvProblem(const ConvGeometry& g, int64_t rows, bool with_bias, DType images)
    : src({rows, g.in_c, g.in_h, g.in_w}, type_of(images), Tag::nhwc),
      dst({rows, g.out_c, g.out_h, g.out_w}, type_of(images), Tag::nhwc),
      weights(g.groups == 1 ? memory::desc({g.out_c, g.in_c, g.kernel_h, g.kernel_w}, memory::data_type::f32, Tag::ohwi)
                            : memory::desc({g.groups, g.out_c / g.groups, g.in_c / g.groups, g.kernel_h, g.kernel_w},
                                           memory::data_type::f32, Tag::gohwi)),
      stride{g.stride_h, g.stride_w},
      before{g.top, g.left},
      after{g.bottom, g.right} {
  if (with_bias) bias = memory::desc({g.out_c}, memory::data_type::f32, Tag::a);
}

Copy::Copy(const memory::desc& from, const memory::desc& to, bool adds) : from_(from), to_(to) {
  dnnl::primitive_attr attributes;
  if (adds) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  reorder_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), from, engine(), to, attributes));
}

void Copy::operator()(dnnl::stream& stream, const void* from, void* to) const {
  memory source = memory_at(from_, from), target = memory_at(to_, to);
  reorder_.execute(stream, source, target);
}

std::optional<ConvPass> ConvPass::make(const ConvProblem& problem, PassKind kind, bool winograd) {
  try {
    return ConvPass(problem, kind, winograd);
  } catch (const dnnl::error& e) {
    // What oneDNN has no kernel for; anything else, such as no memory, is an error.
    if (e.status == dnnl_unimplemented || e.status == dnnl_invalid_arguments) return std::nullopt;
    fail("oneDNN cannot make a ", name_of(kind), " convolution: ", e.what());
  }
}

ConvPass::ConvPass(const ConvProblem& p, PassKind kind, bool winograd) : bias_(p.bias) {
  const auto algorithm = winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
  const auto images = [&](const memory::desc& nhwc) { return winograd ? any_layout(nhwc, type_of(nhwc)) : nhwc; };
  // Products are of elements of one type; gradients of weights are sums, and f32.
  const memory::desc src = images(p.src), dst = images(p.dst), weights = any_layout(p.weights, type_of(p.src)),
                     weight_sums = any_layout(p.weights, type_of(p.weights));
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto forward =
      describe<dnnl::convolution_forward>(engine(), attributes, dnnl::prop_kind::forward_training, algorithm, src,
                                          weights, p.bias, dst, p.stride, p.before, p.after);
  if (kind == PassKind::kForward) {
    adopt(forward.src_desc(), forward.weights_desc(), forward.dst_desc(), forward.scratchpad_desc());
    primitive_ = dnnl::convolution_forward(forward);
    src_in_ = between(p.src, src_);
    dst_out_ = between(dst_, p.dst);
    weights_in_.emplace(p.weights, weights_);
  } else if (kind == PassKind::kBackwardData) {
    const auto made = describe_backward<dnnl::convolution_backward_data>(engine(), attributes, forward, algorithm, src,
                                                                         weights, dst, p.stride, p.before, p.after);
    adopt(made.diff_src_desc(), made.weights_desc(), made.diff_dst_desc(), made.scratchpad_desc());
    primitive_ = dnnl::convolution_backward_data(made);
    dst_in_ = between(p.dst, dst_);
    src_out_ = between(src_, p.src);
    weights_in_.emplace(p.weights, weights_);
  } else {
    const auto made = describe_backward<dnnl::convolution_backward_weights>(
        engine(), attributes, forward, algorithm, src, weight_sums, p.bias, dst, p.stride, p.before, p.after);
    adopt(made.src_desc(), made.diff_weights_desc(), made.diff_dst_desc(), made.scratchpad_desc());
    primitive_ = dnnl::convolution_backward_weights(made);
    src_in_ = between(p.src, src_);
    dst_in_ = between(p.dst, dst_);
    weights_out_.emplace(weights_, p.weights);
    weights_add_.emplace(weights_, p.weights, true);
  }
}

void ConvPass::adopt(const memory::desc& src, const memory::desc& weights, const memory::desc& dst,
                     const memory::desc& scratchpad) {
  src_ = src;
  weights_ = weights;
  dst_ = dst;
  scratchpad_ = scratchpad;
}

const void* ConvPass::enter_src(dnnl::stream& stream, const void* nhwc) const {
  return enter(stream, src_in_, nhwc, Buffer::kSrc, src_);
}

const void* ConvPass::enter_dst(dnnl::stream& stream, const void* nhwc) const {
  return enter(stream, dst_in_, nhwc, Buffer::kDst, dst_);
}

void ConvPass::forward(dnnl::stream& stream, const void* src, const void* packed, const void* bias,
                       void* dst_nhwc) const {
  void* dst = place(dst_out_, dst_nhwc, Buffer::kDst, dst_);
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory_at(src_, src)},
                                            {DNNL_ARG_WEIGHTS, memory_at(weights_, packed)},
                                            {DNNL_ARG_DST, memory_at(dst_, dst)}};
  if (bias) arguments.insert({DNNL_ARG_BIAS, memory_at(bias_, bias)});
  run(stream, arguments);
  if (dst_out_) (*dst_out_)(stream, dst, dst_nhwc);
}

void ConvPass::backward_data(dnnl::stream& stream, const void* dst, const void* packed, void* src_nhwc) const {
  void* src = place(src_out_, src_nhwc, Buffer::kSrc, src_);
  std::unordered_map<int, memory> arguments{{DNNL_ARG_DIFF_DST, memory_at(dst_, dst)},
                                            {DNNL_ARG_WEIGHTS, memory_at(weights_, packed)},
                                            {DNNL_ARG_DIFF_SRC, memory_at(src_, src)}};
  run(stream, arguments);
  if (src_out_) (*src_out_)(stream, src, src_nhwc);
}

void ConvPass::backward_weights(dnnl::stream& stream, const void* src, const void* dst, float beta, void* weights,
                                float bias_beta, float* bias) const {
  const size_t bias_bytes = bias_.get_size();
  float* part = bias && bias_beta != 0 ? static_cast<float*>(workspace(Buffer::kBias, bias_bytes)) : bias;
  void* packed = workspace(Buffer::kWeights, packed_bytes());
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory_at(src_, src)},
                                            {DNNL_ARG_DIFF_DST, memory_at(dst_, dst)},
                                            {DNNL_ARG_DIFF_WEIGHTS, memory_at(weights_, packed)}};
  if (part) arguments.insert({DNNL_ARG_DIFF_BIAS, memory_at(bias_, part)});
  run(stream, arguments);
  (beta == 0 ? *weights_out_ : *weights_add_)(stream, packed, weights);
  if (part == bias) return;
  for (size_t i = 0; i < bias_bytes / sizeof(float); ++i) bias[i] += part[i];
}

void ConvPass::run(dnnl::stream& stream, std::unordered_map<int, memory>& arguments) const {
  void* scratchpad = workspace(Buffer::kScratchpad, scratchpad_.get_size());
  arguments.insert({DNNL_ARG_SCRATCHPAD, memory_at(scratchpad_, scratchpad)});
  primitive_.execute(stream, arguments);
  stream.wait();
}

}  // namespace owt::onednn
