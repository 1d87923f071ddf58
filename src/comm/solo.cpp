#include "src/comm/solo.h"

namespace owt {
namespace {

class SoloCommunicator : public Communicator {
 public:
  explicit SoloCommunicator(Device device) : device_(device), stream_(device) {}

  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  std::unique_ptr<Communicator> split(int) override { return make_solo_communicator(device_); }

  // With one rank the result of every collective is the rank's input.
  Event run(const Call& call) override {
    Tensor out = call.out;
    if (call.in.raw() == out.raw()) return call.after;
    const Stream& stream = out.device() == Device::kCpu ? host_ : stream_;
    OWT_CHECK_EQ(out.device(), stream.device(), "this communicator was made for another device");
    stream.wait(call.after);
    out.copy_from(call.in, stream);
    return stream.record();
  }

 private:
  Device device_;
  Stream host_, stream_;
};

}  // namespace

std::unique_ptr<Communicator> make_solo_communicator(Device device) {
  return std::make_unique<SoloCommunicator>(device);
}

}  // namespace owt
