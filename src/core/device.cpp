#include "src/core/device.h"

#include "src/core/check.h"

namespace owt {

const char* name_of(Device device) { return device == Device::kCpu ? "cpu" : "cuda"; }

Device device_from(const std::string& name) {
  if (name == "cpu") return Device::kCpu;
  if (name == "cuda") fail("device 'cuda': this program has only the CPU back-end; use --device cpu");
  fail("no device '", name, "'; use cpu");
}

}  // namespace owt
