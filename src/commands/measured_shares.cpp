#include "src/commands/measured_shares.h"

#include <algorithm>
#include <cmath>

#include "src/comm/launch.h"
#include "src/comm/on_host.h"
#include "src/commands/measure_compute.h"
#include "src/system/check.h"
#include "src/system/log.h"
#include "src/train/memory_check.h"

namespace owt {
namespace {

std::vector<double> measure_shares(const Settings& settings, const Session& session) {
  check_memory_of_whole_networks(settings);
  const int64_t rows = rows_to_measure(settings.plan_request()).back();
  std::vector<double> shares;
  session.run(settings.parallel.workers, [&](Communicator& comm) {
    const double mine = seconds_alone(settings, comm, rows);
    const std::vector<double> all = on_host::gather(comm, std::vector{mine}, settings.compute().device);
    if (comm.rank() == 0 || launch().several()) shares = shares_from(all);
  });
  return shares;
}

}  // namespace

std::vector<double> shares_from(std::span<const double> seconds) {
  constexpr double kSteps = 1e3;  // the number of decimals that are printed
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  OWT_CHECK(*least > 0 && std::isfinite(*most));
  if (*most < *least * kSameSpeed) return std::vector<double>(seconds.size(), 1.0);
  std::vector<double> shares;
  for (const double each : seconds) shares.push_back(std::max(1.0, std::round(kSteps * *least / each)) / kSteps);
  return shares;
}

std::string shares_text(std::span<const double> shares) {
  std::string text;
  for (size_t i = 0; i < shares.size(); ++i) text += format("{}worker {} {:.3f}", i > 0 ? ", " : "", i, shares[i]);
  return text;
}

std::string settle_shares(Settings& settings, const Session& session, const std::vector<double>& kept) {
  ParallelSettings& parallel = settings.parallel;
  if (!parallel.measure_shares) return "";
  const bool known = std::ssize(kept) == parallel.workers;
  if (!known && parallel.workers > 1) log_info("shares: timing every worker");
  if (known)
    parallel.shares = kept;
  else
    parallel.shares = parallel.workers > 1 ? measure_shares(settings, session) : std::vector{1.0};
  parallel.speeds = parallel.shares;
  if (parallel.workers == 1) return "";
  return concat("shares: ", shares_text(parallel.shares), known ? ", as in the checkpoint" : "");
}

}  // namespace owt
