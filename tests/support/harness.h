// Runs one layer on small batches, given as lists of numbers, on any device.
//
//   Harness pool("type='max_pool' kernel=2", {1, 2, 2, 1}, device());
//   EXPECT_THAT(pool.forward({7, 7, 1, 0}), ElementsAre(7));
//   EXPECT_THAT(pool.backward({5}), ElementsAre(5, 0, 0, 0));
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/base/layer.h"

namespace owt {

// The available devices, and the GPUs among them, which are compared with the CPU (possibly none:
// GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST).
std::vector<Device> devices();
std::vector<Device> gpu_devices();

// A suite whose tests run on every device. It is a name for this class, because GoogleTest needs some hundred functions
// for a class of its own:
//   using PoolTest = DeviceTest;
//   INSTANTIATE_TEST_SUITE_P(Devices, PoolTest, testing::ValuesIn(devices()), device_name);
class DeviceTest : public testing::TestWithParam<Device> {
 protected:
  Device device() const { return GetParam(); }
};
inline std::string device_name(const testing::TestParamInfo<Device>& info) { return name_of(info.param); }

// Makes a layer for rows of shape `in.row()`. keys: TOML pairs separated by blanks (no blanks in values); the default
// name is "layer".
std::unique_ptr<Layer> layer_from(const std::string& keys, const Shape& in, std::optional<Slice> part = {});

// Copies host values to a device tensor (rounded for bf16), and back. The host waits, but not for other queued work.
Tensor upload(const std::vector<float>& values, const Shape& shape, Device device, DType dtype = DType::kF32);
std::vector<float> download(const Tensor& tensor);  // f32 or bf16
void fill(Tensor& tensor, float value);
// Copies a list of i32, e.g. labels, and back.
Tensor upload_labels(const std::vector<int32_t>& labels, Device device);
std::vector<int32_t> download_labels(const Tensor& labels);

// Separate scratch memory for one op, for Pass::scratch.
Tensor scratch_for(const Op& op, Device device);

// Runs both passes of backward.
void run_backward(Op& op, const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx);

// A Pass with its data: training, step 0, seed 1, and rows 0, 1, ..., which are all rows of the step.
class DevicePass {
 public:
  DevicePass(Device device, int64_t rows);
  DevicePass(const DevicePass&) = delete;
  DevicePass& operator=(const DevicePass&) = delete;

  Pass& pass() { return pass_; }
  std::vector<int64_t>& rows() { return rows_; }  // data of pass().rows
  const Stream& stream() const { return stream_; }
  void renew();  // copies changes of rows() and pass().step to the device

 private:
  Stream stream_;
  std::vector<int64_t> rows_;
  Tensor device_numbers_;  // the rows, then the step
  Pass pass_;
};

class Harness {
 public:
  // `in`: the batch; activations have the type of the precision. Parameters get their initial values for seed 1. pass()
  // starts like the pass of a DevicePass.
  Harness(const std::string& keys, const Shape& in, const Compute& on);
  // For a batch of shape `in` and a layer made elsewhere.
  Harness(std::unique_ptr<Layer> layer, const Shape& in, const Compute& on);

  // Outputs and dx are filled with NaN first, so that elements that are not written show. The returned dx is copied
  // after backward_data, before backward_weights. Scratch memory is overwritten between forward and backward.
  std::vector<float> forward(const std::vector<float>& x);
  std::vector<float> evaluate(const std::vector<float>& x);  // forward in Mode::kEval
  std::vector<float> backward(const std::vector<float>& dy);
  void backward_without_dx(const std::vector<float>& dy);

  Layer& layer() { return *layer_; }
  Pass& pass() { return pass_.pass(); }
  std::vector<int64_t>& rows() { return pass_.rows(); }  // data of pass().rows
  const Shape& out_shape() const { return y_.shape(); }

  // The parameter by the name after the layer's name: "weight".
  Param& param(const std::string& name);
  void set_param(const std::string& name, const std::vector<float>& value);
  std::vector<float> value(const std::string& name) { return download(param(name).value); }
  std::vector<float> grad(const std::string& name) { return download(param(name).grad); }
  // The gradient of a parameter that has no memory for it, collected from the pieces of the next backward. On the CPU.
  std::vector<float>& grad_in_pieces(const std::string& name);
  void clear_grads();  // like after an update: sets grad_is_zero, and NaN in the memory

 private:
  Tensor upload_like(const std::vector<float>& values, const Tensor& like) const;
  void overwrite_scratch();  // like other ops between the passes of an op

  std::unique_ptr<Layer> layer_;
  DevicePass pass_;
  Tensor x_, y_;
  std::unique_ptr<Op> op_;
  std::vector<float> pieces_;
};

}  // namespace owt
