// NCCL between ranks that are threads of one process or of several. Each has a simulated device. As with NCCL, two
// ranks may not have the same device of the same host; $NCCL_HOSTID makes processes other hosts.
//
// An operation runs on the streams' threads when the streams of all ranks have reached it. As with NCCL, if ranks call
// different operations or abort, the others wait until they abort too; ncclCommGetAsyncError reports it to them. A
// nonblocking communicator accepts a call only after it has reported that the previous one is queued.
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "tests/simulated_gpu/collective_ops.h"
#include "tests/simulated_gpu/collective_processes.h"
#include "tests/simulated_gpu/collective_world.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/runtime.h"

namespace simulated_gpu {
namespace {

// A rank's calls on one stream.
struct OnStream {
  std::shared_ptr<Rank> rank;
  cudaStream_t stream;
  Batch batch{};
};

// What the calling thread has begun with ncclGroupStart.
struct Group {
  int depth = 0;
  std::vector<OnStream> calls;
  std::vector<std::shared_ptr<Ranks>> joining;

  Batch& batch(const std::shared_ptr<Rank>& rank, cudaStream_t stream) {
    for (OnStream& each : calls)
      if (each.rank == rank && each.stream == stream) return each.batch;
    return calls.emplace_back(OnStream{rank, stream}).batch;
  }
};

thread_local Group group;
thread_local std::string last_failure;

ncclResult_t refuse(ncclResult_t result, const std::string& words) {
  last_failure = words;
  return result;
}

constexpr int kQueuing = 3;

ncclResult_t queue(const OnStream& calls) {
  if (!calls.rank->blocking) calls.rank->queuing = kQueuing;
  const cudaError_t queued = enqueue(calls.stream, {"nccl"}, [rank = calls.rank, batch = calls.batch] {
    rank->world->run(rank->rank, batch, rank->aborted);
  });
  return queued == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, cudaGetErrorString(queued));
}

void wait_for_all(Ranks& world) {
  while (world.state() == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

ncclResult_t begin_group() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t end_group() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  Group ended;
  std::swap(ended, group);
  ncclResult_t result = ncclSuccess;
  for (const auto& world : ended.joining) {
    wait_for_all(*world);
    if (const ncclResult_t state = world->state(); state != ncclSuccess) result = state;
  }
  for (const OnStream& calls : ended.calls)
    if (const ncclResult_t queued = queue(calls); queued != ncclSuccess) result = queued;
  return result;
}

}  // namespace
}  // namespace simulated_gpu

struct ncclComm {
  std::shared_ptr<simulated_gpu::Rank> rank;
};

namespace simulated_gpu {
namespace {

struct Communicators {
  std::mutex mutex;
  std::set<const ncclComm*> live;
};

Communicators& communicators() {
  static Communicators& communicators = *new Communicators;
  return communicators;
}

bool is_live(const ncclComm* comm) {
  const std::lock_guard lock(communicators().mutex);
  return communicators().live.count(comm) > 0;
}

ncclResult_t result_of_joining(Ranks& world) {
  const ncclResult_t state = world.state();
  return state == ncclInvalidUsage ? refuse(state, "Duplicate GPU detected: two ranks are on one CUDA device") : state;
}

ncclResult_t join(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, bool blocking) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return refuse(ncclUnhandledCudaError, "there is no device");
  const char* const host = std::getenv("NCCL_HOSTID");
  const std::shared_ptr<Ranks> world =
      join_world(id, rank, ranks, std::string(host ? host : "this host") + ", device " + std::to_string(device));
  if (!world) return refuse(ncclInvalidArgument, "no such unique id, a rank twice, or another number of ranks");
  auto state = std::make_shared<Rank>();
  state->world = world;
  state->rank = rank;
  state->device = device;
  state->blocking = blocking;
  *comm = new ncclComm{state};
  {
    const std::lock_guard lock(communicators().mutex);
    communicators().live.insert(*comm);
  }
  if (group.depth > 0) {
    group.joining.push_back(world);
    return ncclSuccess;
  }
  if (blocking) wait_for_all(*world);
  const ncclResult_t joined = result_of_joining(*world);
  return joined == ncclRemoteError ? ncclSuccess : joined;  // a rank that was lost later fails later calls
}

ncclResult_t release(ncclComm_t comm, bool aborts) {
  std::shared_ptr<Rank> rank;
  {
    const std::lock_guard lock(communicators().mutex);
    if (communicators().live.erase(comm) == 0) return refuse(ncclInvalidArgument, "no such communicator");
    rank = comm->rank;
    delete comm;
  }
  if (aborts) rank->world->leave(&rank->aborted);
  return ncclSuccess;
}

ncclResult_t check(ncclComm_t comm, cudaStream_t stream) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  if (comm->rank->world->state() == ncclInProgress) return refuse(ncclInvalidUsage, "not all ranks are there yet");
  if (comm->rank->queuing > 0) return refuse(ncclInvalidUsage, "the call before is not queued yet");
  int device = -1;
  if (cudaStreamGetDevice(stream, &device) != cudaSuccess || device != comm->rank->device)
    return refuse(ncclInvalidArgument, "the stream is not of the communicator's device");
  return ncclSuccess;
}

