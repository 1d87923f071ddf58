#include "src/predict/op_launches.h"

#include <algorithm>

#include "layers/base/in_place.h"
#include "layers/base/small_conv_limits.h"
#include "layers/conv.h"
#include "layers/lrn.h"
#include "src/net/composite.h"

namespace owt {
namespace {

// A thread of a pool's kernels processes 8 channels of a window. It runs `each` instructions, and `for_pixel` for each
// pixel of the window. Counted in code of nvcc 13.0 for sm_90a, for windows of 2 and of 3 pixels in bf16.
struct Instructions {
  double each, for_pixel;
};
constexpr Instructions kPoolForward{147, 31}, kPoolBackward{162, 38};
constexpr double kChannels = 8, kLanes = 32;

double in_groups(int64_t count, int64_t group) { return static_cast<double>((count + group - 1) / group); }

// The products of 16 x 16 and 16 x 8 factors for sums of these terms over images.
double small_products(int64_t outputs, int64_t channels, int64_t terms) {
  return in_groups(outputs, 16) * in_groups(channels, 8) * in_groups(terms, 16);
}

bool is(const Layer& layer, const char* type) { return layer.type() == type; }

// The number of layers, from the first on, that run as one op, as Layer::bind_run does on a GPU.
int64_t run_length(Layers layers) {
  const auto next = [&](size_t i, const char* type) { return i < layers.size() && is(*layers[i], type); };
  if (is(*layers[0], "conv")) {
    if ((next(1, "relu") && (next(2, "max_pool") || next(2, "avg_pool"))) || (next(1, "max_pool") && next(2, "relu")))
      return 3;
    return next(1, "relu") ? 2 : 1;
  }
  if (is(*layers[0], "batch_norm")) return next(1, "relu") ? 2 : 1;
  if (!is(*layers[0], "dense") || !next(1, "relu")) return 1;
  return next(2, "dropout") ? 3 : 2;
}

// Whether the op of the last layer overwrites its output gradient, as Tape::overwrites_dy() does.
bool overwrites_gradient(Layers layers) {
  int64_t last = 0;
  for (size_t i = 0; i < layers.size(); i += static_cast<size_t>(last)) last = run_length(layers.subspan(i));
  return last > 1;
}

std::vector<Layer*> layers_of(const Net& branch) {
  std::vector<Layer*> layers;
  for (int64_t i = 0; i < branch.size(); ++i) layers.push_back(&branch.layer(i));
  return layers;
}

std::vector<StepLaunch>& append(std::vector<StepLaunch>& to, const std::vector<StepLaunch>& more) {
  to.insert(to.end(), more.begin(), more.end());
  return to;
}

// What the ops directly before and after an op change in it (layers/base/masking_op.h).
struct Neighbours {
  bool masks_dx = false, masks_dy = false;  // the op masks its dx; the op after it masks its dy
};

// Whether the first one of two consecutive ops hands its mask over. cuDNN has plans for a masked data gradient without
// groups if the channels are multiples of 4.
bool hands_mask_over(Layers before, Layers after, const Shape& in, const LaunchChoices& choices) {
  if (is(*before[0], "residual") && is(*after[0], "residual")) return before[0]->describe(in).integer("relu") == 1;
  if (!choices.convs_mask_dx || before.size() != 2 || !is(*before[0], "conv") || !is(*after[0], "conv")) return false;
  const std::vector<Param*> params = before[0]->params();
  const bool sums = params.size() > 1 && learns(params[1]->role);
  Shape between = in;
  for (const Layer* layer : before) between = layer->out_shape(between);
  const ConvGeometry g = *conv_geometry(*after[0], between);
  return choices.dtype == DType::kBF16 && sums && g.groups == 1 && g.in_c % 4 == 0 && g.out_c % 4 == 0;
}

// The launches of one op.
class OpLaunches {
 public:
  OpLaunches(Layers layers, const Shape& in, bool wants_dx, const LaunchChoices& choices, const Neighbours& beside)
      : layers_(layers),
        in_(in),
        wants_dx_(wants_dx),
        choices_(choices),
        dtype_(choices.dtype),
        beside_(beside),
        size_(static_cast<double>(size_of(choices.dtype))) {
    outs_ = {in};
    for (const Layer* layer : layers) outs_.push_back(layer->out_shape(outs_.back()));
    const Layer& first = *layers[0];
    if (is(first, "conv"))
      conv();
    else if (is(first, "dense"))
      dense();
    else if (is(first, "cosine"))
      cosine();
    else if (is(first, "max_pool"))
      max_pool(0, false);
    else if (is(first, "batch_norm"))
      batch_norm();
    else if (is(first, "layer_norm"))
      layer_norm();
    else if (is(first, "local"))
      local();
    else if (is(first, "lrn"))
      lrn();
    else if (is(first, "activation") && !layers_[0]->params().empty())
      prelu();
    else if (is(first, "residual"))
      residual();
    else if (is(first, "branches"))
      branches();
    else if (is(first, "scale"))
      scale();
    else
      simple();
  }

