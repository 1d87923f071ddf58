#include "src/comm/mpi.h"

#include <cstdlib>
#include <numeric>

#include "src/comm/mpi_transfers.h"
#include "src/comm/on_host.h"
#include "src/comm/processes.h"
#include "src/comm/solo.h"

namespace owt {
namespace {

// What the communicators of a process share.
struct MpiProcess {
  explicit MpiProcess(const LostRanks& lost_ranks) : thread(lost_ranks) {}

  MpiThread thread;
  int next_context = 1;  // greater than that of every group this process has been in; 0 is the world's
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MpiProcess& process, MpiGroup group)
      : process_(process), group_(std::make_shared<const MpiGroup>(std::move(group))) {}

  int rank() const override { return group_->rank; }
  int ranks() const override { return group_->ranks(); }

  Event run(const Call& call) override {
    OWT_CHECK_EQ(call.whole().device(), Device::kCpu, "MPI moves tensors on the CPU only");
    if (is_message(call.collective)) return post(call);
    // Jobs of the same queue come before anyway; whatever else may need this thread to come to its end.
    if (!MpiThread::in_queue(call.after)) call.after.wait();
    const auto work = [call, group = group_, &thread = process_.thread] {
      MpiWire wire(thread, *group);
      transfer(wire, call);
    };
    return Event(process_.thread.run(described(call.collective), work));
  }

  std::unique_ptr<Communicator> split(int color) override {
    struct Card {
      int color, next_context;
    };
    const std::vector<Card> cards = on_host::gather<Card>(*this, {{color, process_.next_context}}, Device::kCpu);
    MpiGroup part;
    for (int r = 0; r < ranks(); ++r) {
      const Card& card = cards[static_cast<size_t>(r)];
      if (card.color != color) continue;
      if (r == rank()) part.rank = part.ranks();
      part.members.push_back(group_->members[static_cast<size_t>(r)]);
      part.context = std::max(part.context, card.next_context);
    }
    process_.next_context = part.context + 1;
    if (part.ranks() == 1) return make_solo_communicator(Device::kCpu);
    return std::make_unique<MpiCommunicator>(process_, std::move(part));
  }

 private:
  Event post(const Call& call) {
    call.after.wait();
    const int peer = group_->members[static_cast<size_t>(call.root)];
    return Event(
        process_.thread.post(described(call.collective, peer), peer,
                             [call, group = group_](MessageParts& parts) { begin_message(*group, call, parts); }));
  }

  MpiProcess& process_;
  std::shared_ptr<const MpiGroup> group_;
};

class MpiLink : public Mpi {
 public:
  MpiLink(const Launch& launch, const LostRanks& lost_ranks) : launch_(launch), process_(lost_ranks) {}

  void start(double seconds) {
    const auto started = process_.thread.run("MPI_Init", [this] { initialize(); });
    if (!started->wait_for(seconds)) fail_late(seconds);
    started->wait();
  }

  std::vector<std::string> exchange(const std::string& mine, double seconds) override {
    const auto all = std::make_shared<std::vector<std::string>>();  // which may come when nobody waits any more
    const auto exchanged = process_.thread.run("the start", [this, mine, all] { *all = gather_texts(mine); });
    if (!exchanged->wait_for(seconds)) fail_late(seconds);
    exchanged->wait();
    return *all;
  }

  std::unique_ptr<Communicator> world() override { return std::make_unique<MpiCommunicator>(process_, everyone()); }

  void set_crowded(bool crowded) override { process_.thread.set_crowded(crowded); }
  std::string place() const override { return process_.thread.place(); }

  void meet() override {
    const auto met = process_.thread.run("the end", [group = everyone(), &thread = process_.thread] {
      Tensor here({1});
      here.zero();
      MpiWire wire(thread, group);
      transfer(wire, {Collective::kAllReduce, here, here});
    });
    met->wait();
  }

  bool finish(double seconds) override {
    const auto finished = process_.thread.run("MPI_Finalize", [&thread = process_.thread] {
      thread.wait_for_messages();
      OWT_MPI(MPI_Finalize());
    });
    if (!finished->wait_for(seconds)) return false;
    finished->wait();
    return true;
  }

 private:
  MpiGroup everyone() const {
    MpiGroup group;
    group.members.resize(static_cast<size_t>(launch_.ranks));
    std::iota(group.members.begin(), group.members.end(), 0);
    group.rank = launch_.rank;
    return group;
  }

  void initialize() const {
    int given = 0, ranks = 0, rank = 0;
    // Open MPI's emulation of remote writes over TCP uses a link in one direction at a time: two ranks that exchange
    // large messages get half of its rate. Plain messages use both. Whoever sets it otherwise is heard.
    setenv("OMPI_MCA_btl_tcp_flags", "1", /*overwrite=*/0);
    // Else Open MPI 5 ends a process whose TCP peer has died, before the watch can say which one was lost.
    setenv("OMPI_MCA_mpi_ft_enable", "true", 0);
    OWT_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given));
    OWT_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OWT_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    OWT_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (ranks != launch_.ranks || rank != launch_.rank)
      fail(launch_.by, " started this process as rank ", launch_.rank, " of ", launch_.ranks,
           ", but MPI sees it as rank ", rank, " of ", ranks,
           "; start it with srun --mpi=pmix, or with the mpirun of the MPI that owt was built with");
  }

  std::vector<std::string> gather_texts(const std::string& mine) const {
    const auto ranks = static_cast<size_t>(launch_.ranks);
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

  [[noreturn]] void fail_late(double seconds) const {
    fail("MPI has not brought the ", launch_.ranks, " processes together for ", seconds,
         " s; look whether all of them run, and at the network between the hosts");
  }

  Launch launch_;
  MpiProcess process_;
};

}  // namespace

std::string process_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  OWT_MPI(MPI_Get_library_version(text, &length));  // allowed before MPI_Init
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

std::unique_ptr<Mpi> start_mpi(const Launch& launch, const LostRanks& lost_ranks, double seconds) {
  auto* const link = new MpiLink(launch, lost_ranks);  // not freed after a failure: its thread may still be in MPI_Init
  link->start(seconds);
  return std::unique_ptr<Mpi>(link);
}

}  // namespace owt
