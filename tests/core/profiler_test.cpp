#include "src/core/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/graph.h"
#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::profiler_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

using Scope = Profiler::Scope;

class ProfilerTest : public ::testing::Test {
 protected:
  ProfilerTest() { profiler_.enable(true); }

  void run(const char* name, Phase phase) { const Scope scope(&profiler_, name, phase); }
  void transfer(const char* name, double ms, int64_t bytes) {
    const Scope scope(&profiler_, name, Phase::kTransfer);
    profiler_.add_transfer(ms, bytes);
  }

  Profiler profiler_;
};

TEST_F(ProfilerTest, KeepsARowPerNameAndPhaseInOrderOfAppearance) {
  for (int step = 0; step < 3; ++step) {
    profiler_.begin_step();
    run("conv1", Phase::kForward);
    run("fc1", Phase::kForward);
    run("conv1", Phase::kBackward);
    profiler_.end_step();
  }
  ASSERT_THAT(profiler_.rows(), SizeIs(3));
  EXPECT_EQ(profiler_.rows()[0].name, "conv1");
  EXPECT_EQ(profiler_.rows()[1].name, "fc1");
  EXPECT_EQ(profiler_.rows()[2].phase, Phase::kBackward);
  for (const Profiler::Row& row : profiler_.rows()) EXPECT_THAT(row.ms, SizeIs(3));
  EXPECT_THAT(profiler_.step_ms(), SizeIs(3));
}

TEST_F(ProfilerTest, AddsUpTheScopesOfAStepAndNotThoseOfAnother) {
  profiler_.begin_step();
  transfer("fc1 input", 0.25, 100);
  transfer("fc1 input", 0.5, 20);
  profiler_.end_step();
  profiler_.begin_step();
  transfer("fc1 input", 1, 3);
  profiler_.end_step();
  ASSERT_THAT(profiler_.rows(), SizeIs(1));
  EXPECT_THAT(profiler_.rows()[0].bytes, ElementsAre(120, 3));
  EXPECT_THAT(profiler_.rows()[0].transfer_ms, ElementsAre(0.75, 1));
}

TEST_F(ProfilerTest, TheTimeOfTheScopesIsPartOfTheStep) {
  profiler_.begin_step();
  for (int i = 0; i < 100; ++i) run("conv1", Phase::kForward), run("conv1", Phase::kBackward);
  profiler_.end_step();
  const double rows = profiler_.rows()[0].ms[0] + profiler_.rows()[1].ms[0];
  EXPECT_GT(rows, 0);
  EXPECT_LE(rows, profiler_.step_ms()[0]);
}

TEST_F(ProfilerTest, ARowThatAppearsLateCountsZeroBefore) {
  profiler_.begin_step();
  profiler_.end_step();
  profiler_.begin_step();
  transfer("labels", 1, 8);
  profiler_.end_step();
  profiler_.begin_step();
  profiler_.end_step();
  ASSERT_THAT(profiler_.rows(), SizeIs(1));
  EXPECT_THAT(profiler_.rows()[0].bytes, ElementsAre(0, 8, 0));
  EXPECT_THAT(profiler_.rows()[0].ms, SizeIs(3));
}

TEST_F(ProfilerTest, ScopesOutsideAStepAreNotRecorded) {
  run("early", Phase::kData);
  profiler_.begin_step();
  profiler_.end_step();
  run("late", Phase::kData);
  EXPECT_THAT(profiler_.rows(), SizeIs(0));
}

TEST_F(ProfilerTest, ATransferOutsideAScopeIsNotShown) {
  profiler_.begin_step();
  run("labels", Phase::kTransfer);
  profiler_.add_transfer(1, 8);
  profiler_.end_step();
  EXPECT_THAT(profiler_.rows()[0].bytes, ElementsAre(0));
}