  Launches take() { return std::move(launches_); }

 private:
  double bytes(const Shape& shape) const { return size_ * static_cast<double>(shape.elements()); }
  double x(size_t layer) const { return bytes(outs_[layer]); }
  double y(size_t layer) const { return bytes(outs_[layer + 1]); }

  // Completes `work` with the layer of the run, the phase, the kernel and the kind.
  StepLaunch at(size_t layer, Phase phase, const char* kernel, LaunchKind kind, StepLaunch work) const {
    work.layer = static_cast<int64_t>(layer);
    work.name = layers_[layer]->name();
    work.phase = phase;
    work.kernel = kernel;
    work.kind = kind;
    return work;
  }
  void forward(size_t layer, const char* kernel, LaunchKind kind, const StepLaunch& work) {
    launches_.forward.push_back(at(layer, Phase::kForward, kernel, kind, work));
  }
  void backward(size_t layer, const char* kernel, LaunchKind kind, const StepLaunch& work) {
    launches_.backward.push_back(at(layer, Phase::kBackward, kernel, kind, work));
  }

  // After a linear layer with or without a relu: masks dy, and sums it for the bias.
  void bias_gradient(bool relu) {
    if (relu)
      backward(1, "over_channels", LaunchKind::kElements, {.out_bytes = 3 * y(0)});
    else if (layers_[0]->params().size() > 1 && learns(layers_[0]->params()[1]->role))
      backward(0, "over_channels", LaunchKind::kElements, {.out_bytes = y(0)});
  }

