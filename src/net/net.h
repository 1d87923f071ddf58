// Net: a list of layers as one differentiable function. Tape: all activations of one Net for one batch shape.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/base/bad_values.h"
#include "layers/base/layer.h"
#include "src/core/profiler.h"
#include "src/core/tensor.h"

namespace owt {

class Net {
 public:
  // `in`: shape of one row. An empty net is the identity.
  Net(std::vector<std::unique_ptr<Layer>> layers, const Shape& in);

  int64_t size() const { return static_cast<int64_t>(layers_.size()); }
  Layer& layer(int64_t i) const { return *layers_[static_cast<size_t>(i)]; }
  std::span<const std::unique_ptr<Layer>> layers_from(int64_t i) const {
    return std::span(layers_).subspan(static_cast<size_t>(i));
  }
  const Shape& in() const { return in_; }                                       // one row
  Shape out() const;                                                            // one row
  bool in_place(int64_t i) const { return in_place_[static_cast<size_t>(i)]; }  // layers/base/in_place.h
  std::vector<Param*> params() const;                                           // in layer order

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<bool> in_place_;
  Shape in_;
};

class Tape {
 public:
  // Where scratch memory of the ops comes from, and the two gradients for backward. Each is as large as the largest
  // activation; with kOwn, as the largest one before the output. The gradient of the output is the caller's.
  // Activations that are not kept use the gradients' memory. Gradients that an op leaves to the update
  // (Op::leaves_factors) have memory of their own, which the tape allocates.
  //   kOwn:           The tape allocates gradients, and shares scratch memory with the other tapes of its host thread,
  //                   so these tapes must run one after the other.
  //   kOwnForForward: The same without backward; no activation is kept.
  //   kOfPass:        Both are taken from Pass::scratch.
  enum class Scratch { kOwn, kOwnForForward, kOfPass };

  // The net must outlive the tape. Memory: as `scratch` says, and activations unless it is kOwnForForward. If the
  // device runs several layers as one op (Layer::bind_run), only the last one's output is kept. Layers run backward if
  // they have parameters that learn, or if backward computes a dx (wants_dx), and so do all layers after them. Before
  // the first of these layers only the last output is kept; the others alternate in the memory of the two gradients.
  // lender: another tape of the net with at least as many rows. Activations and gradients, also inside composite
  // layers, use its memory. It must never run between forward and backward of this tape, nor the other way round.
  Tape(Net& net, int64_t rows, const Compute& on, Profiler* profiler, Scratch scratch = Scratch::kOwn,
       bool wants_dx = true, const Tape* lender = nullptr);

  // Makes evaluations on the CPU keep no activation except the output from then on. Memory that was never written to
  // takes no space there.
  void forget_in_evaluation() { forgets_in_evaluation_ = true; }

  int64_t scratch_bytes(Phase phase) const;  // Scratch::kOfPass: bytes of it that forward or backward uses

  // Prepares the ops for backward; otherwise the first backward does so (layers/base/prepared_op.h).
  void prepare_backward(bool wants_dx);

  // A layout that forward and backward accept for x without rearranging it, besides the plain one.
  std::optional<ImageLayout> wanted_images() const;

  // Returns y, valid until the next forward; for an empty net it is x. x must not change until backward.
  const Tensor& forward(const Pass& pass, const Tensor& x);
  // For a residual block. If the last op can add a tensor to its result (layers/base/summing_op.h), it must do so from
  // then on, in forward_sum() instead of forward(); the tape keeps no output then. Returns whether it can.
  bool sum_in_last_op();
  // y = output + b, or with relu its positive part. y must not be in the pass's scratch memory.
  void forward_sum(const Pass& pass, const Tensor& x, const Tensor& b, bool relu, Tensor& y);
  // Must follow forward on the same x. Writes dx unless it is null; may overwrite dy. If the first op leaves factors, x
  // must keep its values until the update, and if the last one does, dy.
  void backward(const Pass& pass, const Tensor& x, const Tensor& dy, Tensor* dx);

  // The same layer by layer, for callers that do other work in between: begin_forward, then forward of every layer in
  // order; begin_backward, then, from the last layer to the first, backward_data and backward_weights of each. Layers
  // in one op run together: forward and backward_weights at the op's first layer, backward_data at its last one. dx is
  // complete after backward_data of all layers; if there are no layers, the caller must fill dx. Without a dx, backward
  // does nothing for layers before the first one that learns.
  void begin_forward(const Tensor& x);
  void forward(const Pass& pass, int64_t layer);
  const Tensor& output() const;  // y, after forward of all layers
  void begin_backward(const Tensor& x, const Tensor& dy, Tensor* dx);
  void backward_data(const Pass& pass, int64_t layer);
  void backward_weights(const Pass& pass, int64_t layer);

