#include "src/train/memory_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/comm/threads.h"
#include "src/plan/plan_rows.h"
#include "src/predict/memory_need.h"
#include "src/system/check.h"
#include "src/system/log.h"
#include "src/system/texts.h"

namespace owt {
namespace {

// The memory of the host or the GPUs of `ranks` ranks of this process.
std::vector<MemoryOfRanks> memory_here(Device device, int ranks) {
  if (device == Device::kCpu) {
    MemoryOfRanks host{"this host", {}, free_memory()};
    for (int rank = 0; rank < ranks; ++rank) host.ranks.push_back(rank);
    return {host};
  }
  std::map<int, MemoryOfRanks> gpus;
  const std::vector<Gpu> of_ranks = gpus_of_ranks(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const Gpu& gpu = of_ranks[static_cast<size_t>(rank)];
    MemoryOfRanks& memory = gpus[gpu.index];
    if (memory.ranks.empty())
      memory = {format("GPU {} ({})", gpu.index, gpu.name), {}, {free_memory_of_gpu(gpu.index), "this GPU has"}};
    memory.ranks.push_back(rank);
  }
  std::vector<MemoryOfRanks> list;
  for (auto& [index, memory] : gpus) list.push_back(std::move(memory));
  return list;
}

// The memory of all processes of the launch, from what each reports.
std::vector<MemoryOfRanks> memory_of_processes(Device device) {
  const MemoryOfRanks here = memory_here(device, 1).front();
  const std::string host = "host " + host_name();
  const bool on_gpu = device != Device::kCpu;
  const std::string name = on_gpu ? concat(host, ", ", here.name) : host;
  const std::string which = on_gpu ? concat(name, " ", gpus_of_ranks(1).front().pci_bus) : name;
  std::map<std::string, MemoryOfRanks> all;
  int rank = 0;
  for (const std::string& said :
       from_every_rank(packed({which, name, std::to_string(here.free.bytes), here.free.by}))) {
    const std::vector<std::string> parts = unpacked(said);
    const FreeMemory there{std::stoll(parts.at(2)), parts.at(3)};
    MemoryOfRanks& memory = all.try_emplace(parts.at(0), MemoryOfRanks{parts.at(1), {}, there}).first->second;
    memory.ranks.push_back(rank++);
    if (there.bytes < memory.free.bytes) memory.free = there;
  }
  std::vector<MemoryOfRanks> list;
  for (auto& [key, memory] : all) list.push_back(std::move(memory));
  return list;
}

// The number of image batches besides the one that step_bytes() counts. On a GPU step_bytes() counts the batches that a
// loader keeps there; without a loader, short-lived images do not count.
int64_t batches_beside(const Plan& plan, int batches) {
  if (plan.request.on.device == Device::kCpu) return batches - 1;
  return batches > 1 ? 0 : -1;
}

int64_t need_of(const Plan& plan, const MemoryOfRanks& memory, const RankNeed& need) {
  int64_t bytes = 0;
  for (const int rank : memory.ranks) bytes += need(plan, rank);
  return bytes;
}

// The most rows of a step that fit, in whole groups for each worker; 0: not even one group.
int64_t rows_that_fit(Plan plan, const MemoryOfRanks& memory, const RankNeed& need) {
  const int64_t unit = plan.computing_ranks() * std::max<int64_t>(row_group(plan, 0), 1);
  int64_t fit = 0, too_many = std::max<int64_t>(plan.request.step_rows / unit, 1);
  while (fit + 1 < too_many) {
    const int64_t middle = (fit + too_many) / 2;
    plan.request.step_rows = middle * unit;
    (need_of(plan, memory, need) <= memory.free.bytes ? fit : too_many) = middle;
  }
  return fit * unit;
}

std::string in_gb(int64_t bytes) { return format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

void check_memory(const Plan& plan, const MemoryOfRanks& memory, const RankNeed& need) {
  const int64_t bytes = need_of(plan, memory, need), rows = plan.request.step_rows;
  if (bytes <= memory.free.bytes) return;
  const int64_t fit = rows_that_fit(plan, memory, need);
  const int slices = fit > 0 ? slices_that_fit(plan, memory.free.bytes / std::ssize(memory.ranks)) : 0;
  const auto workers = std::ssize(memory.ranks);
  fail(workers == 1 ? "the work" : concat(workers, " workers"), " on ", memory.name,
       workers == 1 ? " takes " : " take ", in_gb(bytes), " of memory for steps of ", rows, " images, and ",
       memory.free.by, " ", in_gb(memory.free.bytes), " free; ",
       fit > 0 ? concat("steps of ", fit, " images would fit (data.batch)")
               : concat("use a smaller network", workers > 1 ? " or fewer workers" : ""),
       slices > 0 ? concat(", or these with gradient accumulation: data.accumulate = ", slices) : "");
}

void check_memory(const Plan& plan, const RankNeed& need) {
  check_memory(plan, memory_here(plan.request.on.device, 1).front(), need);
}

void check_memory_of_whole_networks(const Settings& settings) {
  PlanRequest request = settings.plan_request();
  request.on = settings.compute();
  request.strategy = kPlainDataParallel;
  request.model_ranks = 0;
  request.loss.sample = 1;
  request.mirror_every = 0;
  check_memory(make_plan(settings.model, request), MemoryUse{});
}

void check_memory(const Plan& plan, const MemoryUse& use) {
  const Device device = plan.request.on.device;
  const RankNeed need = [use](const Plan& of, int rank) {
    return rank_bytes(of, use.mode, rank) + batches_beside(of, use.batches) * step_bytes(of, {}, rank) +
           (use.beside ? use.beside(of, rank) : 0);
  };
  const auto check_all = [&](const std::vector<MemoryOfRanks>& all) {
    for (const MemoryOfRanks& memory : all) check_memory(plan, memory, need);
  };
  if (!launch().several()) return check_all(memory_here(device, plan.ranks()));
  if (plan.ranks() != launch().ranks) return;  // run_ranks() will refuse this
  const std::vector<MemoryOfRanks> all = memory_of_processes(device);
  from_rank_0([&] {
    check_all(all);
    return "";
  });
}

}  // namespace owt