  void conv() {
    const ConvGeometry plain = *conv_geometry(*layers_[0], in_);
    const bool packs = plain.in_c <= 4 && plain.groups == 1,
               blocks = plain.stride_h * plain.stride_w > 1 && !plain.dilated();
    const ConvGeometry g = !packs   ? plain
                           : blocks ? packed_geometry(plain, plain.stride_h, plain.stride_w, 8)
                                    : packed_geometry(plain, 1, 1, 8);
    const Param& weight = *layers_[0]->params()[0];
    const auto weights_of_output = static_cast<double>(g.kernel_h * g.kernel_w * g.in_c / g.groups);
    const auto groups = static_cast<double>(g.groups), outputs = static_cast<double>(g.out_c) / groups;
    const double weights = groups * outputs * weights_of_output;
    const auto own_weights = static_cast<double>(weight.full_shape.elements());
    const double grad = own_weights * static_cast<double>(size_of(weight.grad_type));
    StepLaunch product{.flops = g.flops(1),
                       .in_bytes = bytes({1, g.in_h, g.in_w, g.in_c}),
                       .out_bytes = y(0),
                       .weight_bytes = size_ * weights,
                       .height = static_cast<double>(g.out_h * g.out_w),
                       .width = outputs,
                       .groups = groups};
    StepLaunch gradient = product;
    gradient.weight_gradient = true;
    gradient.height = outputs;
    gradient.width = weights_of_output;
    if (is_small_conv(plain, dtype_)) {
      const int64_t taps = plain.kernel_h * plain.kernel_w, pixels = plain.out_h * plain.out_w;
      product.own_products = small_products(pixels, plain.out_c, taps * small_conv_depth(plain.in_c));
      gradient.own_products =
          small_products(plain.out_c, taps * std::max<int64_t>(small_conv_depth(plain.in_c), 8), pixels);
    }

    if (packs) forward(0, "pack_weights", LaunchKind::kPacking, {.weight_bytes = size_ * (own_weights + weights)});
    forward(0, "cudnnBackendExecute", LaunchKind::kConvolution, product);
    if (layers_.size() == 3 && is(*layers_[2], "avg_pool"))
      avg_pool_after_conv();
    else if (layers_.size() == 3)
      max_pool(is(*layers_[1], "max_pool") ? 1 : 2, true);
    else if (!beside_.masks_dy)
      bias_gradient(layers_.size() == 2);
    StepLaunch to_input = product;
    if (beside_.masks_dx) to_input.in_bytes += x(0);  // its signs
    to_input.flops = plain.flops(1);
    to_input.height = static_cast<double>(plain.in_h * plain.in_w);
    to_input.width = static_cast<double>(plain.in_c) / groups;
    if (is_small_conv(plain, dtype_))
      to_input.own_products = small_products(plain.in_h * plain.in_w, plain.in_c,
                                             plain.kernel_h * plain.kernel_w * small_conv_depth(plain.out_c));
    if (wants_dx_) backward(0, "cudnnBackendExecute", LaunchKind::kConvolution, to_input);
    if (!learns(weight.role)) return;
    backward(0, "cudnnBackendExecute", LaunchKind::kConvolution, gradient);
    if (packs || weight.grad_type != dtype_)
      backward(0, "add_weight_gradient", LaunchKind::kPacking, {.weight_bytes = size_ * weights + grad});
  }

  // Weights are f32 in every precision; one launch computes the gradients of weights and bias.
  void local() {
    const std::vector<Param*> params = layers_[0]->params();
    const auto weights = static_cast<double>(params[0]->full_shape.elements());
    const StepLaunch product{
        .flops = layers_[0]->flops(in_), .in_bytes = x(0), .out_bytes = y(0), .weight_bytes = 4 * weights};
    StepLaunch gradient = product;
    gradient.weight_bytes = weights * static_cast<double>(size_of(params[0]->grad_type));
    gradient.weight_gradient = true;
    forward(0, "local_product", LaunchKind::kDense, product);
    if (wants_dx_) backward(0, "local_product", LaunchKind::kDense, product);
    if (layers_[0]->learns()) backward(0, "local_product", LaunchKind::kDense, gradient);
  }

  // With `after_conv` the pool is part of a convolution's op, which always needs the gradient.
  void max_pool(size_t layer, bool after_conv) {
    const Shape &from = after_conv ? outs_[1] : in_, &to = outs_.back();
    const std::vector<int64_t> kernel = layers_[layer]->describe(from).integers("kernel");
    const auto pixels = static_cast<double>(kernel[0] * kernel[1]);
    const auto outputs = static_cast<double>(to.elements());
    const double traffic = bytes(from) + bytes(to) + outputs * (pixels < 0x80 ? 1 : 4);
    const auto instructions = [&](const Instructions& of_window) {
      return outputs / kChannels / kLanes * (of_window.each + of_window.for_pixel * pixels);
    };
    forward(layer, "max_pool_forward", LaunchKind::kPool,
            {.out_bytes = traffic, .warp_instructions = instructions(kPoolForward)});
    if (after_conv || wants_dx_)
      backward(layer, "over_channels", LaunchKind::kPool,
               {.out_bytes = traffic, .warp_instructions = instructions(kPoolBackward)});
  }

  // Backward also reads the relu's output.
  void avg_pool_after_conv() {
    forward(2, "avg_pool_forward", LaunchKind::kPool, {.out_bytes = x(2) + y(2)});
    backward(2, "over_channels", LaunchKind::kPool, {.out_bytes = 2 * x(2) + y(2)});
  }

