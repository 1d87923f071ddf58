// What the machine is, for people and for keys of caches.
#pragma once

#include <string>

namespace owt {

// The processor as /proc/cpuinfo calls it; empty where it does not.
std::string processor_name();

}  // namespace owt
