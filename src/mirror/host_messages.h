// Messages of tensors on the host, over communicators for any device.
#pragma once

#include <memory>
#include <vector>

#include "src/comm/communicator.h"
#include "src/core/tensor.h"

namespace owt {

class HostMessages {
 public:
  // Collective over `world`, which must outlive this. The messages have routes of their own, and are neither rounded
  // nor counted. device: of the communicator's tensors.
  HostMessages(Communicator& world, Device device) : comm_(world.for_threads().split(0)), device_(device) {}

  Communicator& comm() const { return *comm_; }
  Device device() const { return device_; }
  int rank() const { return comm_->rank(); }
  int ranks() const { return comm_->ranks(); }

  // Collective: opens routes for messages of up to `elements` f32. On a GPU it allocates memory for one in each
  // direction.
  void connect(std::vector<Route> routes, int64_t elements);
  // Sends and receives at the same time, and waits. Undefined tensors: no message in that direction.
  void exchange(const Tensor& sent, int to, Tensor received, int from);

 private:
  std::unique_ptr<Communicator> comm_;
  Device device_;
  Tensor out_, in_;
};

}  // namespace owt
