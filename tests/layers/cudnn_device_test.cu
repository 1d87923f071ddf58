// cuDNN's description of this machine's GPU, from which plans can be made on machines without it.
// OWT_DUMP_DEVICE_JSON=FILE writes it to a file, which can replace tests/support/h200.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "layers/gpu/conv_plans.h"
#include "layers/gpu/cudnn.h"
#include "layers/gpu/cudnn_plan.h"
#include "src/core/gpus.h"
#include "src/system/files.h"

namespace owt {
namespace {

std::string description_of_this_gpu() {
  const Stream stream(Device::kCuda);
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_HANDLE, cudnn_handle(stream));
  properties.finalize();
  return properties.text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
}

TEST(CudnnDevice, PlansAreMadeFromItsDescription) {
  if (!gpu_present()) GTEST_SKIP() << find_gpus().why_none;
  const std::string json = description_of_this_gpu();
  if (const char* file = std::getenv("OWT_DUMP_DEVICE_JSON")) write_file_atomically(file, json);
  EXPECT_THAT(json, testing::HasSubstr("deviceVer"));

  const ConvGeometry conv{27, 27, 64, 27, 27, 192, 5, 5, 1, 1, 2, 2, 2, 2, 1};
  int plans = 0;
  for_each_plan(conv_forward_graph(conv, 128, DType::kBF16), {}, PlanTarget::described_by(json),
                [&](const CudnnPlan&) { return ++plans, PlanVerdict::kEnough; });
  EXPECT_EQ(plans, 1);
}

}  // namespace
}  // namespace owt
