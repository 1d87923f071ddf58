#include "layers/gpu/conv_plans.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "layers/gpu/bias_gradient.h"
#include "layers/gpu/conv_kernels.cuh"
#include "src/core/cuda.h"
#include "src/core/memory.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int kNaNByte = 0xff;                     // NaN in f32 and bf16
constexpr int kEqualRuns = 4;                      // runs with equal sums, which show a fixed order
constexpr size_t kFirstDeterministicSums = 91100;  // the first version of cuDNN that can be asked for them

struct Shapes {
  Shape x, w, y;

  Shapes(const ConvGeometry& g, int64_t rows)
      : x{rows, g.in_h, g.in_w, g.in_c},
        w{g.out_c, g.kernel_h, g.kernel_w, g.in_c / g.groups},
        y{rows, g.out_h, g.out_w, g.out_c} {}
};

// A graph with x, w and y as numbered by ConvTensor.
CudnnGraph graph_of(const Shapes& shapes, DType dtype) {
  CudnnGraph graph;
  OWT_CHECK_EQ(graph.image(dtype, shapes.x), kConvX);
  OWT_CHECK_EQ(graph.image(dtype, shapes.w), kConvW);
  OWT_CHECK_EQ(graph.image(dtype, shapes.y), kConvY);
  return graph;
}

const char* name_of(ConvPresentation presentation) {
  const char* const names[] = {"plain", "4 channels", "8 channels", "blocks"};
  return names[static_cast<size_t>(presentation)];
}

std::vector<ConvPresentation> presentations(const ConvGeometry& g) {
  std::vector<ConvPresentation> all{ConvPresentation::kPlain};
  if (g.in_c > 4 || g.groups > 1) return all;
  if (g.in_c < 4) all.push_back(ConvPresentation::kFourChannels);
  all.push_back(ConvPresentation::kEightChannels);
  if (g.stride_h * g.stride_w > 1 && !g.dilated()) all.push_back(ConvPresentation::kBlocks);
  return all;
}

std::optional<ChannelPacking> packing_of(ConvPresentation presentation, const ConvGeometry& g) {
  switch (presentation) {
    case ConvPresentation::kPlain:
      return {};
    case ConvPresentation::kFourChannels:
      return ChannelPacking(g, 1, 1, 4);
    case ConvPresentation::kEightChannels:
      return ChannelPacking(g, 1, 1, 8);
    case ConvPresentation::kBlocks:
      return ChannelPacking(g, g.stride_h, g.stride_w, 8);
  }
  return {};
}

// Which ways of computing forward with bias and relu are considered.
enum class Fusion { kAny, kFused, kApart };  // the last two are cuDNN's

class Chooser {
 public:
  Chooser(Cuda cuda, const ConvGeometry& geometry, int64_t rows, ConvEpilogue epilogue, bool learns = true)
      : dtype_(activation_type(cuda.precision)),
        rules_(rules_for(cuda)),
        geometry_(geometry),
        rows_(rows),
        epilogue_(epilogue),
        learns_(learns),
        stream_(setup_stream(Device::kCuda)) {}

  ConvPlans choose() const {
    const std::vector<ConvPresentation> all = presentations(geometry_);
    std::string best;
    if (all.size() > 1)
      best = remembered(concat("presentation, ", learns_ ? "" : "frozen, ", rules_.text(), "\n",
                               conv_fused_graph(geometry_, rows_, dtype_, epilogue_).text()),
                        [&] { return fastest(all); });
    const auto chosen = std::find_if(all.begin(), all.end(), [&](auto each) { return name_of(each) == best; });
    std::optional<ConvPlans> plans = plans_as(chosen == all.end() ? ConvPresentation::kPlain : *chosen);
    if (!plans)
      fail("cuDNN ", cudnnGetVersion(), " has no ", rules_.deterministic ? "deterministic " : "",
           "plan on this GPU for a convolution of ", Shapes(geometry_, rows_).x, " with weights ",
           Shapes(geometry_, rows_).w, " in ", name_of(dtype_), "; use another precision or --device cpu");
    return std::move(*plans);
  }

