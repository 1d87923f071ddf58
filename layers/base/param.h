// A parameter of a layer: this rank's shard of a named tensor, its gradient, and its order in files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/core/shape.h"
#include "src/core/tensor.h"
#include "src/system/check.h"
#include "src/system/config.h"

namespace owt {

// The distribution of the initial value. fan_in, fan_out: number of inputs and outputs of one unit.
struct Initializer {
  enum class Type { kConstant, kGaussian, kUniform, kXavier, kMsra, kDirac, kWhitening };
  Type type = Type::kConstant;
  double value = 0;          // constant
  double std = 0;            // gaussian, mean 0
  double low = 0, high = 0;  // uniform
  bool by_fan_out = false;   // msra
  double eps = 0;            // whitening
  int64_t images = 0;        // whitening
  // xavier: uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)
  // msra:   gaussian with std sqrt(2 / fan_in), or with fan = "out" sqrt(2 / fan_out) (He et al. 2015)
  // dirac:  for a convolution: output o < inputs copies input o (1 in the middle of the kernel, else 0). Further
  //         outputs are uniform in +-1 / sqrt(fan_in), PyTorch's default (Jordan 2024, arXiv:2404.00498, section 3.3)
  // whitening: training computes the initial value from images (src/train/whitening.h); until then msra

  // Reads e.g. `init = { type = "gaussian", std = 0.01 }`; returns `otherwise` if the key is missing.
  static Initializer from(Config& config, const Initializer& otherwise);
};

enum class ParamRole {
  kTrained,  // updated by the optimizer from grad
  // A running average: value += lr_mult * (grad - value); no decay, no momentum. grad holds the step's statistic,
  // weighted so that its sum over ranks and rounds is the mean over the step's rows.
  kAverage,
  kFrozen,         // never changes: no gradient, no velocity, and nothing is sent
  kFrozenAverage,  // a frozen running average; the layer normalises with it in training too
};
constexpr bool learns(ParamRole role) { return role == ParamRole::kTrained || role == ParamRole::kAverage; }
constexpr bool is_average(ParamRole role) { return role == ParamRole::kAverage || role == ParamRole::kFrozenAverage; }

// Files, messages and initial values process a tensor in pieces: as many rows as fit into this many bytes, but at least
// one.
constexpr int64_t kPieceBytes = 4 << 20;
std::vector<Slice> pieces_of(const Shape& tensor, const Slice& rows);  // these rows in pieces, in order
Slice common_part(const Slice& a, const Slice& b);                     // empty if they do not overlap
int64_t largest_piece(const Shape& tensor);                            // elements; at most the size of the tensor

// Receives the gradient of elements [first, first + count) of a tensor.
using TakeGradient = std::function<void(int64_t first, int64_t count, const float* gradient)>;

// A gradient as a product that has not been computed: dy' * x, with one row for each row of the batch. Both have the
// type of activations. Without x, the gradient of a bias: the sum of the rows of dy.
struct GradientFactors {
  Tensor dy, x;
};

struct Param {
  std::string name;  // name in files: "conv1.weight"
  ParamRole role = ParamRole::kTrained;
  // The whole tensor's shape in memory order: [out, kh, kw, in / groups] for conv, [out, h, w, c] or [out, in] for
  // dense, [out] for a bias. 4-dimensional tensors are channels-first in files (PyTorch's order).
  Shape full_shape;
  Shape file_shape;                   // in files: [out, in / groups, kh, kw] for conv, [out, c * h * w] for dense
  Slice part;                         // this rank's rows of dimension 0
  std::optional<Slice> columns = {};  // this rank's part of each row, in memory order; none: all
  Initializer init;
  int64_t fan_in = 1, fan_out = 1;
  double lr_mult = 1, decay_mult = 1;
  // Muon updates it as a matrix of full_shape.rows() rows, which takes the gradient of the whole matrix. Set with the
  // model (Model::muon_except); all other trained parameters are updated element by element.
  bool is_matrix = false;

  void freeze() { role = is_average(role) ? ParamRole::kFrozenAverage : ParamRole::kFrozen; }  // call before allocate()