  void dense() {
    const Param& weight = *layers_[0]->params()[0];
    const auto weights = static_cast<double>(weight.shape().elements());
    const StepLaunch product{
        .flops = layers_[0]->flops(in_), .in_bytes = x(0), .out_bytes = y(0), .weight_bytes = size_ * weights};
    StepLaunch gradient = product;
    gradient.weight_bytes = weights * static_cast<double>(size_of(weight.grad_type));
    gradient.weight_gradient = true;
    forward(0, "cublasLtMatmul", LaunchKind::kDense, product);
    if (layers_.size() == 2) forward(1, "relu_forward", LaunchKind::kElements, {.out_bytes = 2 * y(0)});
    if (layers_.size() == 3) forward(2, "dropout_forward", LaunchKind::kElements, {.out_bytes = 2 * y(0)});
    if (layers_.size() > 1 || weight.keeps_grad) bias_gradient(layers_.size() > 1);  // else the update sums
    if (wants_dx_) backward(0, "cublasLtMatmul", LaunchKind::kDense, product);
    if (learns(weight.role) && weight.keeps_grad) backward(0, "cublasLtMatmul", LaunchKind::kDense, gradient);
  }

  // Norms are of f32 weights.
  void cosine() {
    const Param& weight = *layers_[0]->params()[0];
    const auto weights = static_cast<double>(weight.shape().elements());
    const auto grad = static_cast<double>(size_of(weight.grad_type));
    const StepLaunch product{
        .flops = layers_[0]->flops(in_), .in_bytes = x(0), .out_bytes = y(0), .weight_bytes = size_ * weights};
    StepLaunch gradient = product;
    gradient.weight_bytes = weights * grad;
    gradient.weight_gradient = true;
    const StepLaunch scaling{.out_bytes = 2 * y(0)};
    forward(0, "cublasLtMatmul", LaunchKind::kDense, product);
    forward(0, "invert_row_norms", LaunchKind::kElements, {.in_bytes = x(0)});
    forward(0, "invert_row_norms", LaunchKind::kElements, {.weight_bytes = 4 * weights});
    forward(0, "scale_rows_and_columns", LaunchKind::kElements, scaling);
    backward(0, "scale_rows_and_columns", LaunchKind::kElements, scaling);
    if (wants_dx_) {
      backward(0, "cublasLtMatmul", LaunchKind::kDense, product);
      backward(0, "remove_row_radial", LaunchKind::kElements, {.in_bytes = 3 * x(0)});
    }
    if (!learns(weight.role)) return;
    backward(0, "cublasLtMatmul", LaunchKind::kDense, gradient);
    backward(0, "remove_row_radial", LaunchKind::kElements, {.weight_bytes = weights * (4 + 2 * grad)});
  }

  // A following relu is part of these kernels, except in the backward pass of a frozen layer.
  void batch_norm() {
    if (!learns(layers_[0]->params()[0]->role)) {
      forward(0, "over_channels", LaunchKind::kNorm, {.out_bytes = x(0) + y(0)});
      if (layers_.size() == 2) backward(1, "relu_backward", LaunchKind::kElements, {.out_bytes = 3 * y(0)});
      return backward(0, "over_channels", LaunchKind::kNorm, {.out_bytes = x(0) + y(0)});
    }
    forward(0, "over_channels", LaunchKind::kNorm, {.out_bytes = x(0)});
    forward(0, "over_channels", LaunchKind::kNorm, {.out_bytes = x(0) + y(0)});
    backward(0, "over_channels", LaunchKind::kNorm, {.out_bytes = x(0) + y(0)});
    if (wants_dx_) backward(0, "over_channels", LaunchKind::kNorm, {.out_bytes = 2 * x(0) + y(0)});
  }

  void layer_norm() {
    forward(0, "layer_norm_forward", LaunchKind::kNorm, {.out_bytes = x(0) + y(0)});
    if (wants_dx_) backward(0, "layer_norm_backward", LaunchKind::kNorm, {.out_bytes = 2 * x(0) + y(0)});
    if (layers_[0]->learns()) backward(0, "over_channels", LaunchKind::kNorm, {.out_bytes = x(0) + y(0)});
  }

