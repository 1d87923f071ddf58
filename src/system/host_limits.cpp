#include "src/system/host_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// A control group as a folder, in one of the two versions of the interface.
struct ControlGroup {
  fs::path folder;
  int version;
};

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool has_word(const std::string& list, const std::string& word) {
  const std::vector<std::string> words = split_at(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A line of /proc/self/mountinfo: the mounted part of a hierarchy of control groups, and its mount point.
struct Mount {
  std::string root, point, type, options;
};

std::optional<Mount> mount_from(const std::string& line) {
  const size_t dash = line.find(" - ");
  if (dash == std::string::npos) return {};
  const std::vector<std::string> left = split_at(line.substr(0, dash), ' '),
                                 right = split_at(line.substr(dash + 3), ' ');
  if (left.size() < 5 || right.size() < 3) return {};
  return Mount{left[3], left[4], right[0], right[2]};
}

// The group of this process in a hierarchy: a controller's hierarchy in version 1, or the only one in version 2.
std::optional<std::string> own_group(const std::string& root, int version, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/path", "0::/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version == 2 ? controllers.empty() : has_word(controllers, controller)) return line.substr(second + 1);
  }
  return {};
}

// The group's path below the mounted part; in a container it may be that part itself, by another name.
fs::path below(const Mount& mount, const std::string& group) {
  const std::string base = mount.root == "/" ? "" : mount.root;
  const bool inside = group.starts_with(base + "/") && group.find("/..") == std::string::npos;
  return inside ? fs::path(group.substr(base.size() + 1)) : fs::path();
}

// The process's own group and all enclosing groups that are visible.
std::vector<ControlGroup> control_groups(const std::string& root, const std::string& controller) {
  std::vector<ControlGroup> groups;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::optional<Mount> mount = mount_from(line);
    if (!mount) continue;
    const int version = mount->type == "cgroup2" ? 2 : mount->type == "cgroup" ? 1 : 0;
    if (version == 0 || (version == 1 && !has_word(mount->options, controller))) continue;
    const std::optional<std::string> own = own_group(root, version, controller);
    if (!own) continue;
    fs::path group = below(*mount, *own);
    for (;; group = group.parent_path()) {
      groups.push_back({fs::path(root + mount->point) / group, version});
      if (group.empty()) break;
    }
  }
  return groups;
}

// The number in a file; none for "max" or if there is no file.
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (!(file >> number)) return {};
  return number;
}

// The number after a word, in lines of words and numbers: /proc/meminfo, memory.stat.
int64_t number_of(const fs::path& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string first;
    int64_t number = 0;
    if (in >> first >> number && first == word) return number;
  }
  return 0;
}

double cores_of(const ControlGroup& group) {
  double quota = -1, period = 0;
  if (group.version == 2) {
    std::ifstream(group.folder / "cpu.max") >> quota >> period;  // "max 100000" if there is no quota
  } else {
    quota = static_cast<double>(number_in(group.folder / "cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(number_in(group.folder / "cpu.cfs_period_us").value_or(0));
  }
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

int64_t bytes_left(const ControlGroup& group, int64_t swap) {
  const bool v2 = group.version == 2;
  const auto limit = number_in(group.folder / (v2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used = number_in(group.folder / (v2 ? "memory.current" : "memory.usage_in_bytes"));
  constexpr int64_t kUnlimited = int64_t{1} << 60;  // version 1 reports a huge number for no limit
  if (!limit || !used || *limit > kUnlimited) return kNoLimit;
  const fs::path stat = group.folder / "memory.stat";
  const std::string cache = v2 ? "" : "total_";
  const int64_t given_up = number_of(stat, cache + "active_file") + number_of(stat, cache + "inactive_file");
  if (const auto swap_limit = number_in(group.folder / "memory.swap.max"))
    swap = std::min(swap, *swap_limit - number_in(group.folder / "memory.swap.current").value_or(0));
  return std::max<int64_t>(0, *limit - *used + std::min(given_up, *used) + std::max<int64_t>(0, swap));
}

// What a limit of the process leaves, given its current use in /proc/self/status.
int64_t left_of(decltype(RLIMIT_AS) resource, const std::string& root, const std::string& has) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kNoLimit));
  return std::max<int64_t>(0, most - 1024 * number_of(root + "/proc/self/status", has));
}

}  // namespace

double quota_of_cores(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for (const ControlGroup& group : control_groups(root, "cpu")) least = std::min(least, cores_of(group));
  return least;
}

FreeMemory free_memory(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  const int64_t available = 1024 * number_of(meminfo, "MemAvailable:"), swap = 1024 * number_of(meminfo, "SwapFree:");
  FreeMemory least{available > 0 ? available + swap : kNoLimit, "this host has"};
  const auto limit = [&](int64_t bytes, const char* by) {
    if (bytes < least.bytes) least = {bytes, by};
  };
  for (const ControlGroup& group : control_groups(root, "memory"))
    limit(bytes_left(group, swap), "the control group (cgroup) of this process has");
  limit(left_of(RLIMIT_AS, root, "VmSize:"), "the limit of addresses (ulimit -v) leaves");
  limit(left_of(RLIMIT_DATA, root, "VmData:"), "the limit of data (ulimit -d) leaves");
  return least;
}

}  // namespace owt
