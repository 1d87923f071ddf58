// The hosts of owt launch.
#pragma once

#include <string>
#include <vector>

namespace owt {

// A host, and the number of processes on it.
struct HostWorkers {
  std::string name;
  int workers = 1;
};
constexpr int kMostWorkers = 4096;  // on a host
// "a:4,b:4"; a host without a number has one process. Throws Error.
std::vector<HostWorkers> hosts_from(const std::string& text);

bool is_this_host(const std::string& name);             // by name or address
bool means_another_elsewhere(const HostWorkers& host);  // other hosts mean themselves by this name

}  // namespace owt
