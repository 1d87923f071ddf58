// What the collectives of processes send, counted at MPI. Part of processes_test under mpirun.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <functional>

#include "src/comm/launch.h"
#include "src/comm/links.h"
#include "src/comm/threads.h"

namespace {

std::atomic<int64_t> bytes_on_the_wire{0};

}  // namespace

// MPI's profiling interface: all sends of the program pass through here.
extern "C" int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  bytes_on_the_wire += count;
  return PMPI_Isend(from, count, type, to, tag, comm, request);
}

namespace owt::mpi_bytes_test {
namespace {

Tensor zeros(int64_t elements) {
  Tensor tensor({elements});
  tensor.zero();
  return tensor;
}

// All ranks together send as many bytes as the ranks of a ring.
TEST(MpiCollectives, SendTheBytesOfARing) {
  if (uses_tcp(launch())) GTEST_SKIP() << "not over MPI";
  run_ranks(launch().ranks, 1, [](Communicator& comm) {
    constexpr int64_t kElements = 300'007;
    const int ranks = comm.ranks();
    Tensor one = zeros(kElements), other = zeros(kElements);
    Tensor more = zeros(kElements * ranks), most = zeros(kElements * ranks);
    const auto expect_sent = [&](Collective collective, int64_t bytes, const std::function<Event()>& call) {
      bytes_on_the_wire = 0;
      call().wait();
      Tensor sent({1}, DType::kF64);
      *sent.data<double>() = static_cast<double>(bytes_on_the_wire.load());
      comm.all_reduce(sent, {}).wait();
      const int64_t passes = collective == Collective::kAllReduce ? 2 : 1;
      EXPECT_EQ(*sent.data<double>(), static_cast<double>(passes * (ranks - 1) * bytes)) << name_of(collective);
    };
    const int64_t bytes = one.bytes();
    expect_sent(Collective::kAllReduce, bytes, [&] { return comm.all_reduce(one, {}); });
    expect_sent(Collective::kAllGather, bytes * ranks, [&] { return comm.all_gather(one, most, {}); });
    expect_sent(Collective::kReduceScatter, bytes * ranks, [&] { return comm.reduce_scatter(more, other, {}); });
    expect_sent(Collective::kBroadcast, bytes, [&] { return comm.broadcast(one, other, 1, {}); });
    expect_sent(Collective::kReduce, bytes, [&] { return comm.reduce(one, other, 1, {}); });
    expect_sent(Collective::kAllToAll, bytes * ranks, [&] { return comm.all_to_all(more, most, {}); });
  });
}

}  // namespace
}  // namespace owt::mpi_bytes_test
