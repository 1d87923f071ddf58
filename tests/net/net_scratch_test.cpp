// The scratch memory of a net's ops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "src/core/memory.h"
#include "src/net/net.h"
#include "tests/support/harness.h"

namespace owt::net_scratch_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// y = 2 x. In every pass its op overwrites all the scratch memory that it has asked for.
class Scribbling : public Layer {
 public:
  Scribbling(const std::string& name, int64_t forward, int64_t backward)
      : Layer(name, "scribbling"), forward_(forward), backward_(backward) {}
  Shape out_shape(const Shape& in) const override { return in; }
  std::vector<Param*> params() override { return {&param_}; }
  std::unique_ptr<Op> bind(const Shape&, const Compute&) override { return std::make_unique<ScribblingOp>(*this); }

  const void* scratch = nullptr;  // last address that the op wrote

 private:
  class ScribblingOp : public Op {
   public:
    explicit ScribblingOp(Scribbling& layer) : layer_(layer) {}
    int64_t scratch_bytes(Phase phase) const override {
      return phase == Phase::kForward ? layer_.forward_ : layer_.backward_;
    }
    void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
      scribble(pass, Phase::kForward);
      twice(x, y);
    }
    void backward_data(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
      scribble(pass, Phase::kBackward);
      if (dx) twice(dy, *dx);
    }
    void backward_weights(const Pass& pass, const Tensor&, const Tensor&) override { scribble(pass, Phase::kBackward); }

   private:
    void scribble(const Pass& pass, Phase phase) {
      ASSERT_GE(pass.scratch.bytes(), scratch_bytes(phase));
      std::fill_n(pass.scratch_at(0), scratch_bytes(phase), std::byte{0xff});
      layer_.scratch = pass.scratch_at(0);
    }
    static void twice(const Tensor& from, Tensor& to) {
      for (int64_t i = 0; i < from.elements(); ++i) to.data()[i] = 2 * from.data()[i];
    }
    Scribbling& layer_;
  };

  int64_t forward_, backward_;
  Param param_;
};

struct ScratchNeed {
  int64_t forward, backward;
};
Net scribblings(const std::vector<ScratchNeed>& needs) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (const ScratchNeed& need : needs)
    layers.push_back(std::make_unique<Scribbling>(concat("layer", layers.size()), need.forward, need.backward));
  return Net(std::move(layers), {2});
}
const void* scratch_of(const Net& net) { return dynamic_cast<const Scribbling&>(net.layer(0)).scratch; }

class ScratchTest : public ::testing::Test {
 protected:
  ScratchTest() { pass_.stream = &stream_; }

  static constexpr int64_t kTensor = 3 * 2 * 4;  // bytes of an activation
  Stream stream_;
  Pass pass_;
  Tensor x_ = upload({1, 2, 3, 4, 5, 6}, {3, 2}, Device::kCpu), dx_ = Tensor({3, 2});
};

TEST_F(ScratchTest, OpsThatOverwriteItLeaveActivationsAndGradientsAlone) {
  Net net = scribblings({{100, 70}, {10, 200}, {0, 0}});
  for (const auto scratch : {Tape::Scratch::kOwn, Tape::Scratch::kOfPass}) {
    Tape tape(net, 3, Device::kCpu, nullptr, scratch);
    if (scratch == Tape::Scratch::kOfPass) pass_.scratch = Tensor({tape.scratch_bytes(Phase::kBackward)}, DType::kU8);
    EXPECT_THAT(download(tape.forward(pass_, x_)), ElementsAre(8, 16, 24, 32, 40, 48));
    tape.backward(pass_, x_, x_, &dx_);
    EXPECT_THAT(download(dx_), ElementsAre(8, 16, 24, 32, 40, 48));
  }
}

