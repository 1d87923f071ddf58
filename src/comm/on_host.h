// Collectives of values on the host, for ranks on any device; `device` is the device of the communicator's tensors. All
// ranks call them. GPU memory they allocate is freed before any rank continues.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "src/comm/communicator.h"

namespace owt {

// Runs work(), which allocates or frees GPU resources, and returns when the hosts of all ranks in this process have
// done so. For use between two collectives: freeing may wait for all GPUs of a process, and so for a collective that
// another rank has queued and this one has not.
template <class Work>
auto on_all_hosts(Communicator& comm, const Work& work) {
  if constexpr (std::is_void_v<decltype(work())>) {
    work();
    comm.host_barrier();
  } else {
    auto made = work();
    comm.host_barrier();
    return made;
  }
}

namespace on_host {

// values = the sum over ranks; f32 or f64 on the CPU.
void sum(Communicator& comm, Tensor& values, Device device);
std::vector<double> sum(Communicator& comm, const std::vector<double>& values, Device device);
// values = the root's values; on the CPU.
void broadcast(Communicator& comm, Tensor& values, int root, Device device);
// The `mine` of every rank, by rank, in a new tensor on the CPU.
Tensor gather(Communicator& comm, const Tensor& mine, Device device);
// The text of every rank, by rank; texts may have any length.
std::vector<std::string> gather(Communicator& comm, const std::string& mine, Device device);

// The values of every rank, in rank order; all ranks have the same number of values.
template <class T>
std::vector<T> gather(Communicator& comm, const std::vector<T>& mine, Device device) {
  static_assert(std::is_trivially_copyable_v<T>);
  Tensor bytes({static_cast<int64_t>(sizeof(T) * mine.size())}, DType::kU8);
  std::memcpy(bytes.raw(), mine.data(), sizeof(T) * mine.size());
  const Tensor all = gather(comm, bytes, device);
  std::vector<T> values(mine.size() * static_cast<size_t>(comm.ranks()));
  std::memcpy(values.data(), all.raw(), sizeof(T) * values.size());
  return values;
}

}  // namespace on_host
}  // namespace owt
