#include "src/commands/launch_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "src/comm/signals.h"
#include "src/comm/watch.h"
#include "src/roster/roster.h"
#include "src/system/check.h"
#include "src/system/log.h"
#include "src/system/sockets.h"

namespace owt {
namespace {

using Clock = std::chrono::steady_clock;

// After a failure the ranks notify each other, and end within six seconds (src/comm/processes.cpp).
constexpr auto kGraceToEnd = std::chrono::seconds(8);   // then SIGTERM
constexpr auto kGraceToKill = std::chrono::seconds(2);  // after that, SIGKILL
constexpr auto kGraceAfterRun =
    std::chrono::seconds(30);                        // with elastic: for processes that are stuck, or out of reach
constexpr auto kHeldByAnother = "OWT_LAUNCH_STDIN";  // the standard input holds signals, and ends with the launcher

using EnvironmentChanges = std::map<std::string, std::string>;

// NCCL refuses two ranks with the same GPU of the same host. So it takes each rank for another host, and connects them
// by sockets.
const EnvironmentChanges kSharedGpu{{"OWT_SHARE_GPU", "1"},
                                    {"NCCL_SOCKET_IFNAME", "lo"},
                                    {"NCCL_P2P_DISABLE", "1"},
                                    {"NCCL_SHM_DISABLE", "1"},
                                    {"NCCL_IB_DISABLE", "1"}};

std::string quoted(const std::string& word) {  // for a shell
  const auto plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("-_./:=,@%+", c); };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::string line_of(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

// The file of a program, as a shell finds it. Throws Error if there is none.
std::string found_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), X_OK) != 0) fail("cannot run '", name, "': ", std::strerror(errno));
    return name;
  }
  const char* const path = std::getenv("PATH");
  std::string rest = path ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const std::string folder = rest.substr(0, rest.find(':'));
    rest.erase(0, std::min(rest.size(), folder.size() + 1));
    const std::string file = folder + "/" + name;
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  fail("cannot run '", name, "': there is no such program on the PATH");
}

struct Child {
  std::string name;  // "rank 2", or "the processes of node2"
  pid_t process = 0;
  int number = -1;  // with elastic: of a worker of this host (Roster::take_wanted())
  int input = -1;   // passes signals to the launcher of another host; -1: a process of this host
};

