// The contract of a layer.
//
// A Layer holds hyper-parameters and weights. It does not know the batch size or the ranks, and it holds no
// activations.
// An Op is a layer bound to one batch shape on one device. It holds descriptors, workspace, masks and indexes.
//
// Rules for every layer (tests/support/check_layer.h checks them):
//   - Activations are NHWC, or N x F after the first dense layer. Their type is f32, or bf16 if the op was bound on a
//     Compute with that precision (activation_type).
//   - Backward adds to parameter gradients (Param::grad_is_zero: it overwrites). It overwrites dx. dx may be null.
//   - Backward runs after forward(kTrain) of the same Op on the same x: backward_data first, then backward_weights.
//   - An in-place layer allows y to be x and dx to be dy. It does nothing in backward_weights, where dy is lost.
//   - Backward reads no more of y than reads_of_output() says. A later in-place layer may have overwritten the rest
//     (layers/base/in_place.h).
//   - Random numbers depend on Pass and the layer's name only (core/philox.h).
//   - An Op never gets a batch of 0 rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/base/description.h"
#include "layers/base/param.h"
#include "layers/base/sampled_rows.h"
#include "src/core/device.h"
#include "src/core/image_layout.h"
#include "src/core/profiler.h"
#include "src/core/shape.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"
#include "src/system/config.h"

namespace owt {

enum class Mode { kTrain, kEval };

// Sums over all ranks, for ops whose statistics cover all rows of a step.
class StepSums {
 public:
  virtual ~StepSums() = default;
  // Replaces the values of `sums` (f64, on the stream's device) by their sums over the ranks. The result is ready for
  // work that is queued after this call. The ops of all ranks make the same calls in the same order, with equally many
  // sums; Layer::step_sums() says how many.
  virtual void add_up(Tensor& sums, const Stream& stream) = 0;
};

// What an op must know about the batch it runs on.
struct Pass {
  Mode mode = Mode::kTrain;
  uint64_t seed = 0;
  int64_t step = 0;       // global step, from 0; keys random numbers
  int64_t step_rows = 1;  // N: rows of the whole step, over all ranks; losses and batch statistics are weighted by 1/N
  std::span<const int64_t> rows;   // each row's index in the step [0, N); keys random numbers
  const Stream* stream = nullptr;  // where the work is queued
  // `rows` and `step` in GPU memory, for kernels; null on the CPU. A recorded step is replayed with other values, so
  // kernels must not get them as arguments.
  const int64_t* device_rows = nullptr;
  const int64_t* device_step = nullptr;
  // Activations of a teacher (src/net/hint.h), one for each row: its own net writes them in evaluation, and the
  // student's net compares with them in training. Undefined: there is no hint.
  Tensor hint{};
  const SampledRows* sampled = nullptr;  // rows of the last layer's weight that take part; null: all
  StepSums* sums = nullptr;              // null: this rank has all rows of the step
  // At least Op::scratch_bytes() bytes (u8) on the op's device. The ops of a net share it, because they run in
  // sequence.
  Tensor scratch;

  // The scratch memory from this byte on; `byte` is a multiple of 16.
  std::byte* scratch_at(int64_t byte) const { return static_cast<std::byte*>(Tensor(scratch).raw()) + byte; }
  Tensor scratch_at(int64_t byte, const Shape& shape, DType dtype) const {
    return scratch.part(byte, {shape.elements() * size_of(dtype)}).viewed_as(dtype).reshaped(shape);
  }
};

class Op {
 public:
  virtual ~Op() = default;
  // x: in, y: out_shape(in), both allocated by the caller.
  virtual void forward(const Pass& pass, const Tensor& x, Tensor& y) = 0;
  // Computes dx (null: not wanted). dx is complete after this call, because other ranks may wait for it. The
  // parameters' gradients are not needed before the end of the step. An op of several layers may overwrite dy.
  virtual void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) = 0;
  // Computes the parameters' gradients, which are complete after this call. It runs directly after backward_data of
  // this op, with the same x and dy. So dy and Pass::scratch still hold what backward_data wrote there. An op that
  // computes dx and the gradients together does so in backward_data.
  virtual void backward_weights(const Pass&, const Tensor& /*x*/, const Tensor& /*dy*/) {}
  // Whether backward_weights leaves x and dy in Param::factors. They must then keep their values until the update.
  virtual bool leaves_factors() const { return false; }

  // Bytes of Pass::scratch that the op overwrites in forward, or in backward (data and weights). Constant for an op.
  virtual int64_t scratch_bytes(Phase) const { return 0; }
  virtual int64_t inner_bytes() const { return 0; }  // activations between layers inside this op

  // The layout in which this op reads x fastest; none: the plain one. If there is one, the op accepts both layouts of x
  // in forward and backward, and distinguishes them by the shape.
  virtual std::optional<ImageLayout> wanted_images() const { return {}; }
};

// The part of an activation's values that exists or is read. Each enumerator includes the ones before it.
enum class Content {
  kNothing,
  kSigns,   // the information which elements are above 0
  kValues,  // all of them
};

// How a layer treats the columns of a batch (features of rows, or channels of images). This decides how the layer can
// be split over ranks.
enum class Columns {
  kKeeps,           // column i of y depends only on column i of x: the layer works on any subset of columns
  kSplits,          // every column of y needs all of x; columns of y can be computed separately (dense)
  kSplitsChannels,  // like kSplits, for channels of images (conv)
  kMixes,           // y needs whole rows
};

