#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "layers/conv.h"
#include "layers/conv_algorithm.h"
#include "layers/prepared_op.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/onednn.h"
#include "src/core/threads.h"

// oneDNN computes each pass from and to NHWC images directly, or by Winograd's algorithm on images in blocks
// of 16 channels, which are then copied in and out. Weights are always packed into the layout that the
// primitive asks for.

namespace owt {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

// Memory that all convolutions of a host thread share, because one runs at a time; it grows to the largest. It is not
// Pass::scratch: how much oneDNN needs is known when a pass is made, which is when it first runs, or runs with another
// team, and making one measures, in the same memory.
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

// A change of layout.
class Copy {
 public:
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

enum class PassKind { kForward, kBackwardData, kBackwardWeights };

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

// What is computed, in the layouts of owt.
struct Problem {
  Problem(const ConvGeometry& g, int64_t rows, bool with_bias)
      : src({rows, g.in_c, g.in_h, g.in_w}, memory::data_type::f32, Tag::nhwc),
        dst({rows, g.out_c, g.out_h, g.out_w}, memory::data_type::f32, Tag::nhwc),
        weights(g.groups == 1
                    ? memory::desc({g.out_c, g.in_c, g.kernel_h, g.kernel_w}, memory::data_type::f32, Tag::ohwi)
                    : memory::desc({g.groups, g.out_c / g.groups, g.in_c / g.groups, g.kernel_h, g.kernel_w},
                                   memory::data_type::f32, Tag::gohwi)),
        stride{g.stride_h, g.stride_w},
        before{g.top, g.left},
        after{g.bottom, g.right} {
    if (with_bias) bias = memory::desc({g.out_c}, memory::data_type::f32, Tag::a);
  }

  memory::desc src, dst, weights;
  memory::desc bias;  // empty where there is none
  memory::dims stride, before, after;
};

// One pass by one algorithm. src is x or dx, dst y or dy, weights w or dw.
class ConvPass {
 public:
  // Empty where the algorithm cannot compute the pass.
  static std::optional<ConvPass> make(const Problem& problem, PassKind kind, bool winograd) {
    try {
      return ConvPass(problem, kind, winograd);
    } catch (const dnnl::error& e) {
      // What oneDNN has no kernel for; anything else, such as no memory, is an error.
      if (e.status == dnnl_unimplemented || e.status == dnnl_invalid_arguments) return std::nullopt;
      fail("oneDNN cannot make a ", name_of(kind), " convolution: ", e.what());
    }
  }

  const memory::desc& dst_layout() const { return dst_; }

  // The images in the layout of this pass: themselves, or a copy in the workspace that lasts until its next
  // use.
  const void* enter_src(dnnl::stream& s, const void* nhwc) const { return enter(s, src_in_, nhwc, Buffer::kSrc, src_); }
  const void* enter_dst(dnnl::stream& s, const void* nhwc) const { return enter(s, dst_in_, nhwc, Buffer::kDst, dst_); }

  // Forward and backward data: the weights as the primitive wants them.
  size_t packed_bytes() const { return weights_.get_size(); }
  void pack(dnnl::stream& stream, const void* weights, void* packed) const { (*weights_in_)(stream, weights, packed); }

  void forward(dnnl::stream& stream, const void* src, const void* packed, const void* bias, void* dst_nhwc) const {
    void* dst = place(dst_out_, dst_nhwc, Buffer::kDst, dst_);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory_at(src_, src)},
                                              {DNNL_ARG_WEIGHTS, memory_at(weights_, packed)},
                                              {DNNL_ARG_DST, memory_at(dst_, dst)}};
    if (bias) arguments.insert({DNNL_ARG_BIAS, memory_at(bias_, bias)});
    run(stream, arguments);
    if (dst_out_) (*dst_out_)(stream, dst, dst_nhwc);
  }

