// What this process may have of its machine: processor time and memory, as the kernel, control groups (of containers
// and batch systems) and limits of the process (ulimit) leave them.
//
// A control group's limit holds for all groups within it, so the process's own group and all around it count, in both
// versions of the interface: v2 (cpu.max, memory.max) and v1 (cpu.cfs_quota_us, memory.limit_in_bytes).
// `root` is where /proc and /sys are looked for, for tests.
#pragma once

#include <cstdint>
#include <string>

namespace owt {

// Cores by the least quota of control groups; infinity: there is none.
double quota_of_cores(const std::string& root = "");

struct FreeMemory {
  int64_t bytes = 0;
  std::string by;  // who leaves no more, for people: "this host has"
};

// What more of it this process can take: the least of
// - what the machine has available, with what it can swap out;
// - what control groups leave; page cache, which the kernel gives up, does not count as used;
// - what the limits of addresses and of data leave (ulimit -v, ulimit -d).
FreeMemory free_memory(const std::string& root = "");

}  // namespace owt
