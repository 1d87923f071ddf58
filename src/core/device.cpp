#include "src/core/device.h"

#include <filesystem>

#include "src/core/dispatch.h"
#include "src/core/gpus.h"
#include "src/system/check.h"

namespace owt {

const char* name_of(Device device) { return device == Device::kCpu ? "cpu" : "cuda"; }

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::kTf32:
      return "tf32";
    case Precision::kBf16:
      return "bf16";
    default:
      return "fp32";
  }
}

Device device_from(const std::string& name) {
  if (name == "auto") return gpu_present() ? Device::kCuda : Device::kCpu;
  if (name == "cpu") return Device::kCpu;
  if (name != "cuda") fail("no device '", name, "'; use cpu, cuda or auto");
  if (!gpu_present()) fail("device 'cuda': ", find_gpus().why_none, "; use --device cpu");
  return Device::kCuda;
}

Precision precision_from(const std::string& name) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16})
    if (name == name_of(precision)) return precision;
  fail("no precision '", name, "'; use fp32, tf32 or bf16");
}

Gpus find_gpus(Cpu) {
  Gpus none;
  none.why_none = "this program was built without the CUDA back-end";
  return none;
}

void use_gpu(Cpu, int) { fail("this program was built without the CUDA back-end"); }
void check_gpu(Cpu, Precision) { fail("this program was built without the CUDA back-end"); }
int64_t free_memory_of_gpu(Cpu, int) { fail("this program was built without the CUDA back-end"); }

Gpus find_gpus() {
  return dispatch(kCudaBuilt ? Device::kCuda : Device::kCpu, [](auto tag) { return find_gpus(tag); });
}

bool gpu_present() {
  static const bool present = !find_gpus().list.empty();
  return present;
}

bool nvidia_driver_here() {
  std::error_code none;
  return std::filesystem::exists("/proc/driver/nvidia/version", none) ||
         std::filesystem::exists("/dev/nvidiactl", none);
}

void use_gpu(int index) {
  dispatch(kCudaBuilt ? Device::kCuda : Device::kCpu, [&](auto tag) { use_gpu(tag, index); });
}

void check_gpu(Precision precision) {
  dispatch(kCudaBuilt ? Device::kCuda : Device::kCpu, [&](auto tag) { check_gpu(tag, precision); });
}

int64_t free_memory_of_gpu(int index) {
  return dispatch(kCudaBuilt ? Device::kCuda : Device::kCpu, [&](auto tag) { return free_memory_of_gpu(tag, index); });
}

}  // namespace owt