  void backward_data(dnnl::stream& stream, const void* dst, const void* packed, void* src_nhwc) const {
    void* src = place(src_out_, src_nhwc, Buffer::kSrc, src_);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_DIFF_DST, memory_at(dst_, dst)},
                                              {DNNL_ARG_WEIGHTS, memory_at(weights_, packed)},
                                              {DNNL_ARG_DIFF_SRC, memory_at(src_, src)}};
    run(stream, arguments);
    if (src_out_) (*src_out_)(stream, src, src_nhwc);
  }

  // weights = beta * weights + the gradient, beta 0 or 1; bias (may be null) = the gradient.
  void backward_weights(dnnl::stream& stream, const void* src, const void* dst, float beta, void* weights,
                        void* bias) const {
    void* packed = workspace(Buffer::kWeights, packed_bytes());
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory_at(src_, src)},
                                              {DNNL_ARG_DIFF_DST, memory_at(dst_, dst)},
                                              {DNNL_ARG_DIFF_WEIGHTS, memory_at(weights_, packed)}};
    if (bias) arguments.insert({DNNL_ARG_DIFF_BIAS, memory_at(bias_, bias)});
    run(stream, arguments);
    (beta == 0 ? *weights_out_ : *weights_add_)(stream, packed, weights);
  }

 private:
  ConvPass(const Problem& p, PassKind kind, bool winograd) : bias_(p.bias) {
    const auto algorithm = winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
    const auto images = [&](const memory::desc& nhwc) { return winograd ? onednn::any_layout(nhwc) : nhwc; };
    const memory::desc src = images(p.src), dst = images(p.dst), weights = onednn::any_layout(p.weights);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto forward =
        onednn::describe<dnnl::convolution_forward>(engine(), attributes, dnnl::prop_kind::forward_training, algorithm,
                                                    src, weights, p.bias, dst, p.stride, p.before, p.after);
    if (kind == PassKind::kForward) {
      adopt(forward.src_desc(), forward.weights_desc(), forward.dst_desc(), forward.scratchpad_desc());
      primitive_ = dnnl::convolution_forward(forward);
      src_in_ = between(p.src, src_);
      dst_out_ = between(dst_, p.dst);
      weights_in_.emplace(p.weights, weights_);
    } else if (kind == PassKind::kBackwardData) {
      const auto made = onednn::describe_backward<dnnl::convolution_backward_data>(
          engine(), attributes, forward, algorithm, src, weights, dst, p.stride, p.before, p.after);
      adopt(made.diff_src_desc(), made.weights_desc(), made.diff_dst_desc(), made.scratchpad_desc());
      primitive_ = dnnl::convolution_backward_data(made);
      dst_in_ = between(p.dst, dst_);
      src_out_ = between(src_, p.src);
      weights_in_.emplace(p.weights, weights_);
    } else {
      const auto made = onednn::describe_backward<dnnl::convolution_backward_weights>(
          engine(), attributes, forward, algorithm, src, weights, p.bias, dst, p.stride, p.before, p.after);
      adopt(made.src_desc(), made.diff_weights_desc(), made.diff_dst_desc(), made.scratchpad_desc());
      primitive_ = dnnl::convolution_backward_weights(made);
      src_in_ = between(p.src, src_);
      dst_in_ = between(p.dst, dst_);
      weights_out_.emplace(weights_, p.weights);
      weights_add_.emplace(weights_, p.weights, true);
    }
  }

  void adopt(const memory::desc& src, const memory::desc& weights, const memory::desc& dst,
             const memory::desc& scratchpad) {
    src_ = src;
    weights_ = weights;
    dst_ = dst;
    scratchpad_ = scratchpad;
  }

  static std::optional<Copy> between(const memory::desc& from, const memory::desc& to) {
    if (from == to) return std::nullopt;
    return Copy(from, to);
  }

  static const void* enter(dnnl::stream& stream, const std::optional<Copy>& copy, const void* nhwc, Buffer buffer,
                           const memory::desc& layout) {
    if (!copy) return nhwc;
    void* entered = workspace(buffer, layout.get_size());
    (*copy)(stream, nhwc, entered);
    return entered;
  }

  static void* place(const std::optional<Copy>& copy, void* nhwc, Buffer buffer, const memory::desc& layout) {
    return copy ? workspace(buffer, layout.get_size()) : nhwc;
  }

  void run(dnnl::stream& stream, std::unordered_map<int, memory>& arguments) const {
    void* scratchpad = workspace(Buffer::kScratchpad, scratchpad_.get_size());
    arguments.insert({DNNL_ARG_SCRATCHPAD, memory_at(scratchpad_, scratchpad)});
    primitive_.execute(stream, arguments);
    stream.wait();
  }

  dnnl::primitive primitive_;
  memory::desc src_, weights_, dst_, bias_, scratchpad_;
  std::optional<Copy> src_in_, src_out_, dst_in_, dst_out_, weights_in_, weights_out_, weights_add_;
};

// --- choosing the algorithm ---

