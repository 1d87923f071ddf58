#include "tests/support/harness.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/core/bf16.h"
#include "src/core/gpus.h"
#include "src/net/layer_types.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

std::vector<Device> devices() {
  std::vector<Device> all{Device::kCpu};
  if (gpu_present()) all.push_back(Device::kCuda);
  return all;
}

std::vector<Device> gpu_devices() {
  std::vector<Device> found = devices();
  std::erase(found, Device::kCpu);
  return found;
}

std::unique_ptr<Layer> layer_from(const std::string& keys, const Shape& in, std::optional<Slice> part) {
  std::string toml = keys;
  std::replace(toml.begin(), toml.end(), ' ', '\n');
  if (("\n" + toml).find("\nname=") == std::string::npos) toml = "name='layer'\n" + toml;
  return make_layer(Config::text(toml, "layer.toml"), in.row(), part, {}, net_layer_types());
}

Tensor upload(const std::vector<float>& values, const Shape& shape, Device device, DType dtype) {
  OWT_CHECK_EQ(static_cast<int64_t>(values.size()), shape.elements(), "values for ", shape);
  Tensor host(shape);
  std::copy(values.begin(), values.end(), host.data());
  return (dtype == DType::kBF16 ? to_bf16(host) : host).to(device);
}

std::vector<float> download(const Tensor& tensor) {
  const Tensor here = tensor.to(Device::kCpu);
  if (here.dtype() != DType::kBF16) return {here.data(), here.data() + here.elements()};
  std::vector<float> values(static_cast<size_t>(here.elements()));
  const auto* rounded = static_cast<const uint16_t*>(here.raw());
  std::transform(rounded, rounded + here.elements(), values.begin(), from_bf16);
  return values;
}

void fill(Tensor& tensor, float value) {
  if (tensor.dtype() == DType::kF64)
    return void(std::fill_n(tensor.data<double>(), tensor.elements(), static_cast<double>(value)));
  const std::vector<float> values(static_cast<size_t>(tensor.elements()), value);
  tensor.copy_from(upload(values, tensor.shape(), Device::kCpu, tensor.dtype()));
}

Tensor upload_labels(const std::vector<int32_t>& labels, Device device) {
  Tensor host({static_cast<int64_t>(labels.size())}, DType::kI32);
  std::copy(labels.begin(), labels.end(), host.data<int32_t>());
  return host.to(device);
}

std::vector<int32_t> download_labels(const Tensor& labels) {
  const Tensor here = labels.to(Device::kCpu);
  return {here.data<int32_t>(), here.data<int32_t>() + here.elements()};
}

Tensor scratch_for(const Op& op, Device device) {
  return Tensor({std::max(op.scratch_bytes(Phase::kForward), op.scratch_bytes(Phase::kBackward))}, DType::kU8, device);
}

void run_backward(Op& op, const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) {
  op.backward_data(pass, x, y, dy, dx);
  op.backward_weights(pass, x, dy);
}

DevicePass::DevicePass(Device device, int64_t rows) : stream_(device), rows_(static_cast<size_t>(rows)) {
  std::iota(rows_.begin(), rows_.end(), 0);
  pass_.seed = 1;
  pass_.step_rows = rows;
  pass_.rows = rows_;
  pass_.stream = &stream_;
  renew();
}

void DevicePass::renew() {
  if (stream_.device() == Device::kCpu) return;
  const auto count = static_cast<int64_t>(rows_.size());
  Tensor numbers({count + 1}, DType::kI64);
  std::copy(rows_.begin(), rows_.end(), numbers.data<int64_t>());
  numbers.data<int64_t>()[count] = pass_.step;
  device_numbers_ = numbers.to(stream_.device());
  pass_.device_rows = device_numbers_.data<int64_t>();
  pass_.device_step = pass_.device_rows + count;
}

Harness::Harness(const std::string& keys, const Shape& in, const Compute& on) : Harness(layer_from(keys, in), in, on) {}

Harness::Harness(std::unique_ptr<Layer> layer, const Shape& in, const Compute& on)
    : layer_(std::move(layer)),
      pass_(on.device, in.rows()),
      x_(in, activation_type(on.precision), on.device),
      y_(layer_->out_shape(in), activation_type(on.precision), on.device) {
  for (Param* param : layer_->params()) {
    param->allocate(on);
    param->initialize(1);
  }
  clear_grads();
  op_ = layer_->bind(in, on);
  pass().scratch = scratch_for(*op_, on.device);
}

void Harness::overwrite_scratch() {
  Tensor ones({pass().scratch.bytes()}, DType::kU8);
  std::fill_n(ones.data<uint8_t>(), ones.elements(), uint8_t{0xff});  // NaN in f32 and bf16
  pass().scratch.copy_from(ones);
}

Tensor Harness::upload_like(const std::vector<float>& values, const Tensor& like) const {
  return upload(values, like.shape(), like.device(), like.dtype());
}

std::vector<float> Harness::forward(const std::vector<float>& x) {
  pass_.renew();
  x_.copy_from(upload_like(x, x_));
  fill(y_, kNaN);
  overwrite_scratch();
  op_->forward(pass(), x_, y_);
  pass_.stream().synchronize();
  return download(y_);
}

std::vector<float> Harness::evaluate(const std::vector<float>& x) {
  pass().mode = Mode::kEval;
  std::vector<float> y = forward(x);
  pass().mode = Mode::kTrain;
  return y;
}

std::vector<float> Harness::backward(const std::vector<float>& dy) {
  Tensor dx(x_.shape(), x_.dtype(), x_.device());
  fill(dx, kNaN);
  const Tensor gradient = upload_like(dy, y_);
  overwrite_scratch();
  op_->backward_data(pass(), x_, y_, gradient, &dx);
  pass_.stream().synchronize();
  std::vector<float> complete = download(dx);
  op_->backward_weights(pass(), x_, gradient);
  pass_.stream().synchronize();
  return complete;
}

void Harness::backward_without_dx(const std::vector<float>& dy) {
  const Tensor gradient = upload_like(dy, y_);
  overwrite_scratch();
  run_backward(*op_, pass(), x_, y_, gradient, nullptr);
  pass_.stream().synchronize();
}

Param& Harness::param(const std::string& name) {
  for (Param* param : layer_->params())
    if (param->name == layer_->name() + "." + name) return *param;
  fail("layer '", layer_->name(), "' has no parameter '", name, "'");
}

void Harness::set_param(const std::string& name, const std::vector<float>& value) {
  Param& changed = param(name);
  changed.set_value(upload(value, changed.shape(), Device::kCpu));
}

std::vector<float>& Harness::grad_in_pieces(const std::string& name) {
  Param& given = param(name);
  given.keeps_grad = false;
  given.grad = {};
  pieces_.assign(static_cast<size_t>(given.shape().elements()), kNaN);
  given.update = [this](int64_t first, int64_t count, const float* gradient) {
    std::copy_n(gradient, count, pieces_.begin() + first);
  };
  return pieces_;
}

void Harness::clear_grads() {
  for (Param* param : layer_->params()) {
    if (param->grad.defined()) fill(param->grad, kNaN);
    param->grad_is_zero = true;
  }
}

}  // namespace owt
