#include "src/comm/threads.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "src/comm/launch.h"
#include "src/comm/nccl.h"
#include "src/comm/processes.h"
#include "src/comm/solo.h"
#include "src/comm/thread_group.h"
#include "src/core/dispatch.h"
#include "src/core/gpus.h"
#include "src/core/threads.h"
#include "src/system/activity.h"
#include "src/system/joined_threads.h"
#include "src/system/log.h"

namespace owt {
namespace {

std::vector<Gpu> gpus_here() {
  const Gpus gpus = find_gpus();
  if (gpus.list.empty()) fail("device 'cuda': ", gpus.why_none, "; use --device cpu");
  return gpus.list;
}

// The devices of the ranks and their means of communication.
struct Places {
  Device device = Device::kCpu;
  std::vector<int> gpus;       // by rank; empty on the CPU
  std::optional<NcclId> nccl;  // if every rank has its own GPU
};

Places places_of(int ranks, Device device) {
  Places places;
  places.device = device;
  if (device == Device::kCpu) return places;
  for (const Gpu& gpu : gpus_of_ranks(ranks)) places.gpus.push_back(gpu.index);
  if (ranks > 1 && places.gpus[0] != places.gpus[1])
    places.nccl = dispatch(device, [](auto tag) { return make_nccl_id(tag); });
  return places;
}

// For the calling host thread, which uses its rank's GPU from then on.
std::unique_ptr<Communicator> join(const Places& places, ThreadGroup& group, int rank) {
  if (!places.gpus.empty()) use_gpu(places.gpus[static_cast<size_t>(rank)]);
  if (group.ranks() == 1) return make_solo_communicator(places.device);
  if (!places.nccl) return make_thread_communicator(group, rank, places.device);
  NcclMember member{rank, group.ranks(), *places.nccl, [&group] { return group.aborted(); }};
  // Not owning: the group outlives all ranks.
  member.here = {std::shared_ptr<ThreadGroup>(&group, [](ThreadGroup*) {}), rank};
  return dispatch(places.device, [&](auto tag) { return make_nccl_communicator(tag, member); });
}

// The failure that is the cause: the first that does not follow from another rank's failure.
class FirstFailure {
 public:
  void add(const std::exception_ptr& failure) {
    const bool consequence = is_aborted(failure);
    const std::lock_guard lock(mutex_);
    if (failure_ && (consequence || !consequence_)) return;
    failure_ = failure;
    consequence_ = consequence;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static bool is_aborted(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const Aborted&) {
      return true;
    } catch (...) {
      return false;
    }
  }