  // The fastest plans for one presentation, without a plan for the data gradient, which is the same for all
  // presentations. `ms` receives the time of forward and, if wanted, of the weight gradient, without packing; 0: not
  // measured.
  std::optional<ConvPlans> plans_as(ConvPresentation presentation, Fusion fusion = Fusion::kAny,
                                    double* ms = nullptr) const {
    std::optional<ChannelPacking> packing = packing_of(presentation, geometry_);
    const ConvGeometry& g = packing ? packing->packed() : geometry_;
    std::optional<ForwardPlan> forward = choose_forward(g, fusion);
    std::optional<WeightsPlan> weights;
    if (learns_) weights = choose_weight_gradient(g, fusion);
    if (!forward || (learns_ && !weights)) return {};
    ConvPlans plans{.packing = packing,
                    .forward = std::move(forward->plan),
                    .fused = forward->fused,
                    .weight_gradient = {},
                    .data_gradient = {},
                    .own_forward = forward->own,
                    .own_data_gradient = {},
                    .own_weight_gradient = {}};
    if (weights) {
      plans.weight_gradient = std::move(weights->plan);
      plans.own_weight_gradient = weights->own;
    }
    if (ms)
      *ms = forward->ms == 0 || (weights && weights->ms == 0) ? 0 : forward->ms + (weights ? weights->ms : 0);
    else
      choose_data_gradient(plans, fusion);
    return plans;
  }

  // choose_masked_data_gradient(); the epilogue does not matter.
  std::optional<CudnnPlan> masked_data_gradient() const {
    if (rules_.deterministic && cudnnGetVersion() < kFirstDeterministicSums) return {};
    const CudnnGraph graph = conv_masked_data_gradient_graph(geometry_, rows_, dtype_, rules_.deterministic);
    auto fused = choose_plan(graph, rules_, stream_,
                             masked_data_gradient_check(geometry_, rows_, dtype_, rules_.deterministic, stream_));
    const auto plain = choose_plan(conv_data_gradient_graph(geometry_, rows_, dtype_), rules_, stream_);
    if (!fused || !plain) return {};
    const std::string choice = remembered(concat("mask of dx, ", rules_.text(), "\n", graph.text()), [&] {
      const double own_ms = mask_ms();
      if (plain->ms == 0 || fused->ms == 0 || own_ms == 0) return std::string();
      return std::string(fused->ms < plain->ms + own_ms ? "fused" : "apart");
    });
    if (choice != "fused") return {};
    return std::move(fused->plan);
  }

 private:
  struct ForwardPlan {
    std::optional<CudnnPlan> plan;  // none: `own`
    bool fused;
    double ms;  // 0: not measured
    std::optional<SmallConv> own = {};
  };
  struct WeightsPlan {
    std::optional<CudnnPlan> plan;  // none: `own`
    double ms;                      // 0: not measured
    std::optional<SmallConvWeights> own = {};
  };

  // "" if it could not be measured.
  std::string fastest(const std::vector<ConvPresentation>& all) const {
    std::string best;
    double best_ms = 0;
    for (const ConvPresentation presentation : all) {
      try {
        double ms = 0;
        if (!plans_as(presentation, Fusion::kAny, &ms)) continue;
        if (ms == 0) return "";
        ms += packing_ms(presentation);
        if (best.empty() || ms < best_ms) best = name_of(presentation), best_ms = ms;
      } catch (const OutOfMemory&) {
        return "";
      }
    }
    return best;
  }

  // The fastest way of cuDNN, or our own kernel if it is faster.
  std::optional<ForwardPlan> choose_forward(const ConvGeometry& g, Fusion fusion) const {
    std::optional<ForwardPlan> forward = choose_cudnn_forward(g, fusion);
    const auto own = SmallConv::forward(geometry_, g.in_c, rows_, dtype_);
    if (!own || fusion != Fusion::kAny) return forward;
    const auto bind = [&](Tensor x, Tensor w, Tensor y) {
      Tensor bias({geometry_.out_c}, DType::kF32, Device::kCuda);
      return [this, own, x, w, y, bias]() mutable {
        own->queue(x.raw(), w.raw(), epilogue_.bias ? bias.data() : nullptr, epilogue_.relu, y.raw(), stream_);
      };
    };
    const std::string what = concat("forward of ", geometry_.in_c, " channels, ");
    const auto ms = own_ms(what, conv_fused_graph(g, rows_, dtype_, epilogue_), g,
                           forward ? std::optional(forward->ms) : std::nullopt, bind);
    if (ms) return ForwardPlan{{}, true, *ms, own};
    return forward;
  }

