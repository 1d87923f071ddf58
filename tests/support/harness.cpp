#include "tests/support/harness.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "layers/registry.h"
#include "src/core/check.h"

namespace owt {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

std::vector<Device> devices() { return {Device::kCpu}; }

std::unique_ptr<Layer> layer_from(const std::string& keys, const Shape& in, std::optional<Slice> part) {
  std::string toml = keys;
  std::replace(toml.begin(), toml.end(), ' ', '\n');
  if (("\n" + toml).find("\nname=") == std::string::npos) toml = "name='layer'\n" + toml;
  return make_layer(Config::text(toml, "layer.toml"), in.row(), part);
}

Tensor upload(const std::vector<float>& values, const Shape& shape, Device device) {
  OWT_CHECK_EQ(static_cast<int64_t>(values.size()), shape.elements(), "values for ", shape);
  Tensor host(shape);
  std::copy(values.begin(), values.end(), host.data());
  Tensor tensor(shape, DType::kF32, device);
  tensor.copy_from(host);
  return tensor;
}

std::vector<float> download(const Tensor& tensor) {
  Tensor host(tensor.shape());
  host.copy_from(tensor);
  return {host.data(), host.data() + host.elements()};
}

void fill(Tensor& tensor, float value) {
  const std::vector<float> values(static_cast<size_t>(tensor.elements()), value);
  tensor.copy_from(upload(values, tensor.shape(), Device::kCpu));
}

Harness::Harness(const std::string& keys, const Shape& in, Device device) : Harness(layer_from(keys, in), in, device) {}

Harness::Harness(std::unique_ptr<Layer> layer, const Shape& in, Device device)
    : device_(device),
      layer_(std::move(layer)),
      stream_(device),
      x_(in, DType::kF32, device),
      y_(layer_->out_shape(in), DType::kF32, device),
      rows_(static_cast<size_t>(in.rows())) {
  for (Param& param : layer_->params()) param.initialize(1);
  clear_grads();
  op_ = layer_->bind(in, device);
  std::iota(rows_.begin(), rows_.end(), 0);
  pass_.seed = 1;
  pass_.step_rows = in.rows();
  pass_.rows = rows_;
  pass_.stream = &stream_;
}

std::vector<float> Harness::forward(const std::vector<float>& x) {
  x_.copy_from(upload(x, x_.shape(), device_));
  fill(y_, kNaN);
  op_->forward(pass_, x_, y_);
  stream_.synchronize();
  return download(y_);
}

std::vector<float> Harness::evaluate(const std::vector<float>& x) {
  pass_.mode = Mode::kEval;
  std::vector<float> y = forward(x);
  pass_.mode = Mode::kTrain;
  return y;
}

std::vector<float> Harness::backward(const std::vector<float>& dy) {
  Tensor dx(x_.shape(), DType::kF32, device_);
  fill(dx, kNaN);
  op_->backward(pass_, x_, y_, upload(dy, y_.shape(), device_), &dx);
  stream_.synchronize();
  return download(dx);
}

void Harness::backward_without_dx(const std::vector<float>& dy) {
  op_->backward(pass_, x_, y_, upload(dy, y_.shape(), device_), nullptr);
  stream_.synchronize();
}

Param& Harness::param(const std::string& name) {
  for (Param& param : layer_->params())
    if (param.name == layer_->name() + "." + name) return param;
  fail("layer '", layer_->name(), "' has no parameter '", name, "'");
}

void Harness::set_param(const std::string& name, const std::vector<float>& value) {
  Param& changed = param(name);
  changed.value.copy_from(upload(value, changed.shape(), device_));
  ++changed.version;
}

void Harness::clear_grads() {
  for (Param& param : layer_->params()) {
    fill(param.grad, kNaN);
    param.grad_is_zero = true;
  }
}

}  // namespace owt
