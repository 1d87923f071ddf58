#include "src/comm/linked_processes.h"

#include <algorithm>
#include <numeric>

#include "src/comm/on_host.h"
#include "src/comm/processes.h"
#include "src/comm/solo.h"
#include "src/comm/transfers.h"

namespace owt {

// State shared by the communicators of a process.
struct ProcessState {
  ProcessState(const ProcessLaunch& launch, std::unique_ptr<ProcessLinks> links, const LostRanks& lost_ranks)
      : launch(launch), thread(std::move(links), lost_ranks) {}

  const ProcessLaunch launch;
  CommThread thread;
  int next_context = 1;  // greater than the context of every group that this process has been in; 0 is the world's
};

namespace {

class ProcessCommunicator : public Communicator {
 public:
  ProcessCommunicator(ProcessState& process, ProcessGroup group)
      : process_(process), group_(std::make_shared<const ProcessGroup>(std::move(group))) {}

  int rank() const override { return group_->rank; }
  int ranks() const override { return group_->ranks(); }
  void give_up() override {
    process_.thread.run("the end of this rank", [] { throw Aborted("this rank has failed"); });
  }

  Event run(const Call& call) override {
    OWT_CHECK_EQ(call.whole().device(), Device::kCpu, "processes move tensors on the CPU only");
    if (is_message(call.collective)) return post(call);
    // Jobs of the same queue run before this one anyway; other events may need this thread to finish.
    if (!CommThread::in_queue(call.after)) call.after.wait();
    const auto work = [call, group = group_, &thread = process_.thread] {
      GroupWire wire(thread, *group);
      transfer(wire, call);
    };
    return Event(process_.thread.run(described(call.collective), work, {group_, &group_->members}));
  }

  std::unique_ptr<Communicator> split(int color) override {
    struct ColorAndContext {
      int color, next_context;
    };
    const std::vector<ColorAndContext> colors =
        on_host::gather<ColorAndContext>(*this, {{color, process_.next_context}}, Device::kCpu);
    ProcessGroup part;
    for (int r = 0; r < ranks(); ++r) {
      const ColorAndContext& each = colors[static_cast<size_t>(r)];
      if (each.color != color) continue;
      if (r == rank()) part.rank = part.ranks();
      part.members.push_back(group_->members[static_cast<size_t>(r)]);
      part.context = std::max(part.context, each.next_context);
    }
    process_.next_context = part.context + 1;
    if (part.ranks() == 1) return make_solo_communicator(Device::kCpu);
    return std::make_unique<ProcessCommunicator>(process_, std::move(part));
  }

 private:
  Event post(const Call& call) {
    call.after.wait();
    const int peer = group_->members[static_cast<size_t>(call.root)];
    const LinkMessage message(call, peer, GroupWire::tag_of(*group_, GroupWire::kMessages));
    return Event(process_.thread.post(described(call.collective, peer), message));
  }

  ProcessState& process_;
  std::shared_ptr<const ProcessGroup> group_;
};

// The links may need this much longer than the time limit to say what is missing. MPI never says it.
constexpr double kToSay = 1;  // seconds

}  // namespace

bool uses_tcp(const ProcessLaunch& launch) {
  return !launch.address.empty() && (!launch.by_mpi || process_library().empty());
}

// After a failure the state is not freed while its thread may be in MPI.
LinkedProcesses::LinkedProcesses(const ProcessLaunch& launch, const LostRanks& lost_ranks, const std::string& text,
                                 double seconds)
    : texts_(std::make_shared<std::vector<std::string>>()) {
  auto links = uses_tcp(launch) ? make_tcp_links(launch) : make_mpi_links(launch);
  auto* const process = new ProcessState(launch, std::move(links), lost_ranks);
  ProcessLinks& all = process->thread.links();
  const auto started =
      process->thread.run("the start", [text, seconds, &all, texts = texts_] { *texts = all.start(text, seconds); });
  const bool ended = started->wait_for(seconds + kToSay);
  if (ended && uses_tcp(launch)) process_.reset(process);
  if (!ended)
    fail(all.name(), " has not brought the ", launch.ranks, " processes together for ", seconds,
         " s; look whether all of them run, and at the network between the hosts");
  started->wait();
  if (!process_) process_.reset(process);
}

LinkedProcesses::~LinkedProcesses() = default;

const char* LinkedProcesses::links() const { return process_->thread.links().name(); }

std::unique_ptr<Communicator> LinkedProcesses::world(bool crowded) {
  process_->thread.set_crowded(crowded);
  ProcessGroup everyone{std::vector<int>(static_cast<size_t>(process_->launch.ranks)), process_->launch.rank};
  std::iota(everyone.members.begin(), everyone.members.end(), 0);
  return std::make_unique<ProcessCommunicator>(*process_, std::move(everyone));
}

// The remaining processes may have made different groups by then, but never as many as this number.
std::unique_ptr<Communicator> LinkedProcesses::world_of(std::vector<int> processes, int number) {
  constexpr int kContexts = 1 << 20;
  const auto here = std::ranges::find(processes, process_->launch.rank) - processes.begin();
  ProcessGroup left{std::move(processes), static_cast<int>(here), number * kContexts};
  OWT_CHECK(process_->next_context <= left.context && left.rank < left.ranks());
  process_->next_context = left.context + 1;
  return std::make_unique<ProcessCommunicator>(*process_, std::move(left));
}

bool LinkedProcesses::finish(double seconds) {
  const auto finished = process_->thread.run("the end", [&thread = process_->thread] {
    thread.wait_for_messages();
    thread.links().finish();
  });
  if (!finished->wait_for(seconds)) return false;
  finished->wait();
  return true;
}

}  // namespace owt