  void choose_data_gradient(ConvPlans& plans, Fusion fusion) const {
    const CudnnGraph graph = conv_data_gradient_graph(geometry_, rows_, dtype_);
    std::optional<ChosenPlan> data = choose_plan(graph, rules_, stream_);
    const auto own = SmallConv::data_gradient(geometry_, rows_, dtype_);
    const auto bind = [&](Tensor x, Tensor w, Tensor y) {
      return [this, own, x, w, y]() mutable { own->queue(y.raw(), w.raw(), nullptr, false, x.raw(), stream_); };
    };
    if (own && fusion == Fusion::kAny &&
        own_ms("data gradient, ", graph, geometry_, data ? std::optional(data->ms) : std::nullopt, bind))
      plans.own_data_gradient = own;
    else if (data)
      plans.data_gradient = std::move(data->plan);
  }

  std::optional<WeightsPlan> choose_weight_gradient(const ConvGeometry& g, Fusion fusion) const {
    const CudnnGraph graph = conv_weight_gradient_graph(g, rows_, dtype_);
    std::optional<ChosenPlan> weights = choose_plan(graph, rules_, stream_);
    if (const auto own = SmallConvWeights::gradient(geometry_, g.in_c, rows_, dtype_); own && fusion == Fusion::kAny) {
      const auto bind = [&](Tensor x, Tensor w, Tensor y) {
        Tensor workspace({own->workspace_bytes()}, DType::kU8, Device::kCuda);
        return
            [this, own, x, w, y, workspace]() mutable { own->queue(x.raw(), y.raw(), 0, w, workspace.raw(), stream_); };
      };
      const std::string what = concat("weight gradient of ", geometry_.in_c, " channels, ");
      const auto ms = own_ms(what, graph, g, weights ? std::optional(weights->ms) : std::nullopt, bind);
      if (ms) return WeightsPlan{{}, *ms, own};
    }
    if (!weights) return {};
    return WeightsPlan{std::move(weights->plan), weights->ms};
  }

  // The time of our own kernel, if it is faster than cuDNN's (0: not measured; none: there is no plan). bind(x, w, y)
  // returns a function that queues it; x has the geometry `g`, and w the layer's geometry.
  template <class Bind>
  std::optional<double> own_ms(const std::string& what, const CudnnGraph& graph, const ConvGeometry& g,
                               std::optional<double> cudnn_ms, const Bind& bind) const {
    const std::string key = concat("own convolution or cuDNN, ", what, rules_.text(), "\n", graph.text());
    const std::string choice = remembered(key, [&]() -> std::string {
      if (cudnn_ms == 0.0) return "";
      try {
        const Tensor x(Shapes(g, rows_).x, dtype_, Device::kCuda), w(Shapes(geometry_, rows_).w, dtype_, Device::kCuda);
        const Tensor y(Shapes(g, rows_).y, dtype_, Device::kCuda);
        const auto queue = bind(x, w, y);
        const double most = cudnn_ms.value_or(1e9), first = time_work(stream_, queue, most);
        const double ms = first < 2 * most ? std::min(first, time_work(stream_, queue)) : first;
        return ms < most ? concat("own ", ms) : "cuDNN";
      } catch (const OutOfMemory&) {
        return "";
      }
    });
    if (!choice.starts_with("own ")) return {};
    return std::stod(choice.substr(choice.find(' ')));
  }

  std::optional<ForwardPlan> choose_cudnn_forward(const ConvGeometry& g, Fusion fusion) const {
    const bool epilogue = epilogue_.bias || epilogue_.relu;
    std::optional<ChosenPlan> plain, fused;
    if (fusion != Fusion::kFused) plain = choose_plan(conv_forward_graph(g, rows_, dtype_), rules_, stream_);
    const CudnnGraph graph = conv_fused_graph(g, rows_, dtype_, epilogue_);
    if (fusion != Fusion::kApart && epilogue)
      fused = choose_plan(graph, rules_, stream_, epilogue_.relu ? keeps_nan(g) : PlanCheck());
    if (!plain && !fused) return {};
    if (!epilogue) return ForwardPlan{std::move(plain->plan), false, plain->ms};

    std::string choice = plain ? "apart 0" : "fused";
    if (plain && fused)
      choice = remembered(concat("epilogue, ", rules_.text(), "\n", graph.text()), [&] {
        const double own_ms = epilogue_ms();
        if (plain->ms == 0 || fused->ms == 0 || own_ms == 0) return std::string();
        return fused->ms < plain->ms + own_ms ? "fused" : concat("apart ", own_ms);
      });
    if (choice == "fused") return ForwardPlan{std::move(fused->plan), true, fused->ms};
    const double own_ms = choice.empty() ? 0 : std::stod(choice.substr(choice.find(' ')));
    return ForwardPlan{std::move(plain->plan), false, plain->ms == 0 || choice.empty() ? 0 : plain->ms + own_ms};
  }

