// The contract of a layer.
//
// A Layer holds hyper-parameters and weights; it knows no batch size, holds no activations, and knows no ranks.
// An Op is a layer bound to one batch shape on one device: descriptors, workspace, masks and indexes live there.
//
// Rules that every layer keeps (tests/support/check_layer.h checks them):
//   - activations are NHWC, or N x F after the first dense layer; f32, or bf16 where that is the precision of the
//     Compute that the op is bound on (activation_type);
//   - backward adds to parameter gradients (Param::grad_is_zero: overwrites) and overwrites dx; dx may be null;
//   - backward is called after forward(kTrain) of the same Op on the same x: backward_data, then backward_weights;
//   - an in-place layer allows y to be x and dx to be dy, and has nothing to do in backward_weights, where dy is gone;
//   - backward reads no more of y than reads_of_output() says, because an in-place layer behind it may have overwritten
//     the rest (layers/in_place.h);
//   - randomness comes from Pass and the layer's name (core/philox.h) only;
//   - a batch of 0 rows never reaches an Op.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/description.h"
#include "layers/param.h"
#include "src/core/config.h"
#include "src/core/device.h"
#include "src/core/image_layout.h"
#include "src/core/profiler.h"
#include "src/core/shape.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

enum class Mode { kTrain, kEval };

// Adds up what all ranks have of the rows of a step, for ops that need sums over all of them.
class StepSums {
 public:
  virtual ~StepSums() = default;
  // sums (f64, on the stream's device) = their sum over the ranks, for what is queued behind. The ops of all ranks call
  // it in the same order with as many sums; Layer::step_sums() says with how many.
  virtual void add_up(Tensor& sums, const Stream& stream) = 0;
};

// What an op is told about the batch it runs on.
struct Pass {
  Mode mode = Mode::kTrain;
  uint64_t seed = 0;
  int64_t step = 0;                // global step, from 0; keys random numbers
  int64_t step_rows = 1;           // N: rows of the whole step. Losses and batch statistics are weighted by 1/N
  std::span<const int64_t> rows;   // each row's index in the step [0, N); keys random numbers
  const Stream* stream = nullptr;  // where the work is queued
  // `rows` and `step` for kernels, where the stream is a GPU's: in its memory, because a recorded step is replayed with
  // other values.
  const int64_t* device_rows = nullptr;
  const int64_t* device_step = nullptr;
  StepSums* sums = nullptr;  // null: the op sees all rows of the step
  // Op::scratch_bytes() of u8 or more, where the op computes. All ops of a net share it, one after the other.
  Tensor scratch;

  // What lies in scratch memory from this byte on, a multiple of 16.
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
  // dx (null: not wanted) is complete behind it: other ranks may wait for dx, and nobody waits for the gradients of the
  // parameters before the end of the step. The op of a run of layers may overwrite dy.
  virtual void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) = 0;
  // The parameters' gradients are complete behind it. It runs after backward_data with the same x and dy, and before
  // any other op, so that it finds what backward_data left in dy and in Pass::scratch. An op that computes both at once
  // does so in backward_data.
  virtual void backward_weights(const Pass&, const Tensor& /*x*/, const Tensor& /*dy*/) {}

  // Bytes of Pass::scratch that the op overwrites in forward, or in backward, data and weights; they stay the same.
  virtual int64_t scratch_bytes(Phase) const { return 0; }
  virtual int64_t inner_bytes() const { return 0; }  // activations between layers inside it

  // The layout in which this op reads x best, where that is not the plain one. It then takes x, in forward and
  // backward, in either, and tells them apart by the shape.
  virtual std::optional<ImageLayout> wanted_images() const { return {}; }
};

// What there is of an activation's elements, or what is read of them. Each includes the ones before it.
enum class Content {
  kNothing,
  kSigns,   // which elements are above 0
  kValues,  // all of them
};

// How a layer treats the columns of a batch, features of rows or channels of images; decides how it can be split over
// ranks.
enum class Columns {
  kKeeps,           // column i of y depends on column i of x only: works on any slice of columns
  kSplits,          // every column of y needs all of x, and its columns can be computed apart (dense)
  kSplitsChannels,  // the same of the channels of images (conv)
  kMixes,           // needs the whole rows
};