// Without the rows of the batch, so that a last, smaller batch uses the same algorithm.
std::string key_of(const ConvGeometry& g, PassKind kind) {
  const std::string geometry =
      format("{}x{}x{} -> {}x{}x{}, kernel {}x{}, stride {}x{}, pad {} {} {} {}, groups {}, {}", g.in_h, g.in_w, g.in_c,
             g.out_h, g.out_w, g.out_c, g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.top, g.left, g.bottom,
             g.right, g.groups, name_of(kind));
  return ConvChoices::key(geometry, team_size());
}

Tensor pattern(const memory::desc& layout) {
  Tensor tensor({static_cast<int64_t>(layout.get_size() / sizeof(float))});
  uint32_t state = 1;
  float* values = tensor.data();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return tensor;
}

// Runs one pass as a training step does, on tensors of its own.
class Trial {
 public:
  Trial(const Problem& problem, PassKind kind)
      : kind_(kind), x_(pattern(problem.src)), w_(pattern(problem.weights)), y_(pattern(problem.dst)) {
    if (problem.bias.get_size() > 0) b_ = pattern(problem.bias);
  }

  // A step's worth of one pass; the first one is for the caches.
  double milliseconds(const ConvPass& pass) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    run(pass);
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  const Tensor& result() const { return kind_ == PassKind::kForward ? y_ : kind_ == PassKind::kBackwardData ? x_ : w_; }

 private:
  void run(const ConvPass& pass) {
    void* bias = b_.defined() ? b_.raw() : nullptr;
    if (kind_ == PassKind::kBackwardWeights) {
      const void* src = pass.enter_src(stream_, x_.raw());
      pass.backward_weights(stream_, src, pass.enter_dst(stream_, y_.raw()), 0, w_.raw(), bias);
      return;
    }
    if (!packed_.defined() || packed_.bytes() != static_cast<int64_t>(pass.packed_bytes()))
      packed_ = Tensor({static_cast<int64_t>(pass.packed_bytes())}, DType::kU8);
    pass.pack(stream_, w_.raw(), packed_.raw());
    if (kind_ == PassKind::kForward)
      pass.forward(stream_, pass.enter_src(stream_, x_.raw()), packed_.raw(), bias, y_.raw());
    else
      pass.backward_data(stream_, pass.enter_dst(stream_, y_.raw()), packed_.raw(), x_.raw());
  }

  PassKind kind_;
  Tensor x_, w_, y_, b_, packed_;
  dnnl::stream stream_{engine()};
};

double relative_error(const Tensor& found, const Tensor& exact) {
  double difference = 0, norm = 0;
  const float *f = found.data(), *e = exact.data();
  for (int64_t i = 0; i < exact.elements(); ++i) {
    difference += (static_cast<double>(f[i]) - e[i]) * (static_cast<double>(f[i]) - e[i]);
    norm += static_cast<double>(e[i]) * e[i];
  }
  return norm == 0 ? 0 : std::sqrt(difference / norm);
}

// Enough rows that transforming the weights weighs as little as in a step, few enough to be done in a second.
int64_t rows_to_measure(const ConvGeometry& g, int64_t rows) {
  const double enough = 8e9 * team_size() / g.flops(1);
  return std::min(rows, std::max<int64_t>(team_size(), static_cast<int64_t>(enough)));
}

ConvChoices::Measured measure(const ConvGeometry& g, int64_t rows, bool bias, PassKind kind) {
  const Problem problem(g, rows_to_measure(g, rows), bias);
  const auto direct = ConvPass::make(problem, kind, false), winograd = ConvPass::make(problem, kind, true);
  ConvChoices::Measured measured;
  if (!direct || !winograd) return measured;
  Trial by_direct(problem, kind), by_winograd(problem, kind);
  by_direct.milliseconds(*direct);
  by_winograd.milliseconds(*winograd);
  measured.error = relative_error(by_winograd.result(), by_direct.result());
  // In turn, so that a disturbance hits both; the least time is the one without.
  measured.direct_ms = measured.winograd_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    measured.direct_ms = std::min(measured.direct_ms, by_direct.milliseconds(*direct));
    measured.winograd_ms = std::min(measured.winograd_ms, by_winograd.milliseconds(*winograd));
  }
  return measured;
}

// --- the op ---

