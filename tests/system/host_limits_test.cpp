#include "src/system/host_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <tuple>
#include <vector>

#include "src/core/threads.h"
#include "tests/support/environment.h"
#include "tests/support/temp_folder.h"

namespace owt::host_limits_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMb = 1 << 20;

// A machine's /proc and /sys in a folder.
class HostLimits : public ::testing::Test {
 protected:
  HostLimits() {
    write("/proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable:  819200 kB\nSwapFree:  0 kB\n");
    write("/proc/self/status", "VmSize:\t 1024 kB\nVmData:\t 512 kB\n");
  }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    write_bytes(file.string(), text);
  }
  std::string root() const { return folder_.file("root"); }

  void mount_v2(const std::string& group, const std::string& mounted = "/") const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo", "30 23 0:26 " + mounted + " /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
  }
  void mount_v1(const std::string& group, const std::string& mounted = "/") const {
    write("/proc/self/cgroup", "5:memory:" + group + "\n4:cpu,cpuacct:" + group + "\n1:name=systemd:/x\n0::/\n");
    write("/proc/self/mountinfo",
          "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
          "32 31 0:29 " +
              mounted +
              " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
              "33 31 0:30 " +
              mounted + " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  }

 private:
  TempFolder folder_;
};

TEST_F(HostLimits, WithoutControlGroupsThereIsNoQuotaAndTheMachinesMemory) {
  EXPECT_TRUE(std::isinf(quota_of_cores(root())));
  EXPECT_EQ(free_memory(root()).bytes, 800 * kMb);
  EXPECT_EQ(free_memory(root()).by, "this host has");
}

TEST_F(HostLimits, TheLeastQuotaOfTheOwnGroupAndThoseAroundItCounts) {
  mount_v2("/user.slice/job");
  write("/sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota_of_cores(root()), 2.5);
  write("/sys/fs/cgroup/user.slice/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota_of_cores(root()), 0.5);
}

TEST_F(HostLimits, QuotasOfVersion1Count) {
  mount_v1("/docker/a/b");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/a/b/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(std::isinf(quota_of_cores(root())));
  write("/sys/fs/cgroup/cpu,cpuacct/docker/a/cpu.cfs_quota_us", "300000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota_of_cores(root()), 3);
}

// Docker mounts version 1 like this: the mount shows the group's own part of the hierarchy, and the path is the outer
// one.
TEST_F(HostLimits, AContainersOwnPartOfTheHierarchyIsItsGroup) {
  mount_v1("/docker/a", "/docker/a");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota_of_cores(root()), 1.5);
  mount_v2("/../..");  // outside of the namespace
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota_of_cores(root()), 4);
}

TEST_F(HostLimits, MemoryIsWhatTheTightestGroupLeavesAndPageCacheIsNotUsed) {
  mount_v2("/a/b");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "1048576\n");
  EXPECT_EQ(free_memory(root()).bytes, 800 * kMb);
  write("/sys/fs/cgroup/a/memory.max", std::to_string(100 * kMb));
  write("/sys/fs/cgroup/a/memory.current", std::to_string(60 * kMb));
  EXPECT_EQ(free_memory(root()).bytes, 40 * kMb);
  EXPECT_THAT(free_memory(root()).by, HasSubstr("cgroup"));
  write("/sys/fs/cgroup/a/memory.stat",
        "anon 1\nactive_file " + std::to_string(10 * kMb) + "\ninactive_file " + std::to_string(20 * kMb) + "\n");
  EXPECT_EQ(free_memory(root()).bytes, 70 * kMb);
}

TEST_F(HostLimits, SwapIsFreeMemoryAsFarAsTheGroupMayUseIt) {
  write("/proc/meminfo", "MemAvailable:  819200 kB\nSwapFree:  102400 kB\n");
  EXPECT_EQ(free_memory(root()).bytes, 900 * kMb);
  mount_v2("/a");
  write("/sys/fs/cgroup/a/memory.max", std::to_string(100 * kMb));
  write("/sys/fs/cgroup/a/memory.current", std::to_string(60 * kMb));
  EXPECT_EQ(free_memory(root()).bytes, 140 * kMb);
  write("/sys/fs/cgroup/a/memory.swap.max", "0\n");
  EXPECT_EQ(free_memory(root()).bytes, 40 * kMb);
  write("/sys/fs/cgroup/a/memory.swap.max", std::to_string(50 * kMb));
  write("/sys/fs/cgroup/a/memory.swap.current", std::to_string(30 * kMb));
  EXPECT_EQ(free_memory(root()).bytes, 60 * kMb);
}

TEST_F(HostLimits, MemoryOfVersion1CountsAndItsLargestNumberIsNoLimit) {
  mount_v1("/job");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(50 * kMb));
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(45 * kMb));
  write("/sys/fs/cgroup/memory/job/memory.stat", "cache 1\ntotal_inactive_file " + std::to_string(5 * kMb) + "\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  EXPECT_EQ(free_memory(root()).bytes, 10 * kMb);
}

TEST_F(HostLimits, LimitsOfTheProcessCount) {
  const std::vector<std::tuple<decltype(RLIMIT_AS), int64_t, const char*>> limits = {
      {RLIMIT_AS, kMb, "ulimit -v"}, {RLIMIT_DATA, kMb / 2, "ulimit -d"}};
  for (const auto& [resource, has, name] : limits) {
    rlimit before{};
    getrlimit(resource, &before);
    constexpr rlim_t kFew = rlim_t{700} << 20;  // limit of this process, which allocates nothing meanwhile
    const rlimit few{kFew, before.rlim_max};
    write("/proc/meminfo", "MemAvailable:  8192000000 kB\n");
    setrlimit(resource, &few);
    const FreeMemory free = free_memory(root());
    setrlimit(resource, &before);
    EXPECT_EQ(free.bytes, 700 * kMb - has) << name;
    EXPECT_THAT(free.by, HasSubstr(name));
  }
}

TEST(DefaultThreads, AreThoseOfOpenMpsVariableOrAllCores) {
  {
    const Variable said("OMP_NUM_THREADS", "3,2");
    EXPECT_EQ(default_threads(), 3);
  }
  for (const char* nothing : {static_cast<const char*>(nullptr), "", "many", "-1"}) {
    const Variable said("OMP_NUM_THREADS", nothing);
    EXPECT_EQ(default_threads(), hardware_cores());
  }
}

}  // namespace
}  // namespace owt::host_limits_test