  void lrn() {
    const bool narrow = lrn_has_narrow_kernels(lrn_settings(*layers_[0]), in_[in_.rank() - 1], dtype_);
    const double terms = narrow ? 0 : 4 * static_cast<double>(in_.elements());
    forward(0, narrow ? "lrn_forward_narrow" : "lrn_forward_wide", LaunchKind::kNorm, {.out_bytes = x(0) + y(0)});
    if (!wants_dx_) return;
    if (!narrow) backward(0, "lrn_terms_wide", LaunchKind::kNorm, {.out_bytes = x(0) + y(0) + terms});
    backward(0, narrow ? "lrn_backward_narrow" : "lrn_backward_wide", LaunchKind::kNorm,
             {.out_bytes = 2 * x(0) + y(0) + terms});
  }

  // One launch computes both gradients.
  void prelu() {
    forward(0, "over_channels", LaunchKind::kElements, {.out_bytes = x(0) + y(0)});
    backward(0, "over_channels", LaunchKind::kElements, {.out_bytes = x(0) + y(0) + (wants_dx_ ? x(0) : 0)});
  }

  // Both branches get the gradient of the sum. If the first one overwrites it, it is computed again for the other.
  void residual() {
    const auto branches = dynamic_cast<const Composite&>(*layers_[0]).branches();
    const std::vector<Layer*> body = layers_of(branches[0]), shortcut = layers_of(branches[1]);
    const bool relu = layers_[0]->describe(in_).integer("relu") == 1;
    const Launches of_body = launches_of(body, in_, wants_dx_, choices_);
    const Launches of_shortcut = launches_of(shortcut, in_, wants_dx_, choices_);
    const bool copies = overwrites_gradient(body) || overwrites_gradient(shortcut);
    const auto give_gradient = [&] {
      if (relu && !beside_.masks_dy)
        backward(0, "relu_backward", LaunchKind::kElements, {.out_bytes = 3 * y(0)});
      else if (copies)
        backward(0, "cudaMemcpyAsync", LaunchKind::kElements, {.out_bytes = 2 * y(0)});
    };
    append(append(launches_.forward, of_shortcut.forward), of_body.forward);
    if (is(*body.back(), "batch_norm"))
      launches_.forward.back().out_bytes += y(0);  // its last kernel also adds the shortcut
    else
      forward(0, "combine", LaunchKind::kElements, {.out_bytes = 3 * y(0)});
    give_gradient();
    append(launches_.backward, of_body.backward);
    if (overwrites_gradient(body)) give_gradient();
    append(launches_.backward, of_shortcut.backward);
    if (wants_dx_ && beside_.masks_dx)
      backward(0, "combine_where_positive", LaunchKind::kElements, {.out_bytes = 4 * x(0)});
    else if (wants_dx_)
      backward(0, "combine", LaunchKind::kElements, {.out_bytes = 3 * x(0)});
    count_as_one_layer();
  }

  // The branches' outputs are copied side by side, and their gradients are copied apart; the gradients of the input are
  // added.
  void branches() {
    const auto branches = dynamic_cast<const Composite&>(*layers_[0]).branches();
    for (size_t b = branches.size(); b-- > 0;) {
      append(launches_.forward, launches_of(layers_of(branches[b]), in_, wants_dx_, choices_).forward);
      forward(0, "copy_rows", LaunchKind::kElements, {.out_bytes = 2 * bytes(branches[b].out())});
    }
    for (size_t b = 0; b < branches.size(); ++b) {
      backward(0, "copy_rows", LaunchKind::kElements, {.out_bytes = 2 * bytes(branches[b].out())});
      append(launches_.backward, launches_of(layers_of(branches[b]), in_, wants_dx_, choices_).backward);
      if (!wants_dx_) continue;
      if (branches[b].size() == 0) backward(0, "cudaMemcpyAsync", LaunchKind::kElements, {.out_bytes = 2 * x(0)});
      if (b > 0) backward(0, "combine", LaunchKind::kElements, {.out_bytes = 3 * x(0)});
    }
    count_as_one_layer();
  }