TEST_F(ScratchTest, IsCountedOnceForTheOpThatNeedsMost) {
  Net net = scribblings({{100, 70}, {10, 200}, {0, 0}});
  const Tape larger(net, 300, Device::kCpu, nullptr);
  EXPECT_EQ(Tape(net, 3, Device::kCpu, nullptr).bytes(), 3 * kTensor + 2 * kTensor + 200);
  EXPECT_EQ(Tape(net, 3, Device::kCpu, nullptr, Tape::Scratch::kOwnForForward).bytes(), 2 * kTensor + 100);
  const Tape of_pass(net, 3, Device::kCpu, nullptr, Tape::Scratch::kOfPass);
  EXPECT_EQ(of_pass.bytes(), 3 * kTensor);
  EXPECT_EQ(of_pass.scratch_bytes(Phase::kForward), aligned_bytes(100) + 2 * aligned_bytes(kTensor));
  EXPECT_EQ(of_pass.scratch_bytes(Phase::kBackward), aligned_bytes(200) + 2 * aligned_bytes(kTensor));
}

TEST_F(ScratchTest, AnEvaluationThatForgetsHasItsActivationsWhereGradientsWouldBe) {
  Net net = scribblings({{100, 70}, {10, 200}, {0, 0}});
  pass_.mode = Mode::kEval;
  for (const auto scratch : {Tape::Scratch::kOwn, Tape::Scratch::kOwnForForward, Tape::Scratch::kOfPass}) {
    Tape tape(net, 3, Device::kCpu, nullptr, scratch);
    if (scratch == Tape::Scratch::kOfPass) pass_.scratch = Tensor({tape.scratch_bytes(Phase::kForward)}, DType::kU8);
    tape.forget_in_evaluation();
    // Gradients of the tape's own have no room for the output.
    const int64_t kept = scratch == Tape::Scratch::kOwnForForward ? 0 : scratch == Tape::Scratch::kOwn ? 2 : 3;
    for (int64_t layer = 0; layer < kept; ++layer) {
      Tensor activation = tape.activation(layer);
      fill(activation, -1);
    }
    EXPECT_THAT(download(tape.forward(pass_, x_)), ElementsAre(8, 16, 24, 32, 40, 48));
    EXPECT_THAT(download(tape.output()), ElementsAre(8, 16, 24, 32, 40, 48));
    for (int64_t layer = 0; layer < kept; ++layer) EXPECT_THAT(download(tape.activation(layer)), Each(-1));
  }
}

TEST_F(ScratchTest, IsSharedByTheTapesOfAThreadAndKeptByThoseThatCameBeforeALargerOne) {
  Net first = scribblings({{100, 100}}), smaller = scribblings({{50, 60}}), larger = scribblings({{100, 101}});
  Tape of_first(first, 3, Device::kCpu, nullptr), of_smaller(smaller, 3, Device::kCpu, nullptr);
  Tape of_larger(larger, 3, Device::kCpu, nullptr);
  for (Tape* tape : {&of_first, &of_smaller, &of_larger}) tape->forward(pass_, x_);
  EXPECT_EQ(scratch_of(smaller), scratch_of(first));
  EXPECT_NE(scratch_of(larger), scratch_of(first));
  Net other = scribblings({{100, 100}});
  std::thread([&] { Tape(other, 3, Device::kCpu, nullptr).forward(pass_, x_); }).join();
  EXPECT_NE(scratch_of(other), scratch_of(first));
  EXPECT_NE(scratch_of(other), scratch_of(larger));
}

TEST_F(ScratchTest, EndsWithTheLastTape) {
  const int64_t before = host_memory().in_use;
  {
    Net net = scribblings({{1 << 20, 1 << 21}});
    const Tape tape(net, 3, Device::kCpu, nullptr), another(net, 3, Device::kCpu, nullptr);
    EXPECT_EQ(host_memory().in_use - before, tape.bytes() + another.bytes() - (1 << 21));
  }
  EXPECT_EQ(host_memory().in_use, before);
}

}  // namespace
}  // namespace owt::net_scratch_test