  // cuDNN may compute a relu as max(x, 0), which drops NaN on GPUs. A NaN must not disappear, so that a network that
  // diverges shows it.
  PlanCheck keeps_nan(const ConvGeometry& g) const {
    return [this, g](const std::function<void*(CudnnGraph::Id)>& memory, const std::function<void()>& run) {
      const auto weight_bytes = static_cast<size_t>(Shapes(g, rows_).w.elements() * size_of(dtype_));
      OWT_CUDA(cudaMemsetAsync(memory(kConvW), kNaNByte, weight_bytes, cuda_stream(stream_)));
      run();
      OWT_CUDA(cudaMemsetAsync(memory(kConvW), kFillByte, weight_bytes, cuda_stream(stream_)));
      return starts_with_nan(memory(kConvY), dtype_, stream_);
    };
  }

  double epilogue_ms() const {
    try {
      Tensor y(Shapes(geometry_, rows_).y, dtype_, Device::kCuda);
      const Tensor bias({geometry_.out_c}, DType::kF32, Device::kCuda);
      return time_work(stream_, [&] { queue_epilogue(epilogue_, bias.data(), y, stream_); });
    } catch (const OutOfMemory&) {
      return 0;
    }
  }

  // The pass over dx that the op before makes if this one does not mask it.
  double mask_ms() const {
    try {
      const Shape x = Shapes(geometry_, rows_).x;
      const Tensor seen(x, dtype_, Device::kCuda), dx(x, dtype_, Device::kCuda);
      Param bias;
      bias.grad = Tensor({geometry_.in_c}, DType::kF32, Device::kCuda);
      const auto pass = make_bias_gradient(x.elements() / geometry_.in_c, geometry_.in_c, &bias, FollowingRelu{});
      return time_work(stream_, [&] { pass->queue(stream_, seen, dx); });
    } catch (const OutOfMemory&) {
      return 0;
    }
  }

  double packing_ms(ConvPresentation presentation) const {
    const std::optional<ChannelPacking> packing = packing_of(presentation, geometry_);
    if (!packing) return 0;
    const Shapes plain(geometry_, rows_), packed(packing->packed(), rows_);
    const Tensor x(plain.x, dtype_, Device::kCuda), w(plain.w, dtype_, Device::kCuda);
    Tensor packed_x(packed.x, dtype_, Device::kCuda), packed_w(packed.w, dtype_, Device::kCuda);
    return time_work(stream_, [&] {
      queue_pack_images(packing->layout(), x, packed_x.raw(), stream_);
      queue_pack_weights(*packing, dtype_, w.raw(), packed_w.raw(), stream_);
    });
  }

  DType dtype_;
  PlanRules rules_;
  ConvGeometry geometry_;
  int64_t rows_;
  ConvEpilogue epilogue_;
  bool learns_;  // whether the weight gradient is wanted
  const Stream& stream_;
};

}  // namespace

CudnnGraph conv_forward_graph(const ConvGeometry& geometry, int64_t rows, DType dtype) {
  CudnnGraph graph = graph_of(Shapes(geometry, rows), dtype);
  graph.conv_forward(geometry, kConvX, kConvW, kConvY);
  return graph;
}

CudnnGraph conv_fused_graph(const ConvGeometry& geometry, int64_t rows, DType dtype, ConvEpilogue epilogue) {
  const Shapes shapes(geometry, rows);
  CudnnGraph graph = graph_of(shapes, dtype);
  if (epilogue.bias) OWT_CHECK_EQ(graph.channels(dtype, geometry.out_c), kConvBias);
  if (!epilogue.bias && !epilogue.relu) {
    graph.conv_forward(geometry, kConvX, kConvW, kConvY);
    return graph;
  }
  const auto products = graph.between(shapes.y);
  graph.conv_forward(geometry, kConvX, kConvW, products);
  if (!epilogue.relu) {
    graph.add(products, kConvBias, kConvY);
  } else if (!epilogue.bias) {
    graph.relu(products, kConvY);
  } else {
    const auto sums = graph.between(shapes.y);
    graph.add(products, kConvBias, sums);
    graph.relu(sums, kConvY);
  }
  return graph;
}

CudnnGraph conv_weight_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype) {
  CudnnGraph graph = graph_of(Shapes(geometry, rows), dtype);
  graph.conv_weight_gradient(geometry, kConvX, kConvY, kConvW);
  return graph;
}

CudnnGraph conv_data_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype) {
  CudnnGraph graph = graph_of(Shapes(geometry, rows), dtype);
  graph.conv_data_gradient(geometry, kConvY, kConvW, kConvX);
  return graph;
}