  std::mutex mutex_;
  std::exception_ptr failure_;
  bool consequence_ = false;
};

// The GPU of this process: the only visible one if the launcher assigned it; otherwise each process of a host takes a
// different one, unless they share the first.
Gpu gpu_of_process() {
  const std::vector<Gpu> gpus = gpus_here();
  if (launch().shares_gpu) return gpus.front();
  return gpus[std::min(static_cast<size_t>(launch().local_rank), gpus.size() - 1)];
}

// Throws Error on all ranks if two of them have the same GPU.
void check_own_gpus(const Gpu& gpu) {
  std::map<std::string, int> ranks;
  int rank = 0;
  for (const std::string& name : from_every_rank(concat("GPU ", gpu.pci_bus, " of ", host_name()))) {
    const auto [taken, is_new] = ranks.emplace(name, rank++);
    if (!is_new)
      fail("ranks ", taken->second, " and ", rank - 1, " have the same GPU, ", name,
           "; start as many processes per host as it has GPUs, or use --workers K without mpirun for several ranks on ",
           "one GPU, or owt launch --share-gpu to try NCCL");
  }
}

// Once, in the first run.
void tell_of_shared_gpu(Device device) {
  static std::once_flag told;
  std::call_once(told, [&] {
    if (device == Device::kCpu)
      log_info("--share-gpu changes nothing, because the workers use the CPU");
    else
      log_info("{} workers share GPU {} through NCCL's sockets; times say nothing about several GPUs", launch().ranks,
               gpu_of_process().name);
  });
}

// The communicator of this process, which is one rank. The communicator over the host connects the GPUs.
std::unique_ptr<Communicator> join_others(Device device, bool crowded) {
  auto host = join_processes(crowded);
  if (launch().shares_gpu) tell_of_shared_gpu(device);
  if (device == Device::kCpu) return host;
  const Gpu gpu = gpu_of_process();
  if (!launch().shares_gpu) check_own_gpus(gpu);
  use_gpu(gpu.index);
  NcclMember member{host->rank(), host->ranks(), {}, any_rank_failed};
  const std::string id = from_rank_0([&] {
    const NcclId made = dispatch(device, [](auto tag) { return make_nccl_id(tag); });
    return std::string(made.bytes.data(), made.bytes.size());
  });
  std::memcpy(member.id.bytes.data(), id.data(), member.id.bytes.size());
  return dispatch(device, [&](auto tag) { return make_nccl_communicator(tag, member); });
}

// On its own thread, as in all cases, so that thread-local state ends with the rank.
void run_one_rank(int team, const std::function<void(Communicator&)>& body, Device device) {
  const bool crowded = team > cores_per_rank(1);
  std::exception_ptr failure;
  check_teams(1, team);
  std::thread thread = start_thread("the thread of this rank", "", [&] {
    this_thread_is_the_rank();
    set_team_size(team);
    start_team();
    log_quiet(launch().rank != 0);
    std::unique_ptr<Communicator> communicator;
    try {
      communicator = join_others(device, crowded);
      body(*communicator);
    } catch (...) {
      failure = announce_failure(std::current_exception());
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
}

// OpenMP's setting that waiting threads yield their cores.
bool waits_asleep() {
  const char* const said = std::getenv("OMP_WAIT_POLICY");
  return said && (std::string_view(said) == "PASSIVE" || std::string_view(said) == "passive");
}

}  // namespace

std::vector<Gpu> gpus_of_ranks(int ranks) {
  if (launch().several()) return {gpu_of_process()};
  const std::vector<Gpu> found = gpus_here();
  const auto wanted = static_cast<size_t>(ranks);
  if (found.size() == 1) return std::vector<Gpu>(wanted, found.front());
  if (found.size() < wanted)
    fail(ranks, " workers on ", found.size(), " GPUs; use ", found.size(), " workers for one GPU each, or set ",
         "CUDA_VISIBLE_DEVICES=0 to put all of them on one GPU");
  return {found.begin(), found.begin() + ranks};
}

void check_launched(int ranks) {
  if (launch().several() && ranks != launch().ranks)
    fail(ranks, ranks == 1 ? " worker, but " : " workers, but ", launch().by, " has started ", launch().ranks,
         " processes, and each is one; use --workers ", launch().ranks, " or start ", ranks);
}

void run_ranks(int ranks, int team, const std::function<void(Communicator&)>& body, Device device) {
  OWT_CHECK(ranks >= 1);
  check_launched(ranks);
  if (launch().several()) return run_one_rank(team, body, device);
  const Places places = places_of(ranks, device);
  // Waiting ranks may spin briefly if every rank has its own cores. Otherwise they would take time from working ranks.
  ThreadGroup group(ranks, ranks * team <= hardware_cores() && !waits_asleep());
  FirstFailure failure;
  check_teams(ranks, team);
  const auto run = [&](int rank) {
    set_team_size(team);
    start_team();
    log_quiet(rank != 0);
    // Ends after the group knows of a failure, so that it does not wait for other ranks.
    std::unique_ptr<Communicator> communicator;
    try {
      communicator = join(places, group, rank);
      body(*communicator);
    } catch (...) {
      failure.add(std::current_exception());
      group.abort();
    }
  };
  JoinedThreads threads;
  threads.start(ranks, "worker", "use fewer --workers", run, [&] { group.abort(); });
  threads.join();
  failure.rethrow();
}

}  // namespace owt
