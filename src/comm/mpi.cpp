#include "src/comm/mpi.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "src/comm/mpi_transfers.h"
#include "src/comm/on_host.h"
#include "src/comm/processes.h"
#include "src/comm/solo.h"

namespace owt {

// State shared by the communicators of a process.
struct MpiProcess {
  MpiProcess(const ProcessLaunch& launch, const LostRanks& lost_ranks) : launch(launch), thread(lost_ranks) {}

  const ProcessLaunch launch;
  MpiThread thread;
  int next_context = 1;  // greater than the context of every group that this process has been in; 0 is the world's
};

namespace {

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MpiProcess& process, MpiGroup group)
      : process_(process), group_(std::make_shared<const MpiGroup>(std::move(group))) {}

  int rank() const override { return group_->rank; }
  int ranks() const override { return group_->ranks(); }
  void give_up() override {
    process_.thread.run("the end of this rank", [] { throw Aborted("this rank has failed"); });
  }

  Event run(const Call& call) override {
    OWT_CHECK_EQ(call.whole().device(), Device::kCpu, "MPI moves tensors on the CPU only");
    if (is_message(call.collective)) return post(call);
    // Jobs of the same queue run before this one anyway; other events may need this thread to finish.
    if (!MpiThread::in_queue(call.after)) call.after.wait();
    const auto work = [call, group = group_, &thread = process_.thread] {
      MpiWire wire(thread, *group);
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
    MpiGroup part;
    for (int r = 0; r < ranks(); ++r) {
      const ColorAndContext& each = colors[static_cast<size_t>(r)];
      if (each.color != color) continue;
      if (r == rank()) part.rank = part.ranks();
      part.members.push_back(group_->members[static_cast<size_t>(r)]);
      part.context = std::max(part.context, each.next_context);
    }
    process_.next_context = part.context + 1;
    if (part.ranks() == 1) return make_solo_communicator(Device::kCpu);
    return std::make_unique<MpiCommunicator>(process_, std::move(part));
  }

 private:
  Event post(const Call& call) {
    call.after.wait();
    const int peer = group_->members[static_cast<size_t>(call.root)];
    const MpiMessage message(call, peer, MpiWire::tag_of(*group_, MpiWire::kMessages));
    return Event(process_.thread.post(described(call.collective, peer), message));
  }

  MpiProcess& process_;
  std::shared_ptr<const MpiGroup> group_;
};

void initialize(const ProcessLaunch& launch) {
  int given = 0, ranks = 0, rank = 0;
  // Open MPI's emulation of remote writes over TCP uses a link in one direction at a time, so two ranks that exchange
  // large messages get half of its rate. Plain messages use both directions. A value that is already set is kept.
  setenv("OMPI_MCA_btl_tcp_flags", "1", /*overwrite=*/0);
  // Otherwise Open MPI 5 ends a process whose TCP peer has died, before the watch can report which one was lost.
  setenv("OMPI_MCA_mpi_ft_enable", "true", 0);
  OWT_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given));
  OWT_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  OWT_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  OWT_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  if (ranks != launch.ranks || rank != launch.rank)
    fail(launch.by, " started this process as rank ", launch.rank, " of ", launch.ranks, ", but MPI sees it as rank ",
         rank, " of ", ranks, "; start it with srun --mpi=pmix, or with the mpirun of the MPI that owt was built with");
}

std::vector<std::string> gather_texts(const std::string& mine, size_t ranks) {
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(ranks), begins(ranks + 1);
  OWT_MPI(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD));
  std::partial_sum(lengths.begin(), lengths.end(), begins.begin() + 1);
  std::string all(static_cast<size_t>(begins.back()), ' ');
  OWT_MPI(MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR,
                         MPI_COMM_WORLD));
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r)
    texts.push_back(all.substr(static_cast<size_t>(begins[r]), static_cast<size_t>(lengths[r])));
  return texts;
}

// Runs work() on MPI's thread. The work may still be running when this throws Error.
void run_within(double seconds, MpiProcess& process, const char* name, std::function<void()> work) {
  const auto started = process.thread.run(name, std::move(work));
  if (!started->wait_for(seconds))
    fail("MPI has not brought the ", process.launch.ranks, " processes together for ", seconds,
         " s; look whether all of them run, and at the network between the hosts");
  started->wait();
}

}  // namespace

std::string process_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  OWT_MPI(MPI_Get_library_version(text, &length));  // allowed before MPI_Init
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

Mpi::Mpi(const ProcessLaunch& launch, const LostRanks& lost_ranks, const std::string& text, double seconds)
    : texts_(std::make_shared<std::vector<std::string>>()) {
  auto* const process = new MpiProcess(launch, lost_ranks);  // not freed after a failure: its thread may be in MPI
  run_within(seconds, *process, "MPI_Init", [process] { initialize(process->launch); });
  run_within(seconds, *process, "the start", [text, process, texts = texts_] {
    *texts = gather_texts(text, static_cast<size_t>(process->launch.ranks));
  });
  process_.reset(process);
}

Mpi::~Mpi() = default;

std::unique_ptr<Communicator> Mpi::world(bool crowded) {
  process_->thread.set_crowded(crowded);
  MpiGroup everyone{std::vector<int>(static_cast<size_t>(process_->launch.ranks)), process_->launch.rank};
  std::iota(everyone.members.begin(), everyone.members.end(), 0);
  return std::make_unique<MpiCommunicator>(*process_, std::move(everyone));
}

// The remaining processes may have made different groups by then, but never as many as this number.
std::unique_ptr<Communicator> Mpi::world_of(std::vector<int> processes, int number) {
  constexpr int kContexts = 1 << 20;
  const auto here = std::ranges::find(processes, process_->launch.rank) - processes.begin();
  MpiGroup left{std::move(processes), static_cast<int>(here), number * kContexts};
  OWT_CHECK(process_->next_context <= left.context && left.rank < left.ranks());
  process_->next_context = left.context + 1;
  return std::make_unique<MpiCommunicator>(*process_, std::move(left));
}

bool Mpi::finish(double seconds) {
  const auto finished = process_->thread.run("MPI_Finalize", [&thread = process_->thread] {
    thread.wait_for_messages();
    OWT_MPI(MPI_Finalize());
  });
  if (!finished->wait_for(seconds)) return false;
  finished->wait();
  return true;
}

}  // namespace owt
