// Devices as tags: an implementation for a device is an overload on its tag, `bind_pool(Cpu, ...)`.
#pragma once

#include <ostream>
#include <string>

namespace owt {

enum class Device { kCpu, kCuda };

struct Cpu {};
struct Cuda {};

const char* name_of(Device device);  // "cpu", "cuda"
// From a name on the command line. Throws Error for an unknown name or a device this program was not built for.
Device device_from(const std::string& name);
inline std::ostream& operator<<(std::ostream& out, Device device) { return out << name_of(device); }

}  // namespace owt
