#include <algorithm>
#include <filesystem>
#include <iostream>

#include "src/comm/launch.h"
#include "src/commands/launch_processes.h"
#include "tools/commands.h"

namespace owt {
namespace {

constexpr const char* kWithValue[] = {"--workers", "--hosts", "--host", "--port", "--ssh", "--elastic", "--join"};

// The number of words before COMMAND, whose own options follow it.
size_t words_before_command(const Arguments& words) {
  size_t count = 0;
  while (count < words.size() && words[count].starts_with("-") && words[count] != "--")
    count += std::ranges::count(kWithValue, words[count]) > 0 ? 2 : 1;
  return std::min(count, words.size());
}

// --elastic must allow the workers that begin.
void check_elastic(const ProcessesToLaunch& what) {
  if (!what.elastic || !what.elastic->join.empty()) return;
  int workers = 0;
  for (const HostWorkers& host : what.hosts) workers += host.workers;
  if (workers < what.elastic->least || workers > what.elastic->most)
    throw UsageError(concat("--elastic ", what.elastic->least, ":", what.elastic->most, " does not allow the ", workers,
                            workers == 1 ? " worker" : " workers", " that the command starts"));
}

}  // namespace

int command_launch(const Arguments& arguments) {
  Options options(
      "owt launch",
      "Starts the processes of a run, each of which is one worker. They find each other over TCP, without "
      "MPI: each gets the environment variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR "
      "and MASTER_PORT. If one fails, the others end too, and the exit code is that of the first that "
      "failed. Ctrl-C is passed on to all.");
  options.command_line("COMMAND", "program and arguments, e.g. owt train quickstart");
  options.option("workers", "N", "number of processes on this host");
  options.option(
      "hosts", "HOST:N,...",
      "the hosts and the number of processes on each; rank 0 is on the first. Other hosts are reached by ssh, "
      "and must have program and folder at the same path");
  options.option("host", "HOST",
                 "with --hosts: start only the processes of this host, here. Without ssh, type the line on each host");
  options.option("port", "PORT", "29500", "with --hosts: the port where rank 0 listens");
  options.option("ssh", "COMMAND", "ssh -o BatchMode=yes", "with --hosts: the command that reaches another host");
  options.option(
      "elastic", "MIN:MAX",
      "workers may leave and join: when one is lost, the others take its part of the weights from memory and "
      "continue, down to MIN workers; others may join, up to MAX (docs/elastic.md)");
  options.option("join", "HOST:PORT", "with --workers: the processes join the elastic run at this address");
  options.flag("enable-recovery", "when a process is lost, the others continue (owt train --tolerate-loss)");
  options.flag("share-gpu",
               "with --workers: all processes use the first GPU, to try NCCL without a second one; steps take longer "
               "than with owt train --workers, and their times say nothing about several GPUs");
  const size_t own = words_before_command(arguments);
  Arguments words(arguments.begin(), arguments.begin() + static_cast<ptrdiff_t>(own));
  if (own < arguments.size() && arguments[own] != "--") words.emplace_back("--");
  words.insert(words.end(), arguments.begin() + static_cast<ptrdiff_t>(own), arguments.end());
  if (!options.parse(words)) {
    std::cout << options.help();
    return 0;
  }
  if (launch().several())
    fail("owt launch starts processes itself, but ", launch().by, " has started ", launch().ranks,
         " of it; leave one of the two out");
  if (options.given("workers") == options.given("hosts")) throw UsageError("wanted --workers or --hosts");
  for (const char* const name : {"host", "port", "ssh"}) options.only_with(name, {"hosts"});
  options.only_with("share-gpu", {"workers"});
  options.only_with("join", {"workers"});
  if (options.given("elastic") && options.given("join"))
    throw UsageError("--elastic begins a run, and --join joins one; leave one of them out");
  for (const char* const name : {"elastic", "join"})
    if (options.given(name) && options.boolean("enable-recovery"))
      throw UsageError(concat("--enable-recovery is for parameter servers; leave it out with --", name));
  ProcessesToLaunch what;
  if (options.given("elastic"))
    what.elastic = read_option("elastic", [&] { return elastic_from(options.string("elastic")); });
  if (options.given("join")) what.elastic = Elastic{.join = options.string("join")};
  what.command = options.list("COMMAND");
  if (what.command.front() == "owt") what.command.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  what.enable_recovery = options.boolean("enable-recovery");
  what.share_gpu = options.boolean("share-gpu");
  if (options.given("workers")) {
    what.hosts = {{"localhost", static_cast<int>(options.integer("workers", {.low = 1, .high = kMostWorkers}))}};
    if (what.share_gpu && what.hosts.front().workers == 1)
      throw UsageError("--share-gpu: one worker shares the GPU with nobody; use --workers 2, or leave the option out");
    check_elastic(what);
    return launch_processes(what);
  }
  what.hosts = read_option("hosts", [&] { return hosts_from(options.string("hosts")); });
  what.port = static_cast<int>(options.integer("port", {.low = 1, .high = 65535}));
  what.ssh = options.string("ssh");
  if (options.given("host")) {
    what.only_host = options.string("host");
    if (std::ranges::none_of(what.hosts, [&](const HostWorkers& one) { return one.name == what.only_host; }))
      throw UsageError("--host " + what.only_host + ": not among --hosts " + options.string("hosts"));
  }
  what.same = {"--hosts", options.string("hosts"), "--port", std::to_string(what.port)};
  if (what.enable_recovery) what.same.emplace_back("--enable-recovery");
  if (what.elastic) what.same.insert(what.same.end(), {"--elastic", options.string("elastic")});
  check_elastic(what);
  return launch_processes(what);
}

}  // namespace owt
