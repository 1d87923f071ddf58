#include "src/core/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/dispatch.h"
#include "src/core/graph.h"
#include "src/core/profiler.h"
#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::stream_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class StreamTest : public DeviceTest {
 protected:
  Tensor made(float value, int64_t elements = 1) const {
    Tensor tensor({elements}, DType::kF32, device());
    fill(tensor, value);
    return tensor;
  }
  Stream stream_{device()};
};
INSTANTIATE_TEST_SUITE_P(Devices, StreamTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(StreamTest, KnowsItsDeviceAndCopiesShareTheQueue) {
  const Stream copy = stream_;
  EXPECT_EQ(copy.device(), device());
  EXPECT_EQ(copy.native(), stream_.native());
}

TEST_P(StreamTest, AnEventIsDoneWhenTheWorkBeforeItIs) {
  const Tensor one = made(1, 100'000);
  Tensor to = made(0, 100'000);
  to.copy_from(one, stream_);
  const Event event = stream_.record();
  event.wait();
  EXPECT_TRUE(event.done());
  EXPECT_THAT(download(to), Each(1.0f));
  EXPECT_TRUE(Event().done());
  Event().wait();
}

// Many repetitions, with enough work that a missing wait would show.
TEST_P(StreamTest, WorkAfterAWaitSeesTheWorkOfTheOtherStreamBeforeTheEvent) {
  constexpr int64_t kElements = 50'000;
  const Stream other(device());
  Tensor number = made(0, kElements), sent = made(0, kElements), received = made(0, kElements);
  for (int i = 1; i <= 20; ++i) {
    fill(number, static_cast<float>(i));
    for (int copies = 0; copies < 5; ++copies) sent.copy_from(number, other);
    stream_.wait(other.record());
    received.copy_from(sent, stream_);
    other.wait(stream_.record());  // it must not overwrite data that is still to be read
    sent.zero(other);
    stream_.synchronize();
    ASSERT_THAT(download(received), Each(static_cast<float>(i)));
    other.synchronize();
  }
}

TEST_P(StreamTest, TimeBetweenEventsIsNotNegative) {
  Tensor tensor = made(1, 100'000);
  const Event begin = stream_.record();
  tensor.zero(stream_);
  const Event end = stream_.record();
  end.wait();
  EXPECT_GE(end.ms_since(begin), 0);
  EXPECT_EQ(Event().ms_since(begin), 0);
  EXPECT_EQ(end.ms_since(Event()), 0);
}

// Work that only the host can do, like a collective on the CPU.
class HostWork : public Event::Pending {
 public:
  explicit HostWork(bool& waited) : waited_(waited) {}
  void wait() override { waited_ = true; }
  bool done() const override { return waited_; }

 private:
  bool& waited_;
};

TEST_P(StreamTest, WaitsItselfForWorkThatItsQueueCannotWaitFor) {
  bool waited = false;
  stream_.wait(Event(std::make_shared<HostWork>(waited)));
  EXPECT_TRUE(waited);
}

class GraphTest : public StreamTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GraphTest);
INSTANTIATE_TEST_SUITE_P(Gpus, GraphTest, ::testing::ValuesIn(gpu_devices()), device_name);

TEST_P(GraphTest, RunsWhatWasRecordedWheneverItIsLaunchedAndNotBefore) {
  Tensor from = made(1), to = made(0);
  const Graph graph = Graph::record(stream_, [&] { to.copy_from(from, stream_); });
  EXPECT_TRUE(graph.recorded());
  EXPECT_FALSE(Graph().recorded());
  stream_.synchronize();
  EXPECT_THAT(download(to), ElementsAre(0));
  for (const float value : {2.0f, 3.0f}) {
    fill(from, value);
    graph.launch(stream_);
    stream_.synchronize();
    EXPECT_THAT(download(to), ElementsAre(value));
  }
}

TEST_P(GraphTest, HoldsTheWorkOfStreamsThatAreJoined) {
  const Stream other(device());
  Tensor from = made(1), between = made(0), to = made(0);
  const Graph graph = Graph::record(stream_, [&] {
    other.wait(stream_.record());
    between.copy_from(from, other);
    stream_.wait(other.record());
    to.copy_from(between, stream_);
  });
  for (const float value : {5.0f, 6.0f, 7.0f}) {
    fill(from, value);
    graph.launch(stream_);
    stream_.synchronize();
    EXPECT_THAT(download(to), ElementsAre(value));
  }
}

TEST_P(GraphTest, ThrowsWhatRecordingThrowsAndLeavesTheStreamUsable) {
  Tensor to = made(1);
  EXPECT_THROW(Graph::record(stream_,
                             [&] {
                               to.zero(stream_);
                               fail("something else");
                             }),
               Error);
  stream_.synchronize();
  EXPECT_THAT(download(to), ElementsAre(1));  // the recording is void
  to.zero(stream_);
  stream_.synchronize();
  EXPECT_THAT(download(to), ElementsAre(0));
}

TEST(Graph, OfTheCpuIsAnError) {
  EXPECT_THROW(Graph::record(Stream(), [] {}), Error);
}

class MarksTest : public StreamTest {
 protected:
  std::unique_ptr<Marks> marks() const {
    return dispatch(device(), [&](auto tag) { return make_marks(tag, stream_); });
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MarksTest);
INSTANTIATE_TEST_SUITE_P(Gpus, MarksTest, ::testing::ValuesIn(gpu_devices()), device_name);

TEST_P(MarksTest, TimesBetweenThemAddUp) {
  const auto marks = this->marks();
  Tensor tensor = made(1, 100'000);
  for (size_t mark = 0; mark < 3; ++mark) {
    marks->set(mark);
    tensor.zero(stream_);
  }
  marks->set(3);
  marks->wait(3);
  for (size_t mark = 0; mark < 3; ++mark) EXPECT_GE(marks->ms(mark, mark + 1), 0) << mark;
  EXPECT_NEAR(marks->ms(0, 1) + marks->ms(1, 2) + marks->ms(2, 3), marks->ms(0, 3), 0.01);
}

TEST_P(MarksTest, AreSetAgainByEveryLaunchOfAGraph) {
  const auto inside = marks(), outside = marks();
  Tensor tensor = made(1, 100'000);
  const Graph graph = Graph::record(stream_, [&] {
    inside->begin_range("zero");
    inside->set(0);
    tensor.zero(stream_);
    inside->set(1);
    inside->end_range();
  });
  for (int launch = 0; launch < 2; ++launch) {
    outside->set(0);
    graph.launch(stream_);
    outside->set(1);
    outside->wait(1);
    EXPECT_GE(inside->ms(0, 1), 0);
    EXPECT_LE(inside->ms(0, 1), outside->ms(0, 1) + 0.01);
  }
}

}  // namespace
}  // namespace owt::stream_test