  // The type of grad: bf16 only for weights of matrix products in precision bf16, and only if each gradient gets a
  // single contribution between two updates (gradient_type() of plan_updates.h). f64: a canonical sum
  // (core/canonical.h).
  DType grad_type = DType::kF32;
  Tensor value, grad;  // have shape(), on the layer's device; value is f32
  // A bf16 copy of value, if ops read one (has_copy16()). Code that changes value must update it. On a GPU every
  // parameter has a copy in that precision, because one launch updates all parameters.
  Tensor copy16;
  bool cpu_reads_copy16 = false;
  // False: no gradient is stored (updates_at_once() of plan_updates.h), and grad has no memory. The CPU's op passes the
  // gradient to `update` in pieces while they are in the cache; `update` changes value. Several threads do so at the
  // same time. A GPU's op leaves the factors of the gradient, whose memory must live until the update multiplies them.
  // It may leave them for its bias too.
  bool keeps_grad = true;
  TakeGradient update;
  std::optional<GradientFactors> factors = {};
  // With sampled classes (layers/sampled.h) grad has memory for this many rows, and they are the gradient of these rows
  // of value: i32, kNoRow where there is none. All other rows have none, and an update leaves them as they are.
  int64_t most_grad_rows = 0;  // 0: grad has shape()
  Tensor grad_rows;
  bool grad_is_zero = true;  // the gradient is zero whatever its memory holds; the first contribution overwrites it
  uint64_t version = 0;      // incremented by code that changes value, so that packed copies are renewed

  Shape shape() const { return columns ? Shape{part.size(), columns->size()} : full_shape.with_rows(part.size()); }
  Shape grad_shape() const { return most_grad_rows > 0 ? shape().with_rows(most_grad_rows) : shape(); }
  int64_t bytes() const { return shape().elements() * 4; }
  bool is_bias() const { return name.ends_with(".bias"); }
  bool has_copy16(const Compute& on) const {
    return on.precision == Precision::kBf16 && (on.device != Device::kCpu || cpu_reads_copy16);
  }

  // The beta of gemm-like calls: 0 for the first contribution after an update, else 1. Marks the gradient as non-zero.
  // Throws Error for a second contribution to a bf16 gradient.
  float take_beta() {
    const float beta = grad_is_zero ? 0.0f : 1.0f;
    OWT_CHECK(beta == 0 || grad_type != DType::kBF16, name, ": sums of gradients are f32, not bf16");
    grad_is_zero = false;
    return beta;
  }

  void allocate(const Compute& on = {});  // allocates tensors that have no memory
  void initialize(uint64_t seed);  // sets value: a function of seed, name and the element's position in file order
  void set_value(const Tensor& on_host) { set_rows(0, on_host); }  // has shape(), in memory order; blocks the host
  void set_rows(int64_t first, const Tensor& on_host);             // rows of this rank's part, starting at `first`
  // Convert `rows` whole rows of the tensor between memory order and file order; both on the host.
  void to_file_order(int64_t rows, const float* memory, float* file) const;
  void from_file_order(int64_t rows, const float* file, float* memory) const;
  // This rank's part, in memory order, of `rows` rows of `part` in file order; on the host.
  Tensor kept_of(int64_t rows, const float* in_file_order) const;
};

// The shard of a parameter that this rank updates: a range of elements in memory order, and their gradient (f32 or
// grad_type). An undefined gradient means zero.
struct ParamPart {
  Param* param;
  Slice elements;
  Tensor gradient{};
  // The elements, if a parameter server keeps its own weights (src/server/parameter_server.h). The update then leaves
  // the parameter and its copy16 alone, because the worker is using them. Undefined: the elements are in param->value.
  Tensor value{};
};

std::vector<Param*> pointers_to(std::span<Param> params);

// Reads the keys `lr`, `decay` (multipliers) and `init` of a parameter's table, e.g.
// `bias = { lr = 2.0, decay = 0.0 }`. Missing keys leave the values as they are.
void read_multipliers(Config& config, Param& param);

}  // namespace owt
