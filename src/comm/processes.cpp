#include "src/comm/processes.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <numeric>
#include <thread>

#include "src/comm/launch.h"
#include "src/comm/linked_processes.h"
#include "src/comm/links.h"
#include "src/comm/on_host.h"
#include "src/comm/watch.h"
#include "src/core/profiler.h"
#include "src/system/activity.h"
#include "src/system/log.h"
#include "src/system/printable.h"
#include "src/system/terminal.h"
#include "src/system/texts.h"

namespace owt {
namespace {

constexpr int kWrongCommandLine = 2;  // the same on all ranks

// Open MPI's mpirun ends all processes when one has ended: it sends SIGCONT, after a pause SIGTERM, and after another
// pause SIGKILL. The pause is one second in Open MPI 4 and a quarter of a second in Open MPI 5 (not configurable); it
// is cut short when a further process ends. So each rank reports at once what it knows, and stays long enough for all
// others to do so.
constexpr auto kGraceToSay = std::chrono::milliseconds(100);  // for the rank's own threads; then the watch reports it
constexpr auto kStay = std::chrono::milliseconds(1000);
constexpr auto kGraceToEnd = std::chrono::milliseconds(5000);  // then the watch ends the process

// Prints "owt: error: ...", once per process, in one write, because other ranks write to the same terminal.
void print_once(const std::string& text) {
  static std::atomic_flag printed;
  if (printed.test_and_set()) return;
  std::string who;
  try {
    if (launch().rank > 0) who = concat("rank ", launch().rank, ": ");
  } catch (const Error&) {  // its text is printed
  }
  const std::string line = concat(tinted(Tint::kRed, "owt: error: "), who, printable(text), '\n');
  drop_status();
  for (size_t written = 0; written < line.size();) {
    const ssize_t more = write(STDERR_FILENO, line.data() + written, line.size() - written);
    if (more <= 0) break;
    written += static_cast<size_t>(more);
  }
}

class Processes {
 public:
  // Throws Error. The object must not be freed then, because threads that hang in MPI use it.
  void start() {
    this_thread_is_the_rank();
    std::signal(SIGPIPE, SIG_IGN);  // the links write to processes that have ended
    const auto rendezvous = launch().rank == 0 ? std::make_unique<Watch::Rendezvous>() : nullptr;
    // The address of rank 0, and this process's identity.
    const std::string mine =
        packed({rendezvous ? rendezvous->address() : "", host_name(), std::to_string(getpid()), process_space()});
    links_ = std::make_unique<LinkedProcesses>(launch(), lost_ranks_, mine, start_timeout());
    if (launch().rank == 0)
      log_info("{} processes, started by {}, communicate over {}", launch().ranks, launch().by, links_->links());
    world_ = links_->world(/*crowded=*/false);
    members_.resize(static_cast<size_t>(launch().ranks));
    std::iota(members_.begin(), members_.end(), 0);
    const std::string address = unpacked(links_->texts().front()).at(0);
    std::vector<Peer> peers;
    for (const std::string& text : links_->texts())
      peers.push_back({unpacked(text).at(1), std::stoi(unpacked(text).at(2)), unpacked(text).at(3)});
    // Where workers change, a loss is no reason to end.
    const auto overdue = launch().changes() ? std::vector<Watch::Overdue>()
                                            : std::vector<Watch::Overdue>{{kGraceToSay, [this] { say_loss(); }},
                                                                          {kGraceToEnd, [this] { leave(); }}};
    watch_ = rendezvous ? std::make_unique<Watch>(*rendezvous, peers, lost_ranks_, overdue)
                        : std::make_unique<Watch>(address, launch().rank, peers, lost_ranks_, overdue);
  }

  LinkedProcesses& links() { return *links_; }
  Communicator& world() { return *world_; }
  LostRanks& lost_ranks() { return lost_ranks_; }
  const LostRanks& lost_ranks() const { return lost_ranks_; }

  std::unique_ptr<Communicator> continue_without(const std::vector<int>& gone) {
    std::vector<int> left;
    for (size_t rank = 0; rank < members_.size(); ++rank)
      if (std::ranges::find(gone, static_cast<int>(rank)) == gone.end()) left.push_back(members_[rank]);
    members_ = left;
    world_ = links_->world_of(members_, ++worlds_);
    return links_->world_of(members_, ++worlds_);
  }
  bool lacks_processes() const { return worlds_ > 0 || lost_ranks_.gone() > 0; }
  bool failed() const { return failed_.load(); }