TEST_F(ProfilerTest, AScopeInsideAnotherInterruptsIt) {
  profiler_.keep_spans(true);
  profiler_.begin_step();
  {
    const Scope outer(&profiler_, "outer", Phase::kBackward);
    {
      const Scope inner(&profiler_, "inner", Phase::kTransfer);
      profiler_.add_transfer(1, 8);
    }
    profiler_.add_transfer(1, 16);
  }
  profiler_.end_step();
  ASSERT_THAT(profiler_.rows(), SizeIs(2));
  EXPECT_THAT(profiler_.rows()[0].bytes, ElementsAre(16));
  EXPECT_THAT(profiler_.rows()[1].bytes, ElementsAre(8));
  ASSERT_THAT(profiler_.spans(), SizeIs(3));  // outer, inner, outer
  EXPECT_EQ(profiler_.spans()[0].row, 0u);
  EXPECT_EQ(profiler_.spans()[1].row, 1u);
  EXPECT_EQ(profiler_.spans()[2].row, 0u);
  for (size_t i = 1; i < 3; ++i) EXPECT_LE(profiler_.spans()[i - 1].end_ms, profiler_.spans()[i].begin_ms);
}

TEST_F(ProfilerTest, DisabledRecordsNothing) {
  profiler_.enable(false);
  profiler_.begin_step();
  run("conv1", Phase::kForward);
  transfer("labels", 1, 8);
  {
    const Scope outer(&profiler_, "outer", Phase::kForward);
    EXPECT_NO_THROW(run("inner", Phase::kForward));
  }
  profiler_.end_step();
  EXPECT_THAT(profiler_.rows(), SizeIs(0));
  EXPECT_THAT(profiler_.step_ms(), SizeIs(0));
}

TEST_F(ProfilerTest, AScopeWithoutAProfilerIsAllowed) { EXPECT_NO_THROW(Scope(nullptr, "conv1", Phase::kForward)); }

TEST_F(ProfilerTest, KeepsSpansOnlyWhenAskedTo) {
  profiler_.begin_step();
  run("conv1", Phase::kForward);
  profiler_.end_step();
  EXPECT_THAT(profiler_.spans(), SizeIs(0));
  profiler_.keep_spans(true);
  profiler_.begin_step();
  run("conv1", Phase::kForward);
  run("fc1", Phase::kForward);
  profiler_.end_step();
  ASSERT_THAT(profiler_.spans(), SizeIs(2));
  EXPECT_EQ(profiler_.spans()[1].row, 1u);
  EXPECT_EQ(profiler_.spans()[1].step, 1);
  EXPECT_LE(profiler_.spans()[0].begin_ms, profiler_.spans()[0].end_ms);
  EXPECT_LE(profiler_.spans()[0].end_ms, profiler_.spans()[1].begin_ms);
}

TEST_F(ProfilerTest, ARowsTimeIsThatOfItsSpans) {
  profiler_.keep_spans(true);
  profiler_.begin_step();
  for (int i = 0; i < 5; ++i) run("conv1", Phase::kForward);
  profiler_.end_step();
  double sum = 0;
  for (const Profiler::Span& span : profiler_.spans()) sum += span.end_ms - span.begin_ms;
  EXPECT_NEAR(profiler_.rows()[0].ms[0], sum, 1e-9);
}

TEST_F(ProfilerTest, ClearForgetsWhatWasRecorded) {
  profiler_.keep_spans(true);
  profiler_.begin_step();
  transfer("labels", 1, 8);
  profiler_.end_step();
  profiler_.clear();
  EXPECT_THAT(profiler_.rows(), SizeIs(0));
  EXPECT_THAT(profiler_.step_ms(), SizeIs(0));
  EXPECT_THAT(profiler_.spans(), SizeIs(0));
  profiler_.begin_step();
  transfer("labels", 1, 4);
  profiler_.end_step();
  EXPECT_THAT(profiler_.rows()[0].bytes, ElementsAre(4));
}

class ProfilerOnGpu : public DeviceTest {
 protected:
  ProfilerOnGpu() {
    profiler_.use_stream(stream_);
    profiler_.enable(true);
  }