CudnnGraph conv_masked_data_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype,
                                           bool deterministic) {
  const Shapes shapes(geometry, rows);
  CudnnGraph graph = graph_of(shapes, dtype);
  OWT_CHECK_EQ(graph.channels(DType::kF32, geometry.in_c), kConvBias);
  OWT_CHECK_EQ(graph.image(dtype, shapes.x), kConvSeen);
  const auto unmasked = graph.between(shapes.x);
  graph.conv_data_gradient(geometry, kConvY, kConvW, unmasked);
  graph.relu_backward(kConvSeen, unmasked, kConvX);
  graph.sum_channels(kConvX, kConvBias, deterministic);
  return graph;
}

int64_t ConvPlans::workspace_bytes() const {
  const auto of = [](const std::optional<CudnnPlan>& plan) { return plan ? plan->workspace_bytes() : 0; };
  const int64_t own = own_weight_gradient ? own_weight_gradient->workspace_bytes() : 0;
  return std::max({of(forward), of(weight_gradient), of(data_gradient), own});
}

ConvPlans choose_conv_plans(Cuda cuda, const ConvGeometry& geometry, int64_t rows, ConvEpilogue epilogue, bool learns) {
  const MeasuringTurn turn;
  return Chooser(cuda, geometry, rows, epilogue, learns).choose();
}

std::optional<CudnnPlan> choose_masked_data_gradient(Cuda cuda, const ConvGeometry& geometry, int64_t rows) {
  const MeasuringTurn turn;
  return Chooser(cuda, geometry, rows, {}).masked_data_gradient();
}

PlanCheck masked_data_gradient_check(const ConvGeometry& geometry, int64_t rows, DType dtype, bool deterministic,
                                     const Stream& stream) {
  return [=, &stream](const std::function<void*(CudnnGraph::Id)>& memory, const std::function<void()>& run) {
    const Shapes shapes(geometry, rows);
    const auto fill = [&](CudnnGraph::Id id, const Shape& shape, int byte) {
      const auto bytes = static_cast<size_t>(shape.elements() * size_of(dtype));
      OWT_CUDA(cudaMemsetAsync(memory(id), byte, bytes, cuda_stream(stream)));
    };
    const auto sums_are_nan = [&] { return starts_with_nan(memory(kConvBias), DType::kF32, stream); };
    fill(kConvW, shapes.w, kNaNByte);
    run();
    const bool shows_nan = starts_with_nan(memory(kConvX), dtype, stream) && sums_are_nan();
    fill(kConvW, shapes.w, kFillByte);
    run();
    if (!shows_nan || sums_are_nan()) return false;
    if (!deterministic) return true;
    with_element(dtype, [&](auto element) {
      using T = decltype(element);
      const int64_t count = shapes.y.elements();
      launch(fill_unequal<T>, dim3(blocks_for(count)), dim3(kBlockThreads), stream, count,
             static_cast<T*>(memory(kConvY)));
    });
    std::vector<float> first, sums(static_cast<size_t>(geometry.in_c));
    bool same = true;
    for (int i = 0; i < kEqualRuns && same; ++i) {
      run();
      copy_bytes(Cuda{}, memory(kConvBias), sums.data(), geometry.in_c * size_of(DType::kF32), stream);
      stream.synchronize();
      if (i == 0) first = sums;
      same = sums == first;
    }
    fill(kConvY, shapes.y, kFillByte);
    return same;
  };
}

std::optional<ConvPlans> conv_plans_as(Cuda cuda, const ConvGeometry& geometry, int64_t rows, ConvEpilogue epilogue,
                                       ConvPresentation presentation, bool fused) {
  const MeasuringTurn turn;
  return Chooser(cuda, geometry, rows, epilogue).plans_as(presentation, fused ? Fusion::kFused : Fusion::kApart);
}

void queue_epilogue(ConvEpilogue epilogue, const float* bias, Tensor& y, const Stream& stream) {
  const int64_t channels = y.shape()[3], positions = y.elements() / channels;
  with_element(y.dtype(), [&](auto element) {
    const float* added = epilogue.bias ? bias : nullptr;
    with_width<decltype(element)>(channels, {y.raw(), added}, [&](auto t, auto width) {
      using T = decltype(t);
      if (epilogue.relu)
        queue_over_channels(AddBias<T, width, true>{y.data<T>(), added}, positions, channels, stream);
      else
        queue_over_channels(AddBias<T, width, false>{y.data<T>(), added}, positions, channels, stream);
    });
  });
}

}  // namespace owt
