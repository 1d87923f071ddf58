#include "src/net/net.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "src/core/threads.h"

namespace owt {

Net::Net(std::vector<std::unique_ptr<Layer>> layers, const Shape& in) : layers_(std::move(layers)), in_(in) {}

Shape Net::out() const {
  Shape batch = in_.batch_of(1);
  for (const auto& layer : layers_) batch = layer->out_shape(batch);
  return batch.row();
}

std::vector<Param*> Net::params() const {
  std::vector<Param*> all;
  for (const auto& layer : layers_)
    for (Param& param : layer->params()) all.push_back(&param);
  return all;
}

Tape::Tape(Net& net, int64_t rows, Device device, Profiler* profiler) : net_(net), rows_(rows), profiler_(profiler) {
  Shape in = net.in().batch_of(rows);
  int64_t largest = 0;
  for (int64_t i = 0; i < net.size(); ++i) {
    const Shape out = net.layer(i).out_shape(in);
    if (rows > 0) ops_.push_back(net.layer(i).bind(in, device));
    const bool shared = net.layer(i).in_place() && i > 0;
    y_.push_back(shared ? y_.back() : Tensor(out, DType::kF32, device));
    largest = std::max({largest, i > 0 ? in.elements() : 0, out.elements()});
    in = out;
  }
  for (Tensor& gradient : gradients_) gradient = Tensor({largest}, DType::kF32, device);
}

const Tensor& Tape::forward(const Pass& pass, const Tensor& x) {
  const Tensor* in = &x;
  for (int64_t i = 0; i < net_.size(); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (rows_ > 0) {
      const Profiler::Scope scope(profiler_, net_.layer(i).name(), Phase::kForward);
      ops_[at]->forward(pass, *in, y_[at]);
    }
    in = &y_[at];
  }
  return *in;
}

void Tape::backward(const Pass& pass, const Tensor& x, const Tensor& dy, Tensor* dx,
                    const std::function<void(int64_t)>& layer_done) {
  if (net_.size() == 0 && dx) dx->copy_from(dy);
  Tensor gradient = dy;  // at the output of the layer being run
  int next = 0;          // the buffer that does not hold it
  bool ours = false;     // it lies in a buffer, so an in-place layer may overwrite it
  for (int64_t i = net_.size() - 1; i >= 0; --i) {
    const size_t at = static_cast<size_t>(i);
    const Tensor& in = i > 0 ? y_[at - 1] : x;
    if (rows_ > 0) {
      Tensor below;
      if (i > 0 && ours && net_.layer(i).in_place()) {
        below = gradient;
      } else if (i > 0) {
        below = gradients_[next].part(0, in.shape());
        next = 1 - next;
        ours = true;
      }
      const Profiler::Scope scope(profiler_, net_.layer(i).name(), Phase::kBackward);
      ops_[at]->backward(pass, in, y_[at], gradient, i > 0 ? &below : dx);
      gradient = below;
    }
    if (layer_done) layer_done(i);
  }
}

int64_t Tape::first_bad_layer() const {
  for (int64_t i = 0; i < net_.size(); ++i)
    if (!all_finite(y_[static_cast<size_t>(i)])) return i;
  return -1;
}

int64_t Tape::bytes() const {
  int64_t total = gradients_[0].bytes() + gradients_[1].bytes();
  for (int64_t i = 0; i < net_.size(); ++i)
    if (i == 0 || !net_.layer(i).in_place()) total += y_[static_cast<size_t>(i)].bytes();
  return total;
}

bool all_finite(const Tensor& values) {
  const float* v = values.data();
  std::atomic<bool> finite{true};
  parallel_for(values.elements(), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (!std::isfinite(v[i])) {
        finite = false;
        return;
      }
  });
  return finite;
}

}  // namespace owt
