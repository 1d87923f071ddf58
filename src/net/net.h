// Net: a list of layers as one differentiable function. Tape: all activations of one Net for one batch shape.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "layers/layer.h"
#include "src/core/profiler.h"

namespace owt {

class Net {
 public:
  // `in`: shape of one row. May be empty: then it is the identity.
  Net(std::vector<std::unique_ptr<Layer>> layers, const Shape& in);

  int64_t size() const { return static_cast<int64_t>(layers_.size()); }
  Layer& layer(int64_t i) const { return *layers_[static_cast<size_t>(i)]; }
  const Shape& in() const { return in_; }  // of one row
  Shape out() const;                       // of one row
  std::vector<Param*> params() const;      // in layer order

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
  Shape in_;
};

class Tape {
 public:
  // The net must outlive the tape. Memory: every activation, and two gradients as large as the largest one.
  Tape(Net& net, int64_t rows, Device device, Profiler* profiler);

  // Returns y, valid until the next forward; for an empty net or no rows, see below. x must not change until backward.
  const Tensor& forward(const Pass& pass, const Tensor& x);
  // After forward on the same x. Writes dx (may be null: not wanted). layer_done(i) is called after layer i's backward,
  // last layer first; the gradients of its parameters are then complete. With 0 rows no layer runs, layer_done does.
  void backward(const Pass& pass, const Tensor& x, const Tensor& dy, Tensor* dx,
                const std::function<void(int64_t)>& layer_done = {});

  // The first layer whose output holds a value that is not finite, after forward; -1 where there is none. An
  // in-place layer shares the output of the layer before, which is named for both.
  int64_t first_bad_layer() const;
  const Tensor& activation(int64_t layer) const { return y_[static_cast<size_t>(layer)]; }
  int64_t bytes() const;  // activations and gradients

 private:
  Net& net_;
  int64_t rows_;
  Profiler* profiler_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Tensor> y_;  // output of each layer; in-place layers share the one before
  Tensor gradients_[2];    // the gradient at the layer being run, and the one before it
};

bool all_finite(const Tensor& values);

}  // namespace owt