class Layer {
 public:
  Layer(std::string name, std::string type) : name_(std::move(name)), type_(std::move(type)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const std::string& name() const { return name_; }
  const std::string& type() const { return type_; }

  // The shape of y for a batch x. Throws Error for a shape that the layer does not accept.
  virtual Shape out_shape(const Shape& in) const = 0;
  // FLOPs of forward for a batch of this shape; a multiply-add is 2
  virtual double flops(const Shape&) const { return 0; }
  virtual std::vector<Param*> params() { return {}; }  // always in the same order; they live as long as the layer
  bool learns();                                       // whether any parameter is updated
  virtual Columns columns() const { return Columns::kMixes; }
  virtual bool can_split_inputs() const { return false; }  // LayerSpec::inputs
  // What backward of its ops reads from y.
  virtual Content reads_of_output() const { return Content::kNothing; }
  // Set if its ops can work in place: what y then preserves of x. Not needed where dx is 0 for every dy.
  virtual std::optional<Content> in_place() const { return {}; }
  // Number of rows that are processed as a group (core/row_groups.h). Every batch begins at a multiple of this row
  // number of the step, and ends at a multiple or at the end of the step. 1: any batch will do.
  virtual int64_t row_group() const { return 1; }
  // The lengths of the sums that its op reduces over all ranks (Pass::sums), one entry for each reduction, in order.
  // Forward means training.
  virtual std::vector<int64_t> step_sums(Phase phase, bool wants_dx) {
    static_cast<void>(phase), static_cast<void>(wants_dx);
    return {};
  }
  // Why its ops cannot make canonical sums (core/canonical.h), in a few words; empty if they can.
  virtual std::string why_not_canonical();
  // Whether its ops work without memory for the gradient of its first parameter (Param::keeps_grad); on a GPU in bf16
  // only.
  virtual bool can_update_at_once() const { return false; }

  // Bytes of scratch memory for backward on a batch of this shape, as far as known before an op is bound. Memory of
  // libraries is not included.
  virtual int64_t scratch_bytes(const Shape&, const Compute&) const { return 0; }

  // Describes the layer on a batch of this shape. A composite layer combines the descriptions of its inner layers.
  virtual Described describe(const Shape&) { return {type_, {}, params()}; }

  // A layer inside a composite layer, with its input shape when the composite's input has shape `in`.
  struct Inner {
    Layer* layer;
    Shape in;
    bool first;     // first of a branch: its input is the composite's input
    bool in_place;  // result of work_in_place() for its branch
  };
  virtual std::vector<Inner> inner(const Shape& in) const {
    static_cast<void>(in);
    return {};
  }
  // Makes the op for batches of this shape. A layer without CUDA code calls require_cpu(on) first.
  virtual std::unique_ptr<Op> bind(const Shape& in, const Compute& on) = 0;

  // This layer and some of its successors in a net as one op, where the device is faster that way. Forward writes the y
  // of the last layer. Backward takes the y and dy of the last layer, and may overwrite dy.
  struct BoundOp {
    std::unique_ptr<Op> op;
    int64_t layers = 1;
  };
  virtual BoundOp bind_run(std::span<const std::unique_ptr<Layer>> followers, const Shape& in, const Compute& on) {
    static_cast<void>(followers);
    return {bind(in, on), 1};
  }

  // Knowledge of the net about an op that it binds, so that the op allocates no more than it needs.
  struct BindOptions {
    bool wants_dx = true;  // whether backward may be asked for the gradient of the input
    // An op of the same layer for at least as many rows; null: none. It never runs between forward and backward of this
    // op, and this op never between its forward and backward. So the two ops may share memory for activations between
    // inner layers.
    const Op* lender = nullptr;
  };
  virtual BoundOp bind_at(const BindOptions& options, std::span<const std::unique_ptr<Layer>> followers,
                          const Shape& in, const Compute& on) {
    static_cast<void>(options);
    return bind_run(followers, in, on);
  }

 protected:
  // Throws Error unless `on` is a CPU.
  void require_cpu(const Compute& on) const {
    if (on.device != Device::kCpu)
      fail("there is no GPU version of ", type_, ", the type of layer '", name_, "'; use --device cpu");
  }

 private:
  std::string name_, type_;
};

inline std::string Layer::why_not_canonical() {
  return learns() ? concat("is of type '", type(), "', whose gradients are not canonical sums yet") : "";
}

inline bool Layer::learns() {
  for (const Param* param : params())
    if (owt::learns(param->role)) return true;
  return false;
}

// The arguments for making a layer.
struct LayerSpec {
  std::string name;
  Config& config;  // the layer's table; name and type have been read, the maker reads the rest
  Shape in;        // one row: H x W x C, or F; always the whole row
  // Compute only these output columns (features, or channels of images); none: all. Requires columns() other than
  // kMixes.
  std::optional<Slice> part = {};
  // Compute only the contribution of these input features to all outputs; none: of all features. Requires
  // can_split_inputs(). `in` is still the whole row, but the layer's input holds these features only.
  std::optional<Slice> inputs = {};
};

}  // namespace owt