class ConvOp : public PreparedOp {
 public:
  ConvOp(const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias)
      : geometry_(geometry), rows_(rows), weight_(weight), bias_(bias) {
    pass(PassKind::kForward);
  }

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    const ConvPass& forward = pass(PassKind::kForward);
    const void* packed = packed_weights(PassKind::kForward);
    forward.forward(stream_, forward.enter_src(stream_, x.raw()), packed, bias_ ? bias_->value.raw() : nullptr,
                    y.raw());
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    prepare_backward(dx != nullptr);  // before the workspace holds anything: measuring uses it, too
    entered_dy_ = nullptr;
    if (!dx) return;
    const ConvPass& by_data = pass(PassKind::kBackwardData);
    const void* dst = by_data.enter_dst(stream_, dy.raw());
    by_data.backward_data(stream_, dst, packed_weights(PassKind::kBackwardData), dx->raw());
    if (by_data.dst_layout() == pass(PassKind::kBackwardWeights).dst_layout()) entered_dy_ = dst;
  }

  void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override {
    const ConvPass& by_weights = pass(PassKind::kBackwardWeights);
    const void* dst = entered_dy_ ? entered_dy_ : by_weights.enter_dst(stream_, dy.raw());
    add_weight_gradient(by_weights, by_weights.enter_src(stream_, x.raw()), dst);
  }

  void prepare_backward(bool wants_dx) override {
    pass(PassKind::kBackwardWeights);
    if (wants_dx) pass(PassKind::kBackwardData);
  }

 private:
  struct Prepared {
    std::optional<ConvPass> pass;
    Tensor packed;
    std::optional<uint64_t> version;  // the one that was packed
  };

  Prepared& prepared(PassKind kind) { return passes_[static_cast<size_t>(kind)]; }

  // oneDNN divides the work of a primitive when it makes it, so it must run with the team it was made with.
  const ConvPass& pass(PassKind kind) {
    if (team_ != team_size()) {
      passes_ = {};
      team_ = team_size();
    }
    Prepared& here = prepared(kind);
    if (!here.pass) {
      here.pass = make_pass(kind);
      if (kind != PassKind::kBackwardWeights)
        here.packed = Tensor({static_cast<int64_t>(here.pass->packed_bytes())}, DType::kU8);
    }
    return *here.pass;
  }

  ConvPass make_pass(PassKind kind) const {
    const Problem problem(geometry_, rows_, bias_ != nullptr);
    ConvChoices& choices = ConvChoices::process();
    if (choices.mode() != ConvAlgorithm::kDirect) {
      std::optional<ConvPass> winograd = ConvPass::make(problem, kind, true);
      const auto race = [&] { return measure(geometry_, rows_, bias_ != nullptr, kind); };
      if (!winograd)
        choices.has_no_winograd(key_of(geometry_, kind));
      else if (choices.choose(key_of(geometry_, kind), race) == ConvAlgorithm::kWinograd)
        return std::move(*winograd);
    }
    std::optional<ConvPass> direct = ConvPass::make(problem, kind, false);
    OWT_CHECK(direct.has_value(), "no ", name_of(kind), " convolution for ", key_of(geometry_, kind));
    return std::move(*direct);
  }

  const void* packed_weights(PassKind kind) {
    Prepared& here = prepared(kind);
    if (here.version != weight_.version) {
      here.pass->pack(stream_, weight_.value.raw(), here.packed.raw());
      here.version = weight_.version;
    }
    return here.packed.raw();
  }

  void add_weight_gradient(const ConvPass& by_weights, const void* src, const void* dst) {
    const float bias_beta = bias_ ? bias_->take_beta() : 0;
    void* bias = nullptr;
    if (bias_)
      bias = bias_beta == 0 ? bias_->grad.raw() : workspace(Buffer::kBias, static_cast<size_t>(bias_->bytes()));
    by_weights.backward_weights(stream_, src, dst, weight_.take_beta(), weight_.grad.raw(), bias);
    if (bias_beta == 0) return;
    const float* part = static_cast<const float*>(bias);
    float* sum = bias_->grad.data();
    for (int64_t o = 0; o < geometry_.out_c; ++o) sum[o] += part[o];
  }

  ConvGeometry geometry_;
  int64_t rows_;
  Param& weight_;
  Param* bias_;
  int team_ = 0;
  std::array<Prepared, 3> passes_;
  // dy as both passes read it, which they do where both are direct or both by Winograd; else null. It lies in the
  // workspace or is dy itself, and lasts until another op runs.
  const void* entered_dy_ = nullptr;
  dnnl::stream stream_{engine()};
};

}  // namespace

std::string why_no_winograd() {
  const ConvGeometry favourite{14, 14, 64, 14, 14, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  if (ConvPass::make(Problem(favourite, 1, true), PassKind::kForward, true)) return "";
  return "oneDNN " + onednn::version() + " has no Winograd convolution for this processor";
}

std::unique_ptr<Op> bind_conv(Cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias) {
  return std::make_unique<ConvOp>(geometry, rows, weight, bias);
}

}  // namespace owt
