#include <algorithm>
#include <iostream>

#include "src/comm/launch.h"
#include "src/comm/threads.h"
#include "src/commands/planner_files.h"
#include "src/commands/run.h"
#include "src/predict/bench.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/units.h"
#include "src/train/alike.h"
#include "tools/commands.h"

namespace owt {
namespace {

constexpr int64_t kGrowth = 4;  // factor between successive sizes of a range

int64_t size_from(const std::string& word) {
  return read_option("sizes", [&] { return parse_bytes(word); });
}

// "4K..64M": sizes that grow by kGrowth, and the last one; "4K,1M": these sizes.
std::vector<int64_t> sizes_from(const std::string& text) {
  std::vector<int64_t> sizes;
  if (const size_t dots = text.find(".."); dots != std::string::npos) {
    const int64_t least = size_from(text.substr(0, dots)), most = size_from(text.substr(dots + 2));
    if (least > most) throw UsageError("--sizes " + text + ": wanted the smaller size first");
    for (int64_t bytes = least; bytes < most; bytes *= kGrowth) sizes.push_back(bytes);
    sizes.push_back(most);
    return sizes;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    sizes.push_back(size_from(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return sizes;
}

std::vector<Collective> collectives_from(const std::vector<std::string>& names) {
  if (names.empty()) return all_collectives();
  std::vector<Collective> found;
  std::string list;
  for (const Collective collective : all_collectives()) list += concat(list.empty() ? "" : ", ", name_of(collective));
  for (const std::string& name : names) {
    const size_t before = found.size();
    for (const Collective collective : all_collectives())
      if (name == name_of(collective)) found.push_back(collective);
    if (found.size() == before) throw UsageError("--collective " + name + ": wanted one of " + list);
  }
  return found;
}

struct Bench {
  std::vector<CollectiveTime> times;
  int hosts = 0;  // 0: rank 0 is in another process
};

// All ranks take the same decisions, because they have the same times.
void run_bench(Communicator& comm, const std::vector<Collective>& collectives, const std::vector<int64_t>& sizes,
               double seconds, Device device, int hosts, Bench& bench) {
  const double each = seconds / static_cast<double>(collectives.size());
  std::vector<CollectiveTime> times;
  for (const Collective collective : collectives) {
    double left = each, per_byte = 0;
    for (const int64_t bytes : sizes) {
      BenchLimits limits;
      limits.seconds = each / static_cast<double>(2 * sizes.size());
      if (per_byte * static_cast<double>(bytes) * (limits.warm_up + 2 + limits.fewest_calls) > left) {
        log_info("{} from {} on is skipped: it would take longer than the remaining {:.3g} s (--seconds)",
                 name_of(collective), bytes_text(bytes), left);
        break;
      }
      const CollectiveTime time = time_collective(comm, collective, bytes, limits, device);
      times.push_back(time);
      per_byte = time.seconds / static_cast<double>(time.bytes);
      left -= time.seconds * (time.calls + limits.warm_up + 2);
    }
  }
  if (comm.rank() == 0) bench = {times, hosts};
}

void print(const Bench& bench, int ranks, Device device) {
  std::cout << format(
      "{} workers on {} host{}, f32 on {}; algbw: bytes / time, busbw: what a link carries in a ring\n\n", ranks,
      bench.hosts, bench.hosts == 1 ? "" : "s", name_of(device));
  std::cout << format("{:<15} {:>12} {:>14} {:>13} {:>13} {:>7}\n", "collective", "bytes", "time us", "algbw MB/s",
                      "busbw MB/s", "calls");
  for (const CollectiveTime& time : bench.times) {
    const double speed = static_cast<double>(time.bytes) / time.seconds / 1e6;
    std::cout << format("{:<15} {:>12} {:>14.1f} {:>13.1f} {:>13.1f} {:>7}\n", name_of(time.collective), time.bytes,
                        time.seconds * 1e6, speed, speed * bus_factor(time.collective, ranks), time.calls);
  }
  const bool overlaps =
      std::any_of(bench.times.begin(), bench.times.end(), [](const CollectiveTime& time) { return time.overlaps; });
  std::cout << (overlaps ? "\nCollectives overlap computation.\n" : "\nCollectives do not overlap computation.\n");
}

int ranks_from(const Options& options) {
  if (options.given("workers")) return static_cast<int>(options.integer("workers", {.low = 2, .high = 4096}));
  return launch().several() ? launch().ranks : 2;
}

}  // namespace

int command_bench_comm(const Arguments& arguments) {
  Options options("owt bench-comm", "Measures how long collectives between workers take, size by size.");
  options.option("workers", "K",
                 "number of workers, as threads of this process (default: 2); under mpirun, srun or owt launch every "
                 "process is a worker");
  options.option("device", "NAME", "cpu", "cpu | cuda | auto: device that holds the tensors");
  options.option(
      "threads", "T", "0",
      "compute threads of this host, shared by its workers; 0: $OMP_NUM_THREADS for each process, else all cores");
  options.option("sizes", "SIZES", "4K..64M",
                 "bytes of the whole tensor: a range in steps of a factor of four, or a list such as 4K,1M");
  options.repeated("collective", "NAME", "measure only this collective, e.g. all_reduce (default: all)");
  options.option("seconds", "S", "30", "approximate total time; sizes that would take longer are skipped");
  options.option("json", "FILE", "write the times for owt plan --links");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const int ranks = ranks_from(options);
  const auto sizes = sizes_from(options.string("sizes"));
  const auto collectives = collectives_from(options.list("collective"));
  const double seconds = options.number("seconds", {.low = 0.01, .high = 1e5});
  std::string named;
  for (const Collective collective : collectives) named += concat(named.empty() ? "" : " ", name_of(collective));
  check_alike({program_fact(), option_fact("workers", std::to_string(ranks)),
               option_fact("sizes", options.string("sizes")), option_fact("collective", named),
               option_fact("seconds", options.string("seconds")), device_fact(options.string("device"))});
  check_launched(ranks);
  const Device device = device_from(options.string("device"));
  check_outputs({options.given("json") ? options.string("json") : ""});
  Bench bench;
  run_ranks(
      ranks, threads_per_rank(shared_threads(options), ranks),
      [&](Communicator& comm) {
        const int hosts = count_hosts(comm, device);
        if (options.given("json") && ranks % hosts != 0)
          fail(ranks, " workers on ", hosts, " hosts; for --json start as many workers on every host");
        run_bench(comm, collectives, sizes, seconds, device, hosts, bench);
      },
      device);
  if (bench.hosts == 0) return 0;
  print(bench, ranks, device);
  if (options.given("json"))
    write_file_atomically(options.string("json"), links_json(bench.times, ranks, bench.hosts, device));
  return 0;
}

}  // namespace owt