  // Reports once: the first failure is the cause.
  void say_failed(const std::string& text) {
    failed_.store(true);
    if (!reported_.test_and_set()) watch_->say_failed(text);
  }
  // The other ranks then ignore the end of this process.
  void say_goodbye() {
    if (!reported_.test_and_set()) watch_->say_goodbye();
  }

  // False: the links do not end, for example because a process is gone. This object may not be freed then.
  bool end() {
    meet();  // rank 0 may still be writing; a rank that has said goodbye is no longer watched
    say_goodbye();
    if (lacks_processes() || !links_->finish(watch_timeout())) return false;
    watch_.reset();
    world_.reset();
    links_.reset();
    return true;
  }

 private:
  // Returns when all ranks have called it. Throws if a rank was lost or has failed.
  void meet() {
    const Profiler::Scope the_end(nullptr, "the end", Phase::kTransfer);
    on_host::gather(*world_, std::vector{launch().rank}, Device::kCpu);
  }
  // Runs in the watch's thread. A rank that failed by itself reports its own failure instead.
  void say_loss() const {
    if (!failed()) print_once(lost_ranks_.text(noted_place()));
  }
  void leave() const {
    print_once(lost_ranks_.text(noted_place()));
    _exit(1);
  }

  LostRanks lost_ranks_;
  std::unique_ptr<LinkedProcesses> links_;
  std::unique_ptr<Communicator> world_;
  std::vector<int> members_;  // processes of the current world, by rank
  int worlds_ = 0;            // number of worlds made after the first
  std::unique_ptr<Watch> watch_;
  std::atomic<bool> failed_{false};
  std::atomic_flag reported_;
};

std::atomic<bool> begun{false};           // joining has begun; MPI may have a thread from here on
std::atomic<Processes*> joined{nullptr};  // freed only by end_together(): threads use it until the process ends

Processes& processes() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (joined.load()) return *joined.load();
  begun.store(true);
  auto* const made = new Processes();
  try {
    made->start();
  } catch (const Error& e) {
    if (!launch().changes()) throw;
    begun.store(false);
    throw RankLost(e.what());
  }
  joined.store(made);
  return *made;
}

// The root's bytes, on all ranks.
std::string spread(Communicator& comm, int root, const std::string& bytes) {
  const auto lengths = on_host::gather(comm, std::vector{std::ssize(bytes)}, Device::kCpu);
  Tensor text({lengths[static_cast<size_t>(root)]}, DType::kU8);
  if (comm.rank() == root) std::memcpy(text.raw(), bytes.data(), bytes.size());
  on_host::broadcast(comm, text, root, Device::kCpu);
  return {static_cast<const char*>(text.raw()), static_cast<size_t>(text.bytes())};
}

// Every rank's bytes. All ranks send as many bytes as the longest text has; the results are cut to their lengths.
std::vector<std::string> gather(Communicator& comm, const std::string& mine) {
  const auto lengths = on_host::gather(comm, std::vector{mine.size()}, Device::kCpu);
  std::vector<char> text(*std::max_element(lengths.begin(), lengths.end()));
  std::copy(mine.begin(), mine.end(), text.begin());
  const std::vector<char> texts = on_host::gather(comm, text, Device::kCpu);
  std::vector<std::string> all;
  for (size_t r = 0; r < lengths.size(); ++r) all.emplace_back(texts.data() + r * text.size(), lengths[r]);
  return all;
}

}  // namespace

std::string from_rank(int maker, const std::function<std::string()>& make) {
  if (!launch().several()) return make();
  Communicator& comm = processes().world();
  std::exception_ptr failure;
  std::string result;  // its first character marks success or failure
  if (comm.rank() == maker) {
    try {
      result = '+' + make();
    } catch (const std::exception& e) {
      failure = std::current_exception();
      result = concat("-rank ", maker, " failed: ", e.what());
    }
  }
  result = spread(comm, maker, result);
  if (failure) std::rethrow_exception(failure);
  if (result.front() == '-') throw Aborted(result.substr(1));
  return result.substr(1);
}

std::vector<std::string> from_every_rank(const std::string& mine) {
  if (!launch().several()) return {mine};
  return gather(processes().world(), mine);
}