  // The body's gradient of x is written before the other part is added.
  void scale() {
    const Net& net = dynamic_cast<const Composite&>(*layers_[0]).branches()[0];
    const Launches body = launches_of(layers_of(net), in_, wants_dx_, choices_);
    append(launches_.forward, body.forward);
    forward(0, "scale_channels_of", LaunchKind::kElements, {.out_bytes = 2 * y(0)});
    backward(0, "sum_products_of_channels", LaunchKind::kElements, {.out_bytes = 2 * y(0)});
    append(launches_.backward, body.backward);
    if (wants_dx_) backward(0, "scale_channels_of", LaunchKind::kElements, {.out_bytes = 3 * y(0)});
    count_as_one_layer();
  }

  void count_as_one_layer() {
    for (auto* phase : {&launches_.forward, &launches_.backward})
      for (StepLaunch& launch : *phase) launch.layer = 0;
  }

  // One kernel in each direction, named after the layer's type; a drop_path has the kernels of a dropout. Besides dy,
  // backward reads y or x for an activation, one bit per element for a dropout, and nothing for a pool.
  void simple() {
    const Layer& layer = *layers_[0];
    const bool pools = is(layer, "avg_pool") || is(layer, "global_avg_pool"),
               drops = is(layer, "dropout") || is(layer, "drop_path");
    const double mask = drops ? static_cast<double>(in_.elements()) / 8 : 0;
    const LaunchKind kind = pools ? LaunchKind::kPool : LaunchKind::kElements;
    const std::string kernel = drops ? "dropout" : layer.type();
    forward(0, (kernel + "_forward").c_str(), kind, {.out_bytes = x(0) + y(0) + mask});
    if (wants_dx_)
      backward(0, (kernel + "_backward").c_str(), kind,
               {.out_bytes = x(0) + y(0) + mask + (pools || drops ? 0 : y(0))});
  }

  Layers layers_;
  Shape in_;
  bool wants_dx_;
  LaunchChoices choices_;
  DType dtype_;
  Neighbours beside_;
  double size_;
  std::vector<Shape> outs_;  // shapes of one row: the input, then each layer's output
  Launches launches_;
};

}  // namespace

Launches launches_of(Layers layers, const Shape& in, bool wants_dx, const LaunchChoices& choices) {
  std::vector<Layers> runs;
  for (size_t i = 0; i < layers.size(); i += runs.back().size())
    runs.push_back(layers.subspan(i, static_cast<size_t>(run_length(layers.subspan(i)))));
  Launches all;
  std::vector<Launches> of_runs;
  Shape batch = in;
  int64_t first = 0;
  bool masks_dx = false;
  for (size_t r = 0; r < runs.size(); ++r) {
    Neighbours beside{.masks_dx = masks_dx};
    beside.masks_dy = masks_dx = r + 1 < runs.size() && hands_mask_over(runs[r], runs[r + 1], batch, choices);
    Launches run = OpLaunches(runs[r], batch, wants_dx, choices, beside).take();
    const bool learns = std::any_of(runs[r].begin(), runs[r].end(), [](Layer* layer) { return layer->learns(); });
    if (!learns && !wants_dx) run.backward.clear();
    wants_dx = wants_dx || learns;
    for (auto* phase : {&run.forward, &run.backward})
      for (StepLaunch& launch : *phase) launch.layer += first;
    for (const Layer* layer : runs[r]) batch = layer->out_shape(batch);
    first += std::ssize(runs[r]);
    append(all.forward, run.forward);
    of_runs.push_back(std::move(run));
  }
  for (size_t r = of_runs.size(); r-- > 0;) append(all.backward, of_runs[r].backward);
  return all;
}

int64_t watched_arrays(Layers layers) {
  const std::vector<bool> in_place = work_in_place(layers);
  int64_t arrays = 0;
  bool learns = false;
  for (size_t i = 0; i < layers.size();) {
    const auto length = static_cast<size_t>(run_length(layers.subspan(i)));
    for (Layer* layer : layers.subspan(i, length)) learns = learns || layer->learns();
    if (!learns)
      arrays = 1;  // only the last one's output
    else if (i == 0 || length > 1 || !in_place[i])
      ++arrays;
    i += length;
  }
  return arrays;
}

}  // namespace owt
