// Collectives of values on the host, wherever the ranks compute: `device` is where the communicator's tensors are. All
// ranks call them. What they make on a GPU is freed before any rank goes on.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "src/comm/communicator.h"

namespace owt {

// Runs work(), which makes or frees what a GPU needs, and returns when the hosts of all ranks have done so that share
// this process. Between two collectives: freeing may wait for all GPUs of a process, and so for a collective that
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

// values = their sum over ranks; f32 or f64 on the CPU.
void sum(Communicator& comm, Tensor& values, Device device);
std::vector<double> sum(Communicator& comm, const std::vector<double>& values, Device device);
// values = the root's; on the CPU.
void broadcast(Communicator& comm, Tensor& values, int root, Device device);
// Every rank's `mine`, by rank, in a new tensor on the CPU.
Tensor gather(Communicator& comm, const Tensor& mine, Device device);
// Every rank's text, by rank; of any length.
std::vector<std::string> gather(Communicator& comm, const std::string& mine, Device device);

// Every rank's values, one rank's after the other's; as many of each.
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