// The launchers end all processes when one has ended, unless they were started with an option against it. Version 5 of
// Open MPI does not show its processes whether it was.
void tolerate_loss(const std::vector<int>& ranks) {
  const auto is = [](const char* name, const char* value) {
    const char* const found = std::getenv(name);
    return found && std::string(found) == value;
  };
  const std::string& by = launch().by;
  if (by == "torchrun")
    fail("torchrun ends all processes when one is lost; start them with owt launch --enable-recovery");
  const bool lives_on = by == "owt launch" ? is("OWT_LAUNCH", "recovery")
                        : by == "Open MPI"
                            ? is("OMPI_MCA_orte_enable_recovery", "1") || !process_library().starts_with("Open MPI v4")
                            : true;
  if (!lives_on)
    fail(by == "Open MPI" ? "mpirun" : by,
         " ends all processes when one is lost, whatever they tolerate; start it with ", "--enable-recovery");
  std::vector<int> others = ranks;
  std::erase(others, launch().rank);  // a rank learns from the others that they have given it up
  processes().lost_ranks().tolerate(others);
}

std::vector<std::string> tolerated_losses() {
  Processes* const all = joined.load();
  return all ? all->lost_ranks().what_is_gone() : std::vector<std::string>();
}

std::unique_ptr<Communicator> continue_without(const std::vector<int>& gone) {
  return processes().continue_without(gone);
}

ProcessPlace process_place() {
  if (!launch().several()) return {};
  const Communicator& world = processes().world();
  return {world.rank(), world.ranks()};
}

std::unique_ptr<Communicator> join_processes(bool crowded) { return processes().links().world(crowded); }

bool any_rank_failed() {
  const Processes* all = joined.load();
  return all && (all->failed() || all->lost_ranks().any());
}

std::exception_ptr announce_failure(const std::exception_ptr& failure) {
  Processes* const all = joined.load();
  if (!all) return failure;
  try {
    std::rethrow_exception(failure);
  } catch (const RankLost& e) {
    if (!all->lost_ranks().any()) all->say_failed(e.what());  // the others continue without it
  } catch (const LinkError& e) {
    // Where workers change, the others lose this rank when it leaves, and continue.
    if (!launch().changes()) all->say_failed(e.what());
  } catch (const Aborted&) {
    try {
      all->lost_ranks().check(noted_place());
    } catch (...) {
      return std::current_exception();
    }
  } catch (const std::exception& e) {
    all->say_failed(e.what());
  } catch (...) {
    all->say_failed("unknown error");
  }
  return failure;
}

bool is_loss(const std::exception& failure) {
  return dynamic_cast<const RankLost*>(&failure) || dynamic_cast<const LinkError*>(&failure);
}

std::optional<int> lost_rank() {
  Processes* const all = joined.load();
  return all ? all->lost_ranks().lost_rank() : std::nullopt;
}

void lose_rank(int rank, const std::string& why) {
  processes().lost_ranks().set_lost(rank, why);
  throw RankLost(why);
}

void leave_processes(bool in_order) {
  Processes* const all = joined.load();
  if (!all) return;
  const bool may_be_freed = !in_order || all->end();
  joined.store(nullptr);
  begun.store(false);
  note_step(-1);
  if (may_be_freed) delete all;
}

int end_with_error(const std::exception& failure, const std::string& text, int code) {
  const bool by_rank_0 = code == kWrongCommandLine && launch().rank > 0;
  if (!by_rank_0) print_once(text);
  if (!begun.load()) return code;
  std::cout.flush();
  Processes* const all = joined.load();
  if (!all) _exit(code);  // MPI's thread may hang, and exit handlers could wait for it
  if (dynamic_cast<const Aborted*>(&failure))
    all->say_goodbye();  // the others then ignore its end
  else
    all->say_failed(text);
  std::this_thread::sleep_for(kStay);
  _exit(code);
}

void end_together(int code) {
  Processes* const all = joined.load();
  if (!all) return;
  if (!all->end()) {
    if (!all->lacks_processes())
      log_warn("{} has not ended for {} s after all ranks had come to the end; the results are complete, this one goes",
               all->links().links(), watch_timeout());
    std::cout.flush();
    _exit(code);
  }
  joined.store(nullptr);
  begun.store(false);
  delete all;
}

}  // namespace owt
