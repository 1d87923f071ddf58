#include "src/comm/solo.h"

namespace owt {
namespace {

class SoloCommunicator : public Communicator {
 public:
  explicit SoloCommunicator(Device device) : device_(device), stream_(device) {}

  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  std::unique_ptr<Communicator> split(int) override { return make_solo_communicator(device_); }

  Event all_reduce(Tensor&, const Event& ready) override { return ready; }
  Event all_gather(const Tensor& mine, Tensor& all, const Event& ready) override { return copy(mine, all, ready); }
  Event reduce_scatter(const Tensor& all, Tensor& mine, const Event& ready) override { return copy(all, mine, ready); }
  Event broadcast(const Tensor& from_root, Tensor& out, int, const Event& ready) override {
    return copy(from_root, out, ready);
  }
  Event reduce(const Tensor& mine, Tensor& sum_on_root, int, const Event& ready) override {
    return copy(mine, sum_on_root, ready);
  }
  Event all_to_all(const Tensor& mine, Tensor& theirs, const Event& ready) override {
    return copy(mine, theirs, ready);
  }

 private:
  Event copy(const Tensor& from, Tensor& to, const Event& ready) {
    if (from.raw() == to.raw()) return ready;
    const Stream& stream = to.device() == Device::kCpu ? host_ : stream_;
    OWT_CHECK_EQ(to.device(), stream.device(), "this communicator was made for another device");
    stream.wait(ready);
    to.copy_from(from, stream);
    return stream.record();
  }

  Device device_;
  Stream host_, stream_;
};

}  // namespace

std::unique_ptr<Communicator> make_solo_communicator(Device device) {
  return std::make_unique<SoloCommunicator>(device);
}

}  // namespace owt
