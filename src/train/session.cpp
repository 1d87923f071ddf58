#include "src/train/session.h"

#include <filesystem>

#include "layers/conv_cpu/conv_algorithm.h"
#include "src/comm/launch.h"
#include "src/comm/on_host.h"
#include "src/comm/threads.h"
#include "src/core/cpu_bf16.h"
#include "src/core/gpus.h"
#include "src/core/threads.h"
#include "src/files/checkpoint_files.h"
#include "src/system/log.h"

namespace owt {

Session::Session(const Settings& settings, int threads, const std::string& weights)
    : on_(settings.compute()), threads_(threads) {
  const int team = threads_per_rank(threads, 1);
  if (threads == 0 && team < hardware_cores() && threads_of_environment() > 0)
    log_info("OMP_NUM_THREADS: using {} of {} cores; --threads changes that", team, hardware_cores());
  warn_of_crowd(1);
  check_teams(1, team);
  set_team_size(team);
  ConvChoices::process().set_mode(settings.run.conv_algorithm_of_run());
  const std::string beside = std::filesystem::path(weights).parent_path().string();
  if (is_checkpoint(beside)) ConvChoices::process().preload_for_all_teams(load_checkpoint_state(beside).conv_choices);
}

// In a run of several processes each is one rank. All ranks of its host are counted, unless the launcher has bound it
// to its own cores.
void Session::warn_of_crowd(int ranks) const {
  const ProcessLaunch& process = launch();
  if (warned_ || process.rank != 0) return;
  const int workers = !process.several() ? ranks : process.bound ? 1 : process.local_ranks;
  const int all = workers * threads_per_rank(threads_, ranks, process);
  warned_ = all > hardware_cores();
  if (all == 1) return;
  const std::string threads = concat(all, " compute threads");
  owt::warn_of_crowd(all, workers == 1 ? threads : concat(threads, " of ", workers, " workers"));
}

void Session::run(int ranks, const std::function<void(Communicator&)>& body) const {
  if (on_.device == Device::kCpu) warn_of_crowd(ranks);
  const auto checked = [&](Communicator& comm) {
    if (on_.device == Device::kCuda) check_gpu(on_.precision);
    body(comm);
  };
  run_ranks(ranks, threads_per_rank(threads_, ranks), checked, on_.device);
}

void Session::wait_for_all(Communicator& comm) const { on_host::sum(comm, std::vector<double>{0}, on_.device); }

void log_device(const Settings& settings) {
  const Compute on = settings.compute();
  if (on.device != Device::kCpu) return;
  if (settings.run.device == "auto" && nvidia_driver_here()) log_info("on the CPU: {}", find_gpus().why_none);
  if (on.precision == Precision::kBf16 && !cpu_has_bf16())
    log_warn("this processor has no instructions for bf16, which is slower than fp32 on it");
}

}  // namespace owt
