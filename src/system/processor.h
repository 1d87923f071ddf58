// The processor's name, for people and for keys of caches.
#pragma once

#include <string>

namespace owt {

// The processor's name in /proc/cpuinfo; empty if it has none.
std::string processor_name();

}  // namespace owt
