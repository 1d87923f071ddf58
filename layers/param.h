// A parameter of a layer: this rank's part of a named tensor, its gradient, and how files see it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/core/check.h"
#include "src/core/config.h"
#include "src/core/shape.h"
#include "src/core/tensor.h"

namespace owt {

// How the first value is drawn. fan_in, fan_out count the inputs and outputs of one unit.
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
  // dirac:  of a convolution, output o < inputs is input o: 1 in the middle of the kernel, else 0; further outputs are
  //         uniform in +-1 / sqrt(fan_in), PyTorch's default (Jordan 2024, arXiv:2404.00498, section 3.3)
  // whitening: what training starts from depends on the images (src/train/whitening.h); until then msra

  // From `init = { type = "gaussian", std = 0.01 }`; `otherwise` where the key is missing.
  static Initializer from(Config& config, const Initializer& otherwise);
};

enum class ParamRole {
  kTrained,  // updated by the optimizer from grad
  kAverage,  // a running average: value += lr_mult * (grad - value); never decays, has no momentum. grad holds this
             // step's statistic, weighted so that its sum over ranks and rounds is the mean over the step's rows
  kFrozen,   // keeps its value: it has no gradient and no velocity, and nothing of it travels
  kFrozenAverage,  // the same of a running average, with which the layer normalises in training too
};
constexpr bool learns(ParamRole role) { return role == ParamRole::kTrained || role == ParamRole::kAverage; }
constexpr bool is_average(ParamRole role) { return role == ParamRole::kAverage || role == ParamRole::kFrozenAverage; }

// Files, messages and first values handle a tensor in pieces: as many of its rows as fit into so many bytes, or one
// row.
constexpr int64_t kPieceBytes = 4 << 20;
std::vector<Slice> pieces_of(const Shape& tensor, const Slice& rows);  // these rows, in order, in pieces
Slice common_part(const Slice& a, const Slice& b);                     // empty where they have nothing in common
int64_t largest_piece(const Shape& tensor);                            // elements; never more than it has

// Takes the gradient of a tensor's elements [first, first + count).
using TakeGradient = std::function<void(int64_t first, int64_t count, const float* gradient)>;

struct Param {
  std::string name;  // as in files: "conv1.weight"
  ParamRole role = ParamRole::kTrained;
  // The whole tensor in memory order: [out, kh, kw, in / groups] for conv, [out, h, w, c] or [out, in] for dense, [out]
  // for a bias. 4-dimensional ones are channels-first in files (PyTorch's order).
  Shape full_shape;
  Shape file_shape;                   // in files: [out, in / groups, kh, kw] for conv, [out, c * h * w] for dense
  Slice part;                         // rows of dimension 0 that are kept here
  std::optional<Slice> columns = {};  // the part of each that is kept here, in memory order; none: all
  Initializer init;
  int64_t fan_in = 1, fan_out = 1;
  double lr_mult = 1, decay_mult = 1;

  void freeze() { role = is_average(role) ? ParamRole::kFrozenAverage : ParamRole::kFrozen; }  // before it has memory

  // The type of grad: bf16 only for weights of products in precision bf16, and only where no contribution is ever
  // added to another one between two updates (Plan::gradient_type).
  DType grad_type = DType::kF32;
  Tensor value, grad;  // shape(), where the layer computes; value in f32
  // Of value, in bf16, where ops read that (has_copy16()); whoever changes value renews it. On a GPU every parameter
  // has one in that precision, since one launch updates all.
  Tensor copy16;
  bool cpu_reads_copy16 = false;
  // Where no gradient is kept (Plan::updates_at_once), grad has no memory. Whoever computes it gives it to `update` in
  // pieces while they are in the cache, and value changes with each; threads do so at the same time.
  bool keeps_grad = true;
  TakeGradient update;
  bool grad_is_zero = true;  // the gradient is zero whatever its memory holds; the first contribution overwrites
  uint64_t version = 0;      // raised by whoever changes value, so that packed copies can be renewed

  Shape shape() const { return columns ? Shape{part.size(), columns->size()} : full_shape.with_rows(part.size()); }
  int64_t bytes() const { return shape().elements() * 4; }
  bool is_bias() const { return name.ends_with(".bias"); }
  bool has_copy16(const Compute& on) const {
    return on.precision == Precision::kBf16 && (on.device != Device::kCpu || cpu_reads_copy16);
  }

  // For gemm-like calls: 0 for the first contribution after an update, else 1; the gradient counts as non-zero then.
  // Throws Error for a second contribution to a gradient in bf16.
  float take_beta() {
    const float beta = grad_is_zero ? 0.0f : 1.0f;
    OWT_CHECK(beta == 0 || grad_type == DType::kF32, name, ": sums of gradients are f32, not ", name_of(grad_type));
    grad_is_zero = false;
    return beta;
  }

  void allocate(const Compute& on = {});  // what has no memory yet
  void initialize(uint64_t seed);         // value: a function of seed, name and the element's place in the file order
  void set_value(const Tensor& on_host) { set_rows(0, on_host); }  // has shape(), in memory order; the host waits
  void set_rows(int64_t first, const Tensor& on_host);             // rows kept here, from `first` on
  // Between `rows` whole rows of the tensor in memory order and the same rows in file order; both on the host.
  void to_file_order(int64_t rows, const float* memory, float* file) const;
  void from_file_order(int64_t rows, const float* file, float* memory) const;
  // What is kept here, in memory order, of `rows` rows of `part` in file order; on the host.
  Tensor kept_of(int64_t rows, const float* in_file_order) const;
};

// What one rank updates of a parameter: some elements of it in memory order, and their gradient, f32 or the parameter's
// grad_type. An undefined gradient is zero.
struct ParamPart {
  Param* param;
  Slice elements;
  Tensor gradient{};
  // Where the elements are, if a server has weights of its own (src/parallel/parameter_server.h): the parameter is not
  // touched then, nor its copy16, since its worker is at work with it. Undefined: in param->value.
  Tensor value{};
};

std::vector<Param*> pointers_to(std::span<Param> params);

// `weight`-like parameter with the keys a layer's table may carry. Reads `lr`, `decay` (multipliers) and `init` from
// `config`, e.g. the table of `bias = { lr = 2.0, decay = 0.0 }`; what is missing stays as it is.
void read_multipliers(Config& config, Param& param);

}  // namespace owt
