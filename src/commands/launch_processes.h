// Starts the processes of a run (owt launch), which find each other over TCP (src/comm/launch.h reads what it sets).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/commands/launch_hosts.h"

namespace owt {

// A run whose workers change (src/roster/roster.h).
struct Elastic {
  int least = 1, most = 1;  // workers
  std::string join{};       // HOST:PORT of the run that the processes join; empty: they begin a run
};
// "2:4". Throws Error.
Elastic elastic_from(const std::string& text);

struct ProcessesToLaunch {
  std::vector<HostWorkers> hosts;    // rank 0 is on the first one
  int port = 0;                      // where rank 0 listens; 0: a free one, if there is one host
  std::vector<std::string> command;  // program and arguments, the same on all hosts
  bool enable_recovery = false;      // the others continue when a process is lost
  bool share_gpu = false;            // all processes use one GPU, and NCCL as if each were on its own host
  std::string only_host{};           // starts the processes of this host only; empty: of all hosts
  std::string ssh = "ssh";           // reaches other hosts: a program, perhaps with options
  std::vector<std::string> same{};   // the words of owt launch that other hosts get, too
  std::optional<Elastic> elastic{};
};

// Returns when all processes have ended. The result is 0, or the code of the first that failed: its exit code, or 128
// and the signal that ended it. Then the others get some time to end by themselves. With enable_recovery, the code of
// rank 0 or its host. With elastic, 0 if the run has finished, and a process that was ended by a signal counts only if
// no other process ended well. Signals that stop a run are passed on. Throws Error if nothing can be started.
int launch_processes(const ProcessesToLaunch& what);

}  // namespace owt