class Layer {
 public:
  Layer(std::string name, std::string type) : name_(std::move(name)), type_(std::move(type)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const std::string& name() const { return name_; }
  const std::string& type() const { return type_; }

  // The shape of y for a batch x. Throws Error for a shape the layer cannot take.
  virtual Shape out_shape(const Shape& in) const = 0;
  virtual double flops(const Shape&) const { return 0; }  // forward on a batch of this shape; a multiply-add is 2
  virtual std::vector<Param*> params() { return {}; }     // always in the same order; they live as long as the layer
  bool learns();                                          // a parameter does
  virtual Columns columns() const { return Columns::kMixes; }
  // What backward of its ops reads of y.
  virtual Content reads_of_output() const { return Content::kNothing; }
  // Whether its ops work in place, and then what y still has of x. It need not have it where dx is 0 whatever dy is.
  virtual std::optional<Content> in_place() const { return {}; }
  // Rows that it works on together (core/row_groups.h): a batch begins at a multiple of so many rows of the step, and
  // ends at one or with the step. 1: what it is shown does not matter.
  virtual int64_t row_group() const { return 1; }
  // How many sums over all rows of the step its op has added up (Pass::sums), each time that it does, one after the
  // other: in forward when it trains, or in backward.
  virtual std::vector<int64_t> step_sums(Phase phase, bool wants_dx) {
    static_cast<void>(phase), static_cast<void>(wants_dx);
    return {};
  }
  // Whether its op on the CPU can do without the memory of its first parameter's gradient (Param::keeps_grad).
  virtual bool can_update_at_once() const { return false; }

  // Bytes of scratch memory that backward on a batch of this shape takes, as far as they are known before an op is
  // bound: without those of libraries.
  virtual int64_t scratch_bytes(const Shape&, const Compute&) const { return 0; }

  // The layer on a batch of this shape. A composite one describes what it does with what its inner layers give.
  virtual Described describe(const Shape&) { return {type_, {}, params()}; }

  // A layer inside a composite layer, with the batch it gets when the composite gets `in`.
  struct Inner {
    Layer* layer;
    Shape in;
    bool first;     // it begins a branch: it gets what the composite gets
    bool in_place;  // as work_in_place() says of its branch
  };
  virtual std::vector<Inner> inner(const Shape& in) const {
    static_cast<void>(in);
    return {};
  }
  // The op for batches of this shape. A layer without CUDA code begins with require_cpu(on).
  virtual std::unique_ptr<Op> bind(const Shape& in, const Compute& on) = 0;

  // This layer and the first few of those that follow it in a net, as one op, where the device does that faster:
  // forward writes the last one's y, backward takes the last one's y and dy and may overwrite dy.
  struct Run {
    std::unique_ptr<Op> op;
    int64_t layers = 1;
  };
  virtual Run bind_run(std::span<const std::unique_ptr<Layer>> followers, const Shape& in, const Compute& on) {
    static_cast<void>(followers);
    return {bind(in, on), 1};
  }

  // What a net knows of an op that it binds, so that the op keeps no more than it has to.
  struct Place {
    bool wants_dx = true;  // backward may be asked for the gradient of its input
    // An op of the same layer for at least as many rows. It never runs between forward and backward of this one, nor
    // the other way round, so that what it keeps between layers inside it may share memory. Null: there is none.
    const Op* lender = nullptr;
  };
  virtual Run bind_at(const Place& place, std::span<const std::unique_ptr<Layer>> followers, const Shape& in,
                      const Compute& on) {
    static_cast<void>(place);
    return bind_run(followers, in, on);
  }

 protected:
  // Throws Error where `on` is no CPU.
  void require_cpu(const Compute& on) const {
    if (on.device != Device::kCpu)
      fail("there is no GPU version of ", type_, ", the type of layer '", name_, "'; use --device cpu");
  }

 private:
  std::string name_, type_;
};

inline bool Layer::learns() {
  for (const Param* param : params())
    if (owt::learns(param->role)) return true;
  return false;
}

// What a layer is made from.
struct LayerSpec {
  std::string name;
  Config& config;  // its table; name and type are read already, the maker reads the rest
  Shape in;        // one row: H x W x C, or F; always the whole row
  // Compute only these output columns, features or channels of images (columns() is not kMixes); none: all.
  std::optional<Slice> part = {};
  // Compute a summand of all output features from these input features (columns() is kSplits); none: from all. `in` is
  // still the whole row, but the layer takes rows of these features alone.
  std::optional<Slice> inputs = {};
};

}  // namespace owt
