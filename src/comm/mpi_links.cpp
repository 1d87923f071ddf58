#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "src/comm/links.h"
#include "src/comm/processes.h"

// Every MPI call goes through this macro. It throws LinkError with the call and MPI's text.
#define OWT_MPI(call) check_mpi((call), #call)

namespace owt {
namespace {

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw LinkError(concat("MPI: ", std::string(text, static_cast<size_t>(length)), " in ", call,
                         "; look at the logs of the other ranks and at the network"));
}

class MpiLinks : public ProcessLinks {
 public:
  explicit MpiLinks(const ProcessLaunch& launch) : launch_(launch) {}

  const char* name() const override { return "MPI"; }

  std::vector<std::string> start(const std::string& mine, double) override {
    initialize();
    const int length = static_cast<int>(mine.size());
    std::vector<int> lengths(static_cast<size_t>(launch_.ranks)), begins(lengths.size() + 1);
    OWT_MPI(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD));
    std::partial_sum(lengths.begin(), lengths.end(), begins.begin() + 1);
    std::string all(static_cast<size_t>(begins.back()), ' ');
    OWT_MPI(MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR,
                           MPI_COMM_WORLD));
    std::vector<std::string> texts;
    for (size_t r = 0; r < lengths.size(); ++r)
      texts.push_back(all.substr(static_cast<size_t>(begins[r]), static_cast<size_t>(lengths[r])));
    return texts;
  }

  void send(Requests& requests, const std::byte* from, int64_t bytes, int to, int tag) override {
    MPI_Request request = MPI_REQUEST_NULL;
    OWT_MPI(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD, &request));
    add(requests, request);
  }

  void receive(Requests& requests, std::byte* to, int64_t bytes, int from, int tag) override {
    MPI_Request request = MPI_REQUEST_NULL;
    OWT_MPI(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, from, tag, MPI_COMM_WORLD, &request));
    add(requests, request);
  }

  const std::vector<Ended>& test(Requests& requests) override {
    const size_t count = requests.size();
    handles_.resize(count);
    indices_.resize(count);
    statuses_.resize(count);
    for (size_t i = 0; i < count; ++i) std::memcpy(&handles_[i], &requests[i], sizeof handles_[i]);
    int moved = 0;
    const int result =
        MPI_Testsome(static_cast<int>(count), handles_.data(), &moved, indices_.data(), statuses_.data());
    if (result != MPI_ERR_IN_STATUS) OWT_MPI(result);
    ended_.clear();
    for (int i = 0; moved != MPI_UNDEFINED && i < moved; ++i) {
      const auto index = static_cast<size_t>(indices_[static_cast<size_t>(i)]);
      std::memcpy(&requests[index], &handles_[index], sizeof handles_[index]);
      const MPI_Status& status = statuses_[static_cast<size_t>(i)];
      ended_.push_back({index, bytes_of(status, result == MPI_SUCCESS ? result : status.MPI_ERROR)});
    }
    return ended_;
  }

  void finish() override { OWT_MPI(MPI_Finalize()); }

 private:
  void initialize() const {
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
    if (ranks != launch_.ranks || rank != launch_.rank)
      fail(launch_.by, " started this process as rank ", launch_.rank, " of ", launch_.ranks, ", but MPI sees it as ",
           "rank ", rank, " of ", ranks, "; start it with srun --mpi=pmix, with the mpirun of the MPI that owt was ",
           "built with, or set MASTER_ADDR to do without MPI");
  }

  static void add(Requests& requests, MPI_Request request) {
    static_assert(sizeof request <= sizeof requests.back());
    requests.push_back(0);
    std::memcpy(&requests.back(), &request, sizeof request);
  }

  // MPI does not report the size if too many bytes arrive. The size of a message that was sent has no meaning.
  static int64_t bytes_of(const MPI_Status& status, int error) {
    if (error == MPI_ERR_TRUNCATE) return -1;
    OWT_MPI(error);
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    return std::max(bytes, 0);
  }

  const ProcessLaunch launch_;
  std::vector<MPI_Request> handles_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<Ended> ended_;
};

}  // namespace

std::string process_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  OWT_MPI(MPI_Get_library_version(text, &length));  // allowed before MPI_Init
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

std::unique_ptr<ProcessLinks> make_mpi_links(const ProcessLaunch& launch) { return std::make_unique<MpiLinks>(launch); }

}  // namespace owt
