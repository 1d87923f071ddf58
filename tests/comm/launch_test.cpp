#include "src/comm/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "src/comm/processes.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "tests/support/environment.h"
#include "tests/support/message_of.h"

namespace owt::launch_test {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

ProcessLaunch launch_with(const Variables& variables) {
  return launch_from([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect(const ProcessLaunch& found, const std::string& by, int rank, int ranks, int local_rank, int local_ranks) {
  EXPECT_EQ(found.by, by);
  EXPECT_EQ(found.rank, rank);
  EXPECT_EQ(found.ranks, ranks);
  EXPECT_EQ(found.local_rank, local_rank);
  EXPECT_EQ(found.local_ranks, local_ranks);
}

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "5"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};

TEST(ProcessLaunch, WithoutALauncherIsOneProcess) {
  const ProcessLaunch found = launch_with({{"HOME", "/root"}});
  expect(found, "", 0, 1, 0, 1);
  EXPECT_FALSE(found.several());
}

TEST(ProcessLaunch, ByMpirunIsReadFromOpenMpisVariables) {
  Variables variables = kOpenMpi;
  expect(launch_with(variables), "Open MPI", 5, 8, 1, 4);
  EXPECT_TRUE(launch_with(variables).several());
  EXPECT_FALSE(launch_with(variables).bound);
  variables["OMPI_MCA_orte_bound_at_launch"] = "1";
  EXPECT_TRUE(launch_with(variables).bound);
}

// 0 or 1 in a child process with this name's process for an ancestor; the child may run on one core only if `bound`.
int child_has_fewer_cores_than(const std::string& name, bool bound) {
  const pid_t child = fork();
  if (child == 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (bound) sched_setaffinity(0, sizeof one, &one);
    _exit(has_fewer_cores_than({"no such launcher", name}));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(ProcessLaunch, AProcessIsBoundWhereItHasFewerCoresThanItsLauncher) {
  if (hardware_cores() < 2) GTEST_SKIP() << "one core";
  std::string name(16, '\0');
  prctl(PR_GET_NAME, name.data());
  name.resize(std::strlen(name.c_str()));
  EXPECT_EQ(child_has_fewer_cores_than(name, true), 1);
  EXPECT_EQ(child_has_fewer_cores_than(name, false), 0);
  EXPECT_EQ(child_has_fewer_cores_than("another", true), 0);
}

TEST(ProcessLaunch, ByAnotherMpiIsReadFromPmisVariables) {
  expect(launch_with({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}}), "PMI",
         2, 3, 2, 3);
  expect(launch_with({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}), "PMI", 2, 3, 0, 1);
}

const Variables kSlurm{{"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "6"},
                       {"SLURM_NTASKS", "16"},
                       {"SLURM_STEP_NUM_TASKS", "7"},
                       {"SLURM_NODEID", "3"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};

TEST(ProcessLaunch, BySrunIsReadFromTheVariablesOfTheStep) {
  Variables variables = kSlurm;
  expect(launch_with(variables), "Slurm", 6, 7, 0, 1);
  variables["SLURM_NODEID"] = "2";
  variables["SLURM_LOCALID"] = "1";
  expect(launch_with(variables), "Slurm", 6, 7, 1, 2);
}

TEST(ProcessLaunch, SlurmsBatchScriptIsNoTask) {
  Variables variables = kSlurm;
  variables.erase("SLURM_STEP_ID");
  EXPECT_FALSE(launch_with(variables).several());
}

TEST(ProcessLaunch, MpirunWithinSlurmCountsItsOwnProcesses) {
  Variables variables = kSlurm;
  variables.insert(kOpenMpi.begin(), kOpenMpi.end());
  expect(launch_with(variables), "Open MPI", 5, 8, 1, 4);
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "1234"}};

void expect_address(const ProcessLaunch& found, const std::string& address, int port) {
  EXPECT_EQ(found.address, address);
  EXPECT_EQ(found.port, port);
}

TEST(ProcessLaunch, WithTorchrunsVariablesHasAnAddress) {
  Variables variables = kTorchrun;
  expect(launch_with(variables), "the variable WORLD_SIZE", 5, 8, 1, 4);
  expect_address(launch_with(variables), "node1", 1234);
  EXPECT_FALSE(launch_with(variables).by_mpi);
  variables["TORCHELASTIC_RUN_ID"] = "none";
  expect(launch_with(variables), "torchrun", 5, 8, 1, 4);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  expect_address(launch_with(variables), "node1", 1235);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  expect_address(launch_with(variables), "node1", 1234);
  variables["OWT_LAUNCH"] = "1";
  expect(launch_with(variables), "owt launch", 5, 8, 1, 4);
}

TEST(ProcessLaunch, OfKubernetesIndexedJobsNeedsNoMoreThanIndexNumberAndAddress) {
  const ProcessLaunch found =
      launch_with({{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-0.job"}});
  expect(found, "the variable WORLD_SIZE", 2, 3, 0, 1);
  expect_address(found, "job-0.job", 29500);
}

TEST(ProcessLaunch, BySrunUsesTcpWhereItHasAnAddress) {
  Variables variables = kSlurm;
  expect_address(launch_with(variables), "", 0);
  variables["MASTER_ADDR"] = "node1";
  expect(launch_with(variables), "Slurm", 6, 7, 0, 1);
  expect_address(launch_with(variables), "node1", 29500);
  EXPECT_FALSE(launch_with(variables).by_mpi);
}

TEST(ProcessLaunch, ByTorchrunThatSrunStartedIsTorchruns) {
  Variables variables = kSlurm;
  variables.insert(kTorchrun.begin(), kTorchrun.end());
  expect(launch_with(variables), "the variable WORLD_SIZE", 5, 8, 1, 4);
}

TEST(ProcessLaunch, ByMpirunIsMpisWhateverTorchrunsVariablesSay) {
  Variables variables = kTorchrun;
  variables["RANK"] = "0";
  variables.insert(kOpenMpi.begin(), kOpenMpi.end());
  expect(launch_with(variables), "Open MPI", 5, 8, 1, 4);
  EXPECT_TRUE(launch_with(variables).by_mpi);
}

TEST(ProcessLaunch, NeedsTheAddressOfRank0) {
  Variables variables = kTorchrun;
  variables.erase("MASTER_ADDR");
  EXPECT_THAT(message_of([&] { launch_with(variables); }), HasSubstr("set MASTER_ADDR"));
  variables["WORLD_SIZE"] = "1";
  variables["RANK"] = "0";
  variables["LOCAL_RANK"] = "0";
  EXPECT_FALSE(launch_with(variables).several());
  variables = kTorchrun;
  variables["MASTER_PORT"] = "70000";
  EXPECT_THAT(message_of([&] { launch_with(variables); }), HasSubstr("MASTER_PORT is 70000"));
}

TEST(ProcessLaunch, VariablesThatMakeNoSenseAreRefused) {
  Variables variables = kOpenMpi;
  variables["OMPI_COMM_WORLD_RANK"] = "8";
  EXPECT_THROW(launch_with(variables), Error);
  variables["OMPI_COMM_WORLD_RANK"] = "first";
  EXPECT_THAT(message_of([&] { launch_with(variables); }), HasSubstr("OMPI_COMM_WORLD_RANK is 'first'"));
}

TEST(ProcessLaunch, ProcessesOfAHostShareItsCoresUnlessEachHasItsOwn) {
  const int cores = hardware_cores();
  if (omp_get_thread_limit() < cores) GTEST_SKIP() << "OMP_THREAD_LIMIT";
  ProcessLaunch process;
  process.ranks = 2 * cores;
  process.local_ranks = cores;
  EXPECT_EQ(cores_per_rank(1, process), 1);
  process.bound = true;  // then this process may run on all that it sees
  EXPECT_EQ(cores_per_rank(1, process), cores);
  EXPECT_EQ(cores_per_rank(cores, process), 1);
  EXPECT_EQ(cores_per_rank(2 * cores, process), 1);
  process = {};
  EXPECT_EQ(cores_per_rank(1, process), cores);
  EXPECT_EQ(cores_per_rank(0, process), cores);
}

// Eight ranks, 4 on each of two hosts; and four in one process.
TEST(ThreadsPerRank, AreThoseOfTheHostSharedAmongItsRanks) {
  const Variable said("OMP_NUM_THREADS", nullptr);
  ProcessLaunch process;
  EXPECT_EQ(threads_per_rank(8, 4, process), 2);
  EXPECT_EQ(threads_per_rank(9, 4, process), 2);
  EXPECT_EQ(threads_per_rank(3, 4, process), 1);
  EXPECT_EQ(threads_per_rank(0, 4, process), cores_per_rank(4, process));
  process.ranks = 8;
  process.local_ranks = 4;
  EXPECT_EQ(threads_per_rank(8, 8, process), 2);
  EXPECT_EQ(threads_per_rank(3, 8, process), 1);
  EXPECT_EQ(threads_per_rank(0, 8, process), cores_per_rank(1, process));
}

TEST(ThreadsPerRank, AreThoseOfOpenMpsVariableWhereNoNumberIsGiven) {
  const Variable said("OMP_NUM_THREADS", "6");
  ProcessLaunch process;
  EXPECT_EQ(threads_per_rank(0, 4, process), 1);
  EXPECT_EQ(threads_per_rank(0, 2, process), 3);
  EXPECT_EQ(threads_per_rank(8, 2, process), 4);
  process.ranks = 8;
  process.local_ranks = 4;
  EXPECT_EQ(threads_per_rank(0, 8, process), 6);
}

TEST(FromRank0, OfOneProcessIsAnOrdinaryCall) {
  EXPECT_EQ(from_rank_0([] { return std::string("made"); }), "made");
  EXPECT_THROW(from_rank_0([]() -> std::string { fail("not made"); }), Error);
  EXPECT_FALSE(any_rank_failed());
  end_together(0);
}

}  // namespace
}  // namespace owt::launch_test
