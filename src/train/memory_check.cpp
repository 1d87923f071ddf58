#include "src/train/memory_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/texts.h"
#include "src/parallel/memory_need.h"

namespace owt {
namespace {

// Of ranks that are threads of this process.
HostOfRanks this_host(int ranks) {
  HostOfRanks host{"this host", {}, free_memory()};
  for (int rank = 0; rank < ranks; ++rank) host.ranks.push_back(rank);
  return host;
}

// Of processes, by what each of them says.
std::vector<HostOfRanks> all_hosts() {
  const FreeMemory here = free_memory();
  std::map<std::string, HostOfRanks> hosts;
  int rank = 0;
  for (const std::string& said : from_every_rank(packed({host_name(), std::to_string(here.bytes), here.by}))) {
    const std::vector<std::string> parts = unpacked(said);
    const FreeMemory there{std::stoll(parts.at(1)), parts.at(2)};
    HostOfRanks& host = hosts.try_emplace(parts.at(0), HostOfRanks{"host " + parts.at(0), {}, there}).first->second;
    host.ranks.push_back(rank++);
    if (there.bytes < host.free.bytes) host.free = there;
  }
  std::vector<HostOfRanks> list;
  for (auto& [name, host] : hosts) list.push_back(std::move(host));
  return list;
}

int64_t need_of(const Plan& plan, const HostOfRanks& host, const RankNeed& need) {
  int64_t bytes = 0;
  for (const int rank : host.ranks) bytes += need(plan, rank);
  return bytes;
}

// The most rows of a step that fit, whole groups for each worker; 0: not even the fewest.
int64_t rows_that_fit(Plan plan, const HostOfRanks& host, const RankNeed& need) {
  const int64_t unit = plan.computing_ranks() * std::max<int64_t>(plan.row_group(0), 1);
  int64_t fit = 0, too_many = std::max<int64_t>(plan.request.step_rows / unit, 1);
  while (fit + 1 < too_many) {
    const int64_t middle = (fit + too_many) / 2;
    plan.request.step_rows = middle * unit;
    (need_of(plan, host, need) <= host.free.bytes ? fit : too_many) = middle;
  }
  return fit * unit;
}

std::string in_gb(int64_t bytes) { return format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

void check_memory(const Plan& plan, const HostOfRanks& host, const RankNeed& need) {
  const int64_t bytes = need_of(plan, host, need), rows = plan.request.step_rows;
  if (bytes <= host.free.bytes) return;
  const int64_t fit = rows_that_fit(plan, host, need);
  const int slices = fit > 0 ? slices_that_fit(plan, host.free.bytes / std::ssize(host.ranks)) : 0;
  const auto workers = std::ssize(host.ranks);
  fail(workers == 1 ? "the work" : concat(workers, " workers"), " on ", host.name, workers == 1 ? " takes " : " take ",
       in_gb(bytes), " of memory for steps of ", rows, " images, and ", host.free.by, " ", in_gb(host.free.bytes),
       " free; ",
       fit > 0 ? concat("steps of ", fit, " images would fit (data.batch)") : "use a smaller network or fewer workers",
       slices > 0 ? concat(", or these in slices with data.accumulate = ", slices) : "");
}

void check_memory(const Plan& plan, const RankNeed& need) {
  if (plan.request.on.device == Device::kCpu) check_memory(plan, this_host(1), need);
}

void check_memory_of_whole_networks(const Settings& settings) {
  PlanRequest request = settings.plan_request();
  request.on = settings.compute();
  request.strategy = kPlainDataParallel;
  request.model_ranks = request.servers = 0;
  check_memory(make_plan(settings.model, request), MemoryUse{});
}

void check_memory(const Plan& plan, const MemoryUse& use) {
  if (plan.request.on.device != Device::kCpu) return;
  const RankNeed need = [use](const Plan& of, int rank) {
    return rank_bytes(of, use.mode, rank) + (use.batches - 1) * step_bytes(of, {}, rank);
  };
  if (!launch().several()) return check_memory(plan, this_host(plan.ranks()), need);
  if (plan.ranks() != launch().ranks) return;  // which run_ranks() refuses
  const std::vector<HostOfRanks> hosts = all_hosts();
  from_rank_0([&] {
    for (const HostOfRanks& host : hosts) check_memory(plan, host, need);
    return "";
  });
}

}  // namespace owt
