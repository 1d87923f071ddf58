// The processor time and memory that this process may use: limited by the kernel, by control groups (of containers and
// batch systems), and by limits of the process (ulimit).
//
// A control group's limit holds for all groups within it, so the process's own group and all enclosing groups count.
// Both versions of the interface are read: v2 (cpu.max, memory.max) and v1 (cpu.cfs_quota_us, memory.limit_in_bytes).
// `root` is a prefix of /proc and /sys, for tests.
#pragma once

#include <cstdint>
#include <string>

namespace owt {

// The smallest quota of all control groups, in cores; infinity if there is none.
double quota_of_cores(const std::string& root = "");

struct FreeMemory {
  int64_t bytes = 0;
  std::string by;  // what limits it, for messages: "this host has"
};

// Memory that this process can still allocate: the minimum of
// - what the machine has available, including what it can swap out;
// - what control groups leave; page cache does not count as used, because the kernel frees it;
// - what the limits of addresses and of data leave (ulimit -v, ulimit -d).
FreeMemory free_memory(const std::string& root = "");

}  // namespace owt
