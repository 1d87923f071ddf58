// A fixture for tests of the optimizers.
#pragma once

#include <algorithm>
#include <vector>

#include "src/parallel/optimizer.h"
#include "tests/support/harness.h"

namespace owt {

// Makes parameters and updates them on the device.
class UpdateTest : public DeviceTest {
 protected:
  Param make_param(const std::vector<float>& value, const std::vector<float>& grad,
                   Precision precision = Precision::kFp32) const {
    Param param;
    param.name = "w";
    param.full_shape = Shape{static_cast<int64_t>(value.size())};
    param.part = {0, static_cast<int64_t>(value.size())};
    param.cpu_reads_copy16 = true;
    param.allocate({device(), precision});
    param.set_value(upload(value, param.shape(), Device::kCpu));
    if (!grad.empty()) set_grad(param, grad);
    return param;
  }

  static void set_grad(Param& param, const std::vector<float>& grad) {
    param.grad.copy_from(upload(grad, param.shape(), Device::kCpu));
    param.grad_is_zero = false;
  }

  // params: pointers to parameters, or parts.
  template <class Params>
  void update(Optimizer& optimizer, const std::vector<Params>& params, double rate, double gradient_scale = 1) const {
    update(optimizer, params, StepRates{rate, rate}, gradient_scale);
  }
  template <class Params>
  void update(Optimizer& optimizer, const std::vector<Params>& params, const StepRates& rates,
              double gradient_scale = 1, int earlier = 0, Priority priority = Priority::kNormal) const {
    const Stream stream(device(), priority);
    optimizer.update(params, {rates, on_device(rates), earlier}, gradient_scale, stream);
    stream.synchronize();
  }
  Tensor on_device(const StepRates& rates) const {
    Tensor here({StepRates::kNumbers}, DType::kF64);
    const double numbers[] = {rates.weights, rates.biases, rates.updates, rates.sgd_share};
    std::copy(std::begin(numbers), std::end(numbers), here.data<double>());
    return here.to(device());
  }
  void update(Optimizer& optimizer, Param& param, double rate, double gradient_scale = 1) const {
    update(optimizer, std::vector<Param*>{&param}, rate, gradient_scale);
  }
};

}  // namespace owt
