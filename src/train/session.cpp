#include "src/train/session.h"

#include <filesystem>

#include "layers/conv_algorithm.h"
#include "src/comm/launch.h"
#include "src/comm/threads.h"
#include "src/core/cpu_bf16.h"
#include "src/core/gpus.h"
#include "src/core/log.h"
#include "src/core/threads.h"
#include "src/train/files/checkpoint_files.h"

namespace owt {

Session::Session(const Settings& settings, int threads, const std::string& weights)
    : device_(settings.compute().device), threads_(threads) {
  set_team_size(threads_per_rank(threads, 1));
  ConvChoices::process().set_mode(settings.run.conv_algorithm);
  const std::filesystem::path beside = std::filesystem::path(weights).parent_path();
  if (std::filesystem::is_regular_file(beside / "state.json"))
    ConvChoices::process().preload_for_all_teams(load_checkpoint_state(beside.string()).conv_choices);
}

void Session::run(int ranks, const std::function<void(Communicator&)>& body) const {
  run_ranks(ranks, threads_per_rank(threads_, ranks), body, device_);
}

void log_device(const Settings& settings) {
  const Compute on = settings.compute();
  if (on.device != Device::kCpu) return;
  if (settings.run.device == "auto" && nvidia_driver_here()) log_info("on the CPU: {}", find_gpus().why_none);
  if (on.precision == Precision::kBf16 && !cpu_has_bf16())
    log_warn("this processor has no instructions for bf16, which is slower than fp32 on it");
}

}  // namespace owt
