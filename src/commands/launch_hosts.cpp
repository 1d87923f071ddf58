#include "src/commands/launch_hosts.h"

#include <algorithm>
#include <charconv>

#include "src/comm/launch.h"
#include "src/system/check.h"
#include "src/system/sockets.h"

namespace owt {

std::vector<HostWorkers> hosts_from(const std::string& text) {
  std::vector<HostWorkers> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    const size_t colon = one.find(':');
    HostWorkers host{one.substr(0, colon), 1};
    if (colon != std::string::npos) {
      const char* const last = one.data() + one.size();
      const auto [stopped, error] = std::from_chars(one.data() + colon + 1, last, host.workers);
      if (error != std::errc() || stopped != last || host.workers < 1 || host.workers > kMostWorkers)
        fail("'", one, "': wanted HOST:N with a number of processes from 1 to ", kMostWorkers);
    }
    if (host.name.empty() || host.name.starts_with('-')) fail("'", one, "': wanted the name of a host");
    if (std::ranges::count(hosts, host.name, &HostWorkers::name) > 0)
      fail("'", host.name, "' is named twice; name it once, with the number of its processes");
    hosts.push_back(host);
    begin = end + 1;
  }
  return hosts;
}

bool is_this_host(const std::string& name) {
  const std::string own = host_name();
  if (name == "localhost" || name == own || name == own.substr(0, own.find('.'))) return true;
  return std::ranges::count(addresses_of_host(), name) > 0;
}

bool means_another_elsewhere(const HostWorkers& host) { return host.name == "localhost" || is_loopback(host.name); }

}  // namespace owt