class Launcher {
 public:
  explicit Launcher(const ProcessesToLaunch& what) : what_(what) {
    for (const int signal : stop_signals()) sigaddset(&signals_, signal);
    sigaddset(&signals_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals_, &mask_before_);
    signal_file_ = signalfd(-1, &signals_, SFD_CLOEXEC);
    std::signal(SIGPIPE, SIG_IGN);
    if (what.elastic) std::signal(SIGUSR2, SIG_IGN);  // meant for workers; pkill may find this process, too
  }
  ~Launcher() {
    end_all(SIGKILL);
    close(signal_file_);
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run() {
    keep_roster();
    start_all();
    const bool held = std::getenv(kHeldByAnother) != nullptr;
    while (!children_.empty() || (roster_ && roster_->connected() > 0 && !run_is_over())) {
      std::vector<pollfd> polled{{signal_file_, POLLIN, 0}, {held && !input_ended_ ? STDIN_FILENO : -1, POLLIN, 0}};
      if (roster_)
        for (const int socket : roster_->sockets()) polled.push_back({socket, POLLIN, 0});
      poll(polled.data(), polled.size(), milliseconds_to_deadline());
      if (polled[0].revents) read_signal();
      if (polled[1].revents) read_input();
      reap();
      if (roster_) look_at_roster();
      if (run_is_over() && deadline_ == Clock::time_point::max()) deadline_ = Clock::now() + kGraceAfterRun;
      if (Clock::now() >= deadline_) end_late();
    }
    if (roster_ && roster_->finished()) return 0;
    if (roster_ && any_came_) return failure_.value_or(code_of_signal_ > 0 ? code_of_signal_ : 1);
    if (what_.elastic) return failure_.value_or(any_ended_well_ ? 0 : code_of_signal_);
    return what_.enable_recovery ? code_of_first_ : failure_.value_or(0);
  }

 private:
  bool run_is_over() const { return roster_ && (roster_->finished() || roster_->end()); }
  bool alone() const { return what_.hosts.size() == 1; }

  // The launcher on the first host keeps it.
  void keep_roster() {
    if (!what_.elastic) return;
    roster_address_ = what_.elastic->join;
    if (!roster_address_.empty()) return;
    const std::string& first = what_.hosts.front().name;
    roster_address_ = concat(first, ':', what_.port);
    if (!what_.only_host.empty() && what_.only_host != first) return;
    const Listener listener = alone() && what_.port == 0 ? listen_on("127.0.0.1", 0) : listen_on("", what_.port);
    if (what_.port == 0) roster_address_ = concat("127.0.0.1:", listener.port);
    int workers = 0;
    for (const HostWorkers& host : what_.hosts) workers += host.workers;
    roster_.emplace(
        listener,
        Roster::Limits{
            .first = workers, .least = what_.elastic->least, .most = what_.elastic->most, .start_s = start_timeout()});
    log_info("{} to {} workers; another one joins with: owt launch --join {} --workers 1 {}", what_.elastic->least,
             what_.elastic->most, roster_address_, line_of(what_.command));
  }

  void look_at_roster() {
    roster_->look();
    any_came_ = any_came_ || roster_->connected() > 0;
    for (const std::string& line : roster_->take_news()) log_info("{}", line);
    for (const int process : roster_->take_dropped()) kill(process, SIGKILL);
    for (const int number : roster_->take_wanted()) start_another(number);
    if (!roster_->end() || said_end_) return;
    said_end_ = true;
    log_warn("the run ends: {}", *roster_->end());
  }

  // A worker that was asked for (ask_roster()).
  void start_another(int number) {
    try {
      if (asked_to_stop_) fail("the run stops");
      start_here({.name = "", .workers = 1}, {.first = number, .first_here = number});
    } catch (const Error& e) {
      log_warn("another worker cannot be started: {}", e.what());
      roster_->forget(number);
    }
  }

  void start_all() {
    const auto is_here = [&](const HostWorkers& host) {
      return what_.only_host.empty() ? is_this_host(host.name) : host.name == what_.only_host;
    };
    Ranks ranks;
    for (const HostWorkers& host : what_.hosts) {
      ranks.all += host.workers;
      if (is_here(host)) ranks.all_here += host.workers;
    }
    if (ranks.all > ranks.all_here && means_another_elsewhere(what_.hosts.front()))
      log_warn("--hosts begins with {}, which means another host elsewhere; write this host's name in the network",
               what_.hosts.front().name);
    for (const HostWorkers& host : what_.hosts) {
      if (is_here(host))
        start_here(host, ranks);
      else if (what_.only_host.empty())
        start_there(host);
      ranks.first += host.workers;
      if (is_here(host)) ranks.first_here += host.workers;
    }
  }

  // first, first_here: numbers of the next rank, among all ranks and among this host's. This host may have several
  // names.
  struct Ranks {
    int all = 0, all_here = 0, first = 0, first_here = 0;
  };

  void start_here(const HostWorkers& host, const Ranks& ranks) {
    const std::string program = found_program(what_.command.front());
    Listener listener;
    EnvironmentChanges changes{{"OWT_LAUNCH", what_.enable_recovery ? "recovery" : "1"}};
    if (what_.share_gpu) changes.insert(kSharedGpu.begin(), kSharedGpu.end());
    int port = what_.port;
    if (what_.elastic) {
      changes["OWT_ROSTER"] = roster_address_;  // the roster gives ranks and address
    } else {
      changes["WORLD_SIZE"] = std::to_string(ranks.all);
      changes["LOCAL_WORLD_SIZE"] = std::to_string(ranks.all_here);
      changes["MASTER_ADDR"] = alone() ? "127.0.0.1" : what_.hosts.front().name;
    }
    if (port == 0 && !what_.elastic) {
      // Rank 0 inherits the socket, so that no other program can take the port.
      listener = listen_on("127.0.0.1", 0);
      port = listener.port;
    }
    if (port != 0) changes["MASTER_PORT"] = std::to_string(port);
    for (int i = 0; i < host.workers; ++i) {
      const int rank = ranks.first + i;
      changes["RANK"] = std::to_string(rank);
      changes["LOCAL_RANK"] = std::to_string(ranks.first_here + i);
      if (what_.share_gpu) changes["NCCL_HOSTID"] = concat("owt-rank-", rank);
      const bool gets_socket = rank == 0 && listener.socket >= 0;
      const int socket = gets_socket ? dup(listener.socket) : -1;  // without close-on-exec
      if (gets_socket) changes["OWT_LAUNCH_SOCKET"] = std::to_string(socket);
      start(concat(what_.elastic ? "worker " : "rank ", rank), program, what_.command, changes, -1);
      children_.back().number = rank;
      changes.erase("OWT_LAUNCH_SOCKET");
      if (gets_socket) close(socket);
    }
    if (listener.socket >= 0) close(listener.socket);
  }

  std::vector<std::string> words_for(const HostWorkers& host) const {
    std::vector<std::string> words{"owt", "launch", "--host", host.name};
    words[0] = std::filesystem::read_symlink("/proc/self/exe").string();
    words.insert(words.end(), what_.same.begin(), what_.same.end());
    words.emplace_back("--");
    words.insert(words.end(), what_.command.begin(), what_.command.end());
    return words;
  }

  void start_there(const HostWorkers& host) {
    std::istringstream ssh(what_.ssh);
    std::vector<std::string> words{std::istream_iterator<std::string>(ssh), std::istream_iterator<std::string>()};
    try {
      if (words.empty()) fail("--ssh is empty, wanted a command");
      const std::string program = found_program(words.front());
      words.push_back(host.name);
      // Shells other than sh set variables in other ways.
      words.push_back(concat("cd ", quoted(std::filesystem::current_path().string()), " && exec env ", kHeldByAnother,
                             "=1 ", line_of(words_for(host))));
      std::array<int, 2> ends{-1, -1};
      if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot make a pipe: ", std::strerror(errno));
      start(concat("the processes of ", host.name), program, words, {}, ends[0]);
      close(ends[0]);
      children_.back().input = ends[1];
    } catch (const Error& e) {
      fail("cannot start processes on ", host.name, ": ", e.what(),
           "; type this line on each host, with its name: ", line_of(words_for(host)));
    }
  }

  // input: the standard input; -1: none.
  void start(const std::string& name, const std::string& program, std::vector<std::string> words,
             const EnvironmentChanges& changes, int input) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t process = fork();
    if (process < 0) fail("cannot start ", name, ": ", std::strerror(errno));
    if (process == 0) {
      setpgid(0, 0);  // Ctrl-C reaches only this launcher, which passes it on
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      std::signal(SIGPIPE, SIG_DFL);
      sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
      dup2(input >= 0 ? input : ::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
      for (const char* const none : {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", kHeldByAnother})
        unsetenv(none);
      for (const auto& [variable, value] : changes) setenv(variable.c_str(), value.c_str(), 1);
      execv(program.c_str(), arguments.data());
      const std::string why = concat("owt: error: cannot run '", program, "': ", std::strerror(errno), '\n');
      if (write(STDERR_FILENO, why.data(), why.size()) < 0) _exit(126);
      _exit(127);
    }
    setpgid(process, process);  // also here, so that it is done before a signal is passed on
    children_.push_back({name, process});
    if (first_ == 0) first_ = process;
  }

  void pass_on(int signal) {
    for (const Child& child : children_) {
      const char byte = static_cast<char>(signal);
      if (child.input < 0)
        kill(-child.process, signal);
      else if (write(child.input, &byte, 1) != 1)
        kill(-child.process, SIGTERM);
    }
  }

  void end_all(int signal) {
    for (Child& child : children_) {
      if (child.input >= 0) close(std::exchange(child.input, -1));  // the launcher there then ends its processes
      kill(-child.process, signal);
    }
  }

  void read_signal() {
    signalfd_siginfo info{};
    if (read(signal_file_, &info, sizeof info) != sizeof info) return;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) return;
    asked_to_stop_ = true;
    pass_on(signal);
  }

  void read_input() {
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    asked_to_stop_ = true;
    if (got == 1) return pass_on(byte);
    input_ended_ = true;
    end_all(SIGTERM);
    deadline_ = Clock::now() + kGraceToEnd;  // for a checkpoint
    terminated_ = true;
  }

  void reap() {
    int status = 0;
    for (pid_t process = waitpid(-1, &status, WNOHANG); process > 0; process = waitpid(-1, &status, WNOHANG)) {
      const auto child = std::ranges::find(children_, process, &Child::process);
      if (child == children_.end()) continue;
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (process == first_) code_of_first_ = code;
      any_ended_well_ = any_ended_well_ || code == 0;
      const bool tolerated = what_.elastic && code >= 128;
      if (tolerated)
        code_of_signal_ = code, say_ended(*child, status, code, "");
      else if (code != 0 && !failure_)
        note_failure(*child, status, code);
      if (child->input >= 0) close(child->input);
      if (roster_) roster_->forget(child->number);
      kill(-process, SIGKILL);  // processes that it has started and that still run
      children_.erase(child);
    }
  }

  void note_failure(const Child& child, int status, int code) {
    failure_ = code;
    if (asked_to_stop_) return;
    const bool last = what_.enable_recovery || what_.elastic || children_.size() == 1;
    say_ended(child, status, code, last ? "" : ", before the others");
    // With elastic the others end by themselves, unless they have given up the one that failed.
    if (!what_.enable_recovery && !what_.elastic) deadline_ = Clock::now() + kGraceToEnd;
  }

  static void say_ended(const Child& child, int status, int code, const char* when) {
    const std::string how =
        WIFSIGNALED(status) ? concat("was ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")")
                            : concat("ended with exit code ", code);
    log_warn("{} (process {}) {}{}", child.name, child.process, how, when);
  }

  void end_late() {
    end_all(terminated_ ? SIGKILL : SIGTERM);
    terminated_ = true;
    deadline_ = Clock::now() + kGraceToKill;
  }

  int milliseconds_to_deadline() const {
    if (deadline_ == Clock::time_point::max() && !roster_) return -1;
    const auto next = roster_ ? std::min(deadline_, Clock::now() + roster_->rest()) : deadline_;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    return static_cast<int>(std::max<int64_t>(left, 0));
  }

  const ProcessesToLaunch& what_;
  sigset_t signals_{}, mask_before_{};
  int signal_file_ = -1;
  std::vector<Child> children_;  // children that run
  pid_t first_ = 0;              // rank 0, or the launcher of its host
  int code_of_first_ = 0;
  std::optional<int> failure_;  // the code of the first that failed
  std::optional<Roster> roster_;
  std::string roster_address_;  // with elastic
  bool any_ended_well_ = false, said_end_ = false, any_came_ = false;
  int code_of_signal_ = 0;  // exit code; with elastic: of the last process that a signal ended
  bool asked_to_stop_ = false, input_ended_ = false, terminated_ = false;
  Clock::time_point deadline_ = Clock::time_point::max();  // for the others to end
};

}  // namespace

Elastic elastic_from(const std::string& text) {
  Elastic elastic;
  int end = 0;
  const bool read = std::sscanf(text.c_str(), "%4d:%4d%n", &elastic.least, &elastic.most, &end) == 2;
  if (!read || end != static_cast<int>(text.size()) || elastic.least < 1 || elastic.most < elastic.least)
    fail("'", text, "', wanted MIN:MAX, the least and the most workers, e.g. 2:4");
  return elastic;
}

int launch_processes(const ProcessesToLaunch& what) { return Launcher(what).run(); }

}  // namespace owt