  // The tensors that a training pass keeps, with layers numbered from `first_layer`. An in-place or fused layer shares
  // its output with others; it has the name of the first of them.
  std::vector<Watched> watched(int64_t first_layer) const;
  // The first layer whose output is not finite, among the layers whose outputs a training pass does not keep; named as
  // in watched(). Runs forward again on the x of the last pass, if there was one. The host waits.
  std::optional<int32_t> find_bad_layer(const Pass& pass);
  // The layer's output; undefined if another layer follows in its op, or if it is not kept.
  const Tensor& activation(int64_t layer) const { return y_[static_cast<size_t>(layer)]; }
  // Whether backward may overwrite dy.
  bool overwrites_dy() const { return !runs_.empty() && runs_.back().end - runs_.back().begin > 1; }
  // Activations and other memory except the pass's; other tapes may share the ops' scratch memory.
  int64_t bytes() const;

 private:
  struct Run {  // layers [begin, end) in one op, with one output
    std::unique_ptr<Op> op;
    int64_t begin, end;
    std::string name;
    bool in_place;
    bool learns;    // it has parameters that learn
    bool wants_dx;  // a layer before it in the net learns
    Shape out;
    bool y_is_factor = false;  // an op after it leaves its y to the update
    Tensor dy{};               // memory for its dy, if the op leaves it to the update and the caller has none
  };

  // Whether the current backward pass needs the gradient of its input.
  bool wants_dx(const Run& run) const { return run.wants_dx || dx_.defined(); }
  bool may_run_backward(const Run& run) const { return run.learns || run.wants_dx || may_want_dx_; }
  Run& run_of(int64_t layer) { return runs_[run_of_layer_[static_cast<size_t>(layer)]]; }
  const Op* op_at(int64_t layer) const;  // the op that begins with this layer; null if none does
  const Tensor& input_of(const Run& run) const;
  Run& owner_of(size_t run);                             // this run; if it works in place, the run whose memory it uses
  Tensor place_above(const Pass& pass, const Run& run);  // memory for its y
  Tensor place_below(const Run& run);                    // memory for its dx; undefined if it is not needed

  int64_t ops_scratch_bytes(Phase phase) const;
  int64_t own_ops_scratch_bytes() const;
  int64_t gradients_bytes() const;
  void hand_masks_over();
  Tensor in_memory_of(const Tensor* larger, const Shape& shape) const;  // new memory if that has none
  void allocate(const Tape* lender);
  void keep_factors(const Tape* lender);
  std::vector<bool> kept_runs() const;
  bool forgets(const Pass& pass) const;
  bool keeps(const Pass& pass, const Run& run) const;
  void take_gradients(const Pass& pass, Phase phase);
  Pass with_scratch(Pass pass) const;
  // Poisons memory that is no longer read (src/core/poison.h), after forward or backward of the run.
  void poison_scratch(const Pass& pass, const Run& run, Phase phase) const;
  void poison_after_forward(const Pass& pass, const Run& run, const Tensor& x) const;
  void poison_after_backward(const Pass& pass, const Run& run) const;

  Net& net_;
  int64_t rows_;
  bool may_want_dx_;
  Device device_;
  Profiler* profiler_;
  std::vector<Run> runs_;
  std::vector<size_t> run_of_layer_;
  std::vector<Tensor> y_;  // output of each layer that is kept; in-place layers share the previous layer's
  DType type_;
  int64_t largest_ = 0;  // elements of each of gradients_
  Scratch scratch_;
  bool forgets_in_evaluation_ = false;
  // The gradient at the layer being run, and the one before it. If no activation is kept: the latest two activations.
  Tensor gradients_[2];
  std::shared_ptr<const Tensor> ops_scratch_;  // null: it belongs to the pass

  Tensor x_;                 // the input of the current pass, forward or backward
  Tensor out_;               // the latest output of forward
  Tensor gradient_, below_;  // at the output and at the input of the current run in backward
  Tensor dx_;                // memory for the gradient at x; undefined: not needed
  int next_gradient_ = 0;    // the one of gradients_ that does not hold gradient_, or out_
};

int64_t aligned_bytes(int64_t bytes);  // size of a part of scratch memory, rounded up so that the next part is aligned

}  // namespace owt
