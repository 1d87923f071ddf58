// Net: a list of layers as one differentiable function. Tape: all activations of one Net for one batch shape.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/bad_values.h"
#include "layers/layer.h"
#include "src/core/profiler.h"
#include "src/core/tensor.h"

namespace owt {

class Net {
 public:
  // `in`: shape of one row. May be empty: then it is the identity.
  Net(std::vector<std::unique_ptr<Layer>> layers, const Shape& in);

  int64_t size() const { return static_cast<int64_t>(layers_.size()); }
  Layer& layer(int64_t i) const { return *layers_[static_cast<size_t>(i)]; }
  std::span<const std::unique_ptr<Layer>> layers_from(int64_t i) const {
    return std::span(layers_).subspan(static_cast<size_t>(i));
  }
  const Shape& in() const { return in_; }                                       // one row
  Shape out() const;                                                            // one row
  bool in_place(int64_t i) const { return in_place_[static_cast<size_t>(i)]; }  // layers/in_place.h
  std::vector<Param*> params() const;                                           // in layer order

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<bool> in_place_;
  Shape in_;
};

class Tape {
 public:
  // Whose memory the ops' scratch is, and two gradients as large as the largest activation, which backward needs; an
  // activation that is not kept is in one of them. The tape makes gradients of its own, and shares scratch memory with
  // the other tapes of its host thread, so that these run one after the other; or it takes both from Pass::scratch.
  // kOwnForForward: there is no backward, and no activation is kept.
  enum class Scratch { kOwn, kOwnForForward, kOfPass };

  // The net must outlive the tape. Memory: what `scratch` says, and, but for kOwnForForward, activations. Where the
  // device runs several layers as one op (Layer::bind_run), only the last one's output is kept. Layers before the first
  // one that runs backward (all that learn do, and where wants_dx says that backward gets a dx, all) keep only what
  // comes out of the last of them; the others' outputs take turns in the memory of the two gradients.
  // lender: another tape of the net, of at least as many rows. It never runs between forward and backward of this one,
  // nor the other way round, so that activations and gradients, those inside composite layers too, have its memory.
  Tape(Net& net, int64_t rows, const Compute& on, Profiler* profiler, Scratch scratch = Scratch::kOwn,
       bool wants_dx = true, const Tape* lender = nullptr);

  // From now on an evaluation on the CPU keeps no activation but the output: memory that nothing was written to costs
  // nothing there.
  void forget_in_evaluation() { forgets_in_evaluation_ = true; }

  int64_t scratch_bytes(Phase phase) const;  // Scratch::kOfPass: what forward or backward takes of it

  // Makes what the ops need for backward, which the first backward does otherwise (layers/prepared_op.h).
  void prepare_backward(bool wants_dx);

  // The layout in which forward and backward take x without rearranging it, besides the plain one.
  std::optional<ImageLayout> wanted_images() const;

  // Returns y, valid until the next forward; of an empty net it is x. x must not change until backward.
  const Tensor& forward(const Pass& pass, const Tensor& x);
  // After forward on the same x. Writes dx (may be null: not wanted); dy may be overwritten.
  void backward(const Pass& pass, const Tensor& x, const Tensor& dy, Tensor* dx);

  // The same layer by layer, for a caller that has other things to do in between: begin_forward, then forward of every
  // layer in order; begin_backward, then of every layer, the last one first, backward_data and backward_weights. Layers
  // in one op run together: forward and backward_weights of the op at its first layer, backward_data at its last one.
  // dx is complete when backward_data of all layers is, and has been given its values by the caller if there are none.
  // Without a dx, layers before the first one that learns have nothing to do in backward.
  void begin_forward(const Tensor& x);
  void forward(const Pass& pass, int64_t layer);
  const Tensor& output() const;  // y, when forward of all layers has run
  void begin_backward(const Tensor& x, const Tensor& dy, Tensor* dx);
  void backward_data(const Pass& pass, int64_t layer);
  void backward_weights(const Pass& pass, int64_t layer);

  // What a training pass keeps, with the layers counted from `first_layer` on. An in-place or fused layer shares its
  // output with others, and the first of them is named.
  std::vector<Watched> watched(int64_t first_layer) const;
  // Of the layers whose outputs such a pass forgets, the first one, named as in watched(), whose output is not finite,
  // found by another forward on the x of the last one, if there was one. The host waits.
  std::optional<int32_t> find_bad_layer(const Pass& pass);
  // What the layer computed; undefined where it is no last layer of an op, or forgotten.
  const Tensor& activation(int64_t layer) const { return y_[static_cast<size_t>(layer)]; }
  // Whether backward may overwrite dy.
  bool overwrites_dy() const { return !runs_.empty() && runs_.back().end - runs_.back().begin > 1; }
  int64_t bytes() const;  // activations, and what else is not of the pass; other tapes may share the ops' scratch

 private:
  struct Run {  // layers [begin, end) in one op, with one output
    std::unique_ptr<Op> op;
    int64_t begin, end;
    std::string name;
    bool in_place;
    bool learns;    // it has parameters that learn
    bool wants_dx;  // what stands before it in the net learns
    Shape out;
  };

  // Whether the gradient of its input is wanted in the backward pass that runs.
  bool wants_dx(const Run& run) const { return run.wants_dx || dx_.defined(); }
  bool may_run_backward(const Run& run) const { return run.learns || run.wants_dx || may_want_dx_; }
  Run& run_of(int64_t layer) { return runs_[run_of_layer_[static_cast<size_t>(layer)]]; }
  const Op* op_at(int64_t layer) const;  // that begins with it; null: none does
  const Tensor& input_of(const Run& run) const;
  Tensor place_above(const Pass& pass, const Run& run);  // where its y goes
  Tensor place_below(const Run& run);                    // where its dx goes; undefined where nobody wants it

  int64_t ops_scratch_bytes(Phase phase) const;
  int64_t own_ops_scratch_bytes() const;
  int64_t gradients_bytes() const;
  void allocate(const Tape* lender);
  std::vector<bool> kept_runs() const;
  bool keeps(const Pass& pass, const Run& run) const;
  void take_gradients(const Pass& pass, Phase phase);
  Pass with_scratch(Pass pass) const;
  // Of what nobody reads any more (src/core/poison.h), behind forward or backward of the run.
  void poison_scratch(const Pass& pass, const Run& run, Phase phase) const;
  void poison_behind_forward(const Pass& pass, const Run& run, const Tensor& x) const;
  void poison_behind_backward(const Pass& pass, const Run& run) const;

  Net& net_;
  int64_t rows_;
  bool may_want_dx_;
  Device device_;
  Profiler* profiler_;
  std::vector<Run> runs_;
  std::vector<size_t> run_of_layer_;
  std::vector<Tensor> y_;  // output of each layer that is kept; in-place layers share the one before
  DType type_;
  int64_t largest_ = 0;  // elements of the largest activation
  Scratch scratch_;
  bool forgets_in_evaluation_ = false;
  // The gradient at the layer being run, and the one before it; where no activation is kept the latest two.
  Tensor gradients_[2];
  std::shared_ptr<const Tensor> ops_scratch_;  // null: of the pass

  Tensor x_;                 // the input of the pass that runs, forward or backward
  Tensor out_;               // what forward has come to
  Tensor gradient_, below_;  // at the output and at the input of the run whose turn it is in backward
  Tensor dx_;                // where the gradient at x is wanted; undefined: it is not
  int next_gradient_ = 0;    // which of gradients_ does not hold gradient_, or out_
};

int64_t aligned_bytes(int64_t bytes);  // what a part of scratch memory takes, so that the next one is aligned

}  // namespace owt
