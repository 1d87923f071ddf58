#include "src/comm/on_host.h"

#include <algorithm>

namespace owt {
namespace {

// Runs call(there) with the values on the device, and brings back what it leaves there.
template <class Call>
void through(Communicator& comm, Tensor& values, Device device, const Call& call) {
  Tensor there = on_all_hosts(comm, [&] { return values.to(device); });
  call(there);
  on_all_hosts(comm, [&] {
    if (device != Device::kCpu) values.copy_from(there);
    there = Tensor();
  });
}

}  // namespace

void on_host::sum(Communicator& comm, Tensor& values, Device device) {
  through(comm, values, device, [&](Tensor& there) { comm.all_reduce(there, {}).wait(); });
}

std::vector<double> on_host::sum(Communicator& comm, const std::vector<double>& values, Device device) {
  Tensor sums({std::ssize(values)}, DType::kF64);
  std::copy(values.begin(), values.end(), sums.data<double>());
  sum(comm, sums, device);
  return {sums.data<double>(), sums.data<double>() + sums.elements()};
}

void on_host::broadcast(Communicator& comm, Tensor& values, int root, Device device) {
  through(comm, values, device, [&](Tensor& there) { comm.broadcast(there, there, root, {}).wait(); });
}

Tensor on_host::gather(Communicator& comm, const Tensor& mine, Device device) {
  Tensor all({comm.ranks() * mine.elements()}, mine.dtype());
  Tensor here = mine;
  through(comm, all, device, [&](Tensor& there) {
    through(comm, here, device, [&](Tensor& part) { comm.all_gather(part, there, {}).wait(); });
  });
  return all;
}

}  // namespace owt
