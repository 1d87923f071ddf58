#include "src/comm/on_host.h"

#include <algorithm>

namespace owt {
namespace {

// Runs call(there) with the values on the device, and copies the result back.
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

std::vector<std::string> on_host::gather(Communicator& comm, const std::string& mine, Device device) {
  const std::vector<int64_t> sizes = gather(comm, std::vector{std::ssize(mine)}, device);
  std::vector<char> padded(mine.begin(), mine.end());
  padded.resize(static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end())) + 1);
  const std::vector<char> all = gather(comm, padded, device);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank)
    texts.emplace_back(all.data() + rank * padded.size(), static_cast<size_t>(sizes[rank]));
  return texts;
}

}  // namespace owt