bool within_device(const void* data, size_t elements, ncclDataType_t type) {
  return elements == 0 || on_a_device(data, elements * bytes_of(type));
}

ncclResult_t call(const CollectiveCall& call, ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t result = check(comm, stream); result != ncclSuccess) return result;
  const Rank& rank = *comm->rank;
  const int ranks = rank.world->ranks();
  if (bytes_of(call.type) == 0 || !is_simulated(call.op) || call.root < 0 || call.root >= ranks)
    return refuse(ncclInvalidArgument, "the type, the operation or the root");
  if (!within_device(call.send, sent_elements(call, rank.rank, ranks), call.type) ||
      !within_device(call.receive, received_elements(call, rank.rank, ranks), call.type))
    return refuse(ncclInvalidArgument, "a buffer is not within device memory");
  begin_group();
  group.batch(comm->rank, stream).collectives.push_back(call);
  return end_group();
}

ncclResult_t call(const PointToPoint& message, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t result = check(comm, stream); result != ncclSuccess) return result;
  if (bytes_of(type) == 0 || message.peer < 0 || message.peer >= comm->rank->world->ranks())
    return refuse(ncclInvalidArgument, "the type or the peer");
  if (message.bytes > 0 && !on_a_device(message.data, message.bytes))
    return refuse(ncclInvalidArgument, "a buffer is not within device memory");
  begin_group();
  group.batch(comm->rank, stream).messages.push_back(message);
  return end_group();
}

}  // namespace
}  // namespace simulated_gpu

using namespace simulated_gpu;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = make_world();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return join(comm, ranks, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config && config->magic != 0xcafebeef) return refuse(ncclInvalidArgument, "the configuration is not initialized");
  return join(comm, ranks, id, rank, !config || config->blocking != 0);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ranks, const int* devices) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  int before = 0;
  if (cudaGetDevice(&before) != cudaSuccess) return refuse(ncclUnhandledCudaError, "there is no device");
  begin_group();
  ncclResult_t result = ncclSuccess;
  for (int rank = 0; rank < ranks && result == ncclSuccess; ++rank)
    result = cudaSetDevice(devices ? devices[rank] : rank) == cudaSuccess
                 ? join(&comms[rank], ranks, id, rank, true)
                 : refuse(ncclInvalidArgument, "no such device");
  cudaSetDevice(before);
  if (result != ncclSuccess) {
    group = {};
    return result;
  }
  return end_group();
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return is_live(comm) ? ncclSuccess : refuse(ncclInvalidArgument, "no such communicator");
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return release(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return release(comm, true); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  *error = result_of_joining(*comm->rank->world);
  if (comm->rank->queuing > 0 && *error == ncclSuccess) {
    --comm->rank->queuing;
    *error = ncclInProgress;
  }
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error - please report this issue to the NCCL developers";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_failure.c_str(); }

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  *count = comm->rank->world->ranks();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  *rank = comm->rank->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  *device = comm->rank->device;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return call({Collective::kAllReduce, send, receive, count, type, op, 0}, comm, stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return call({Collective::kReduce, send, receive, count, type, op, root}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return call({Collective::kReduceScatter, send, receive, count, type, op, 0}, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call({Collective::kAllGather, send, receive, count, type, ncclSum, 0}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return call({Collective::kBroadcast, send, receive, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}
ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return call({Collective::kAllToAll, send, receive, count, type, ncclSum, 0}, comm, stream);
}
ncclResult_t ncclGather(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return call({Collective::kGather, send, receive, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclScatter(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  return call({Collective::kScatter, send, receive, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(PointToPoint{true, peer, const_cast<void*>(data), count * bytes_of(type)}, type, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call(PointToPoint{false, peer, data, count * bytes_of(type)}, type, comm, stream);
}

ncclResult_t ncclGroupStart() { return begin_group(); }
ncclResult_t ncclGroupEnd() { return end_group(); }
