#include "src/comm/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

std::optional<int> number(const Environment& environment, const char* name) {
  const char* text = environment(name);
  if (!text) return {};
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stopped != end || value < 0)
    fail("the environment variable ", name, " is '", text,
         "', wanted a number; unset it, or start with mpirun, srun or owt launch");
  return value;
}

// Item `index` of Slurm's list of counts, such as "2(x3),1" for 2, 2, 2, 1.
int listed_count(const char* text, int index) {
  while (*text) {
    char* rest = nullptr;
    const long count = std::strtol(text, &rest, 10);
    long times = 1;
    if (rest[0] == '(' && rest[1] == 'x') {
      times = std::strtol(rest + 2, &rest, 10);
      if (*rest == ')') ++rest;
    }
    if (index < times) return static_cast<int>(std::max(count, 1L));
    index -= static_cast<int>(times);
    if (*rest != ',') break;
    text = rest + 1;
  }
  return 1;
}

// The value of the key in /proc/PROCESS/status; "" if there is none.
std::string status_of(pid_t process, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":\t")) return line.substr(key.size() + 2);
  return "";
}

int cores_of(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(process, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::optional<ProcessLaunch> open_mpi(const Environment& environment) {
  const auto rank = number(environment, "OMPI_COMM_WORLD_RANK"), ranks = number(environment, "OMPI_COMM_WORLD_SIZE");
  if (!rank || !ranks) return {};
  return ProcessLaunch{*rank,
                       *ranks,
                       number(environment, "OMPI_COMM_WORLD_LOCAL_RANK").value_or(0),
                       number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE").value_or(1),
                       environment("OMPI_MCA_orte_bound_at_launch") ||
                           (environment("PRTE_LAUNCHED") && has_fewer_cores_than({"prterun", "prted", "mpirun"})),
                       "Open MPI",
                       true};
}

std::optional<ProcessLaunch> slurm(const Environment& environment) {
  if (!environment("SLURM_STEP_ID")) return {};  // a batch script has SLURM_PROCID too, but is not a task of a step
  const auto rank = number(environment, "SLURM_PROCID");
  auto ranks = number(environment, "SLURM_STEP_NUM_TASKS");
  if (!ranks) ranks = number(environment, "SLURM_NTASKS");
  if (!rank || !ranks) return {};
  const char* counts = environment("SLURM_STEP_TASKS_PER_NODE");
  const char* binding = environment("SLURM_CPU_BIND_TYPE");  // "mask_cpu:" if tasks are bound
  return ProcessLaunch{*rank,
                       *ranks,
                       number(environment, "SLURM_LOCALID").value_or(0),
                       counts ? listed_count(counts, number(environment, "SLURM_NODEID").value_or(0)) : 1,
                       binding && std::strchr(binding, ':'),
                       "Slurm"};
}

std::optional<ProcessLaunch> pmi(const Environment& environment) {
  if (environment("SLURM_STEP_ID")) return {};  // srun sets these variables, too
  const auto rank = number(environment, "PMI_RANK"), ranks = number(environment, "PMI_SIZE");
  if (!rank || !ranks) return {};
  return ProcessLaunch{*rank,
                       *ranks,
                       number(environment, "MPI_LOCALRANKID").value_or(0),
                       number(environment, "MPI_LOCALNRANKS").value_or(1),
                       false,
                       "PMI",
                       true};
}

std::optional<ProcessLaunch> torchrun(const Environment& environment) {
  const auto ranks = number(environment, "WORLD_SIZE");
  if (!ranks) return {};
  auto rank = number(environment, "RANK");
  if (!rank) rank = number(environment, "JOB_COMPLETION_INDEX");
  if (!rank) return {};
  if (*ranks > 1 && !environment("MASTER_ADDR"))
    fail("the environment says rank ", *rank, " of ", *ranks, " (RANK, WORLD_SIZE), but not where rank 0 is; set ",
         "MASTER_ADDR to its host, or unset WORLD_SIZE");
  const bool by_owt = environment("OWT_LAUNCH"), by_torchrun = environment("TORCHELASTIC_RUN_ID");
  ProcessLaunch found{*rank,
                      *ranks,
                      number(environment, "LOCAL_RANK").value_or(0),
                      number(environment, "LOCAL_WORLD_SIZE").value_or(1),
                      false,
                      by_owt        ? "owt launch"
                      : by_torchrun ? "torchrun"
                                    : "the variable WORLD_SIZE"};
  found.shares_gpu = by_owt && environment("OWT_SHARE_GPU");
  return found;
}

constexpr int kUsualPort = 29500;  // torchrun's

// torchrun itself listens at MASTER_PORT, unless it leaves that to rank 0.
void read_address(const Environment& environment, ProcessLaunch& found) {
  const char* const address = environment("MASTER_ADDR");
  if (!address || !*address) return;
  found.address = address;
  found.port = number(environment, "MASTER_PORT").value_or(kUsualPort);
  if (found.port < 1 || found.port > 65535) fail("MASTER_PORT is ", found.port, ", wanted a port from 1 to 65535");
  const char* const taken = environment("TORCHELASTIC_USE_AGENT_STORE");
  if (taken && std::strcmp(taken, "True") == 0) found.port += found.port < 65535 ? 1 : -1;
}

}  // namespace

bool has_fewer_cores_than(const std::vector<std::string>& launchers) {
  for (pid_t process = getppid(); process > 0; process = std::atoi(status_of(process, "PPid").c_str()))
    if (std::find(launchers.begin(), launchers.end(), status_of(process, "Name")) != launchers.end())
      return cores_of(0) < cores_of(process);
  return false;
}

ProcessLaunch launch_from(const Environment& environment) {
  ProcessLaunch found;
  // The order matters: an MPI launcher wins, and mpirun and torchrun may have been started by srun.
  for (const auto& look : {open_mpi, pmi, torchrun, slurm}) {
    const auto launch = look(environment);
    if (!launch) continue;
    found = *launch;
    break;
  }
  if (found.ranks < 1 || found.rank >= found.ranks || found.local_rank >= std::max(found.local_ranks, found.ranks))
    fail("the environment of ", found.by, " says rank ", found.rank, " of ", found.ranks, ", local rank ",
         found.local_rank, " of ", found.local_ranks, "; start with mpirun, srun or owt launch");
  found.local_ranks = std::max(found.local_ranks, found.local_rank + 1);
  if (found.several()) read_address(environment, found);
  return found;
}

namespace {

ProcessLaunch& own_launch() {
  static ProcessLaunch own = launch_from([](const char* name) { return std::getenv(name); });
  return own;
}

}  // namespace

const ProcessLaunch& launch() { return own_launch(); }
void set_launch(ProcessLaunch now) { own_launch() = std::move(now); }

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name[0] ? name : "localhost";
}

int cores_per_rank(int ranks, const ProcessLaunch& process) {
  const int processes = process.bound ? 1 : process.local_ranks;
  return std::clamp(hardware_cores() / (processes * std::max(ranks, 1)), 1, omp_get_thread_limit());
}

int threads_per_rank(int threads, int ranks, const ProcessLaunch& process) {
  if (threads == 0) {
    const int here = process.several() ? 1 : ranks, of_process = threads_of_environment();
    return of_process > 0 ? std::max(1, of_process / here) : cores_per_rank(here, process);
  }
  return std::max(1, threads / (process.several() ? process.local_ranks : ranks));
}

}  // namespace owt