  void work(const char* name, Phase phase) {
    const Scope scope(&profiler_, name, phase);
    tensor_.zero(stream_);
  }
  // A step of two scopes, one of which occurs twice.
  void layers() {
    work("conv1", Phase::kForward);
    work("fc1", Phase::kForward);
    work("conv1", Phase::kForward);
  }
  double sum_of_rows(size_t step) const {
    double sum = 0;
    for (const Profiler::Row& row : profiler_.rows()) sum += row.ms.at(step);
    return sum;
  }

  Stream stream_{device()};
  Tensor tensor_{{100'000}, DType::kF32, device()};
  Profiler profiler_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProfilerOnGpu);
INSTANTIATE_TEST_SUITE_P(Gpus, ProfilerOnGpu, ::testing::ValuesIn(gpu_devices()), device_name);

TEST_P(ProfilerOnGpu, TheTimeOfTheScopesIsPartOfTheStep) {
  for (int step = 0; step < 3; ++step) {
    profiler_.begin_step();
    layers();
    profiler_.end_step();
  }
  ASSERT_THAT(profiler_.rows(), SizeIs(2));
  ASSERT_THAT(profiler_.step_ms(), SizeIs(3));
  for (size_t step = 0; step < 3; ++step) {
    EXPECT_GT(sum_of_rows(step), 0);
    EXPECT_LE(sum_of_rows(step), profiler_.step_ms()[step] + 0.01);
  }
}

TEST_P(ProfilerOnGpu, ScopesOfARecordingCountInEveryStepThatReplaysIt) {
  profiler_.keep_spans(true);
  std::shared_ptr<const Profiler::Recording> scopes;
  Graph graph;
  for (int step = 0; step < 3; ++step) {
    profiler_.begin_step();
    work("data wait", Phase::kData);
    if (step == 0) {
      profiler_.begin_recording();
      graph = Graph::record(stream_, [&] { layers(); });
      scopes = profiler_.end_recording();
    }
    graph.launch(stream_);
    profiler_.replayed(scopes);
    profiler_.end_step();
  }
  ASSERT_THAT(profiler_.rows(), SizeIs(3));
  EXPECT_EQ(profiler_.rows()[1].name, "conv1");
  for (size_t step = 0; step < 3; ++step) {
    for (const Profiler::Row& row : profiler_.rows()) EXPECT_GT(row.ms.at(step), 0) << row.name << ", step " << step;
    EXPECT_LE(sum_of_rows(step), profiler_.step_ms()[step] + 0.01);
  }
  EXPECT_THAT(profiler_.spans(), SizeIs(3 * 4));
}

TEST_P(ProfilerOnGpu, AStepThatReplaysNothingHasNoTimeInRecordedRows) {
  profiler_.begin_step();
  profiler_.begin_recording();
  const Graph graph = Graph::record(stream_, [&] { layers(); });
  const auto scopes = profiler_.end_recording();
  graph.launch(stream_);
  profiler_.replayed(scopes);
  profiler_.end_step();
  profiler_.begin_step();
  profiler_.end_step();
  for (const Profiler::Row& row : profiler_.rows()) EXPECT_EQ(row.ms.at(1), 0) << row.name;
}

TEST_P(ProfilerOnGpu, ATransferInFlightIsTimedBetweenItsEvents) {
  profiler_.begin_step();
  {
    const Scope scope(&profiler_, "gradients", Phase::kTransfer);
    const Stream other(device());
    const Event begin = other.record();
    tensor_.zero(other);
    profiler_.add_transfer(begin, other.record(), 100);
    stream_.wait(other.record());
  }
  profiler_.end_step();
  EXPECT_THAT(profiler_.rows()[0].bytes, ElementsAre(100));
  EXPECT_GT(profiler_.rows()[0].transfer_ms[0], 0);
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoMiddleValues) {
  EXPECT_EQ(median({5, 1, 9}), 5);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({}), 0);
}

}  // namespace
}  // namespace owt::profiler_test
