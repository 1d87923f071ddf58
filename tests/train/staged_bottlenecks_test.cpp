// Steps with simulated times: measured by profilers and loaders, gathered from all ranks and summarised in a sentence,
// as in a run. The test controls the clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <thread>

#include "data/loader.h"
#include "data/memory_dataset.h"
#include "src/comm/threads.h"
#include "src/train/bottleneck.h"

namespace owt::staged_bottlenecks_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = Profiler::Clock;

thread_local Clock::time_point staged_now;  // for this rank
Clock::time_point read_staged_clock() { return staged_now; }
void pass(double ms) {
  staged_now += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

// A step of a small network under data parallelism: milliseconds.
struct Staged {
  double data = 0.4, conv1 = 4.1, conv2 = 6, host = 0.5;
  double gradients = 2;  // the transfer itself
  double slowest = 0;    // least time of the slowest rank; the others wait for it in the transfer
  LoaderTimes loader = {};

  double busy() const { return data + conv1 + conv2 + host; }
};

constexpr int64_t kBytes = 1'000'000;

void run_step(Profiler& profiler, const Staged& step, double scale) {
  const auto scope = [&](const char* name, Phase phase, double ms) {
    const Profiler::Scope open(&profiler, name, phase);
    pass(ms * scale);
  };
  profiler.begin_step();
  scope("data wait", Phase::kData, step.data);
  for (const auto& [phase, part] : {std::pair(Phase::kForward, 0.25), std::pair(Phase::kBackward, 0.75)}) {
    scope("conv1", phase, part * step.conv1);
    scope("conv2", phase, part * step.conv2);
    pass(scale * step.host / 2);
  }
  {
    const Profiler::Scope open(&profiler, "gradients", Phase::kTransfer);
    const double waits = std::max(0.0, step.slowest - step.busy()) + step.gradients;
    pass(scale * waits);
    profiler.add_transfer(scale * waits, kBytes);
  }
  profiler.end_step();
}

// The sentence that every rank gets about 20 steps. A few steps are ten times as long, as on a busy machine. All times
// differ, so that the middle half is known: five odd and five even steps.
std::string sentence_of(const std::vector<LoaderTimes>& loaders,
                        const std::function<void(Profiler& profiler, size_t rank, size_t step, double scale)>& run) {
  std::vector<std::string> texts(loaders.size());
  run_ranks(static_cast<int>(loaders.size()), 1, [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    Profiler profiler(&read_staged_clock);
    profiler.enable(true);
    for (size_t i = 0; i < 20; ++i) run(profiler, rank, i, (i % 7 == 0 ? 10 : 1) + 1e-6 * static_cast<double>(i));
    const StepTimes times = gather_times(comm, profiler, 1, Device::kCpu, loaders[rank]);
    texts[rank] = find_bottleneck(times).text();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts.front());
  return texts.front();
}

// by_turns: in each step the next rank is the first of these.
std::string sentence(std::vector<Staged> ranks, bool by_turns = false) {
  std::vector<LoaderTimes> loaders;
  for (Staged& each : ranks) {
    for (const Staged& other : ranks) each.slowest = std::max(each.slowest, other.busy());
    loaders.push_back(each.loader);
  }
  return sentence_of(loaders, [&](Profiler& profiler, size_t rank, size_t step, double scale) {
    run_step(profiler, ranks[by_turns ? (rank + step) % ranks.size() : rank], scale);
  });
}

double cpu_s_of_thread() {
  timespec cpu{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  return static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
}

void compute() {
  const double end = cpu_s_of_thread() + 1e-4;
  while (cpu_s_of_thread() < end) continue;
}

// For at least three times as long as that keeps the thread busy.
void wait() {
  const double cpu_s = cpu_s_of_thread();
  const Clock::time_point begin = Clock::now();
  std::chrono::duration<double> waited{};
  for (int nap = 500; waited.count() <= 4 * (cpu_s_of_thread() - cpu_s); nap *= 2) {
    std::this_thread::sleep_for(std::chrono::microseconds(nap));
    waited = Clock::now() - begin;
  }
}

// One-byte images; reading one calls work().
class StagedImages : public MemoryDataset {
 public:
  explicit StagedImages(void (*work)())
      : MemoryDataset({1, 1, 1}, 1, std::vector<uint8_t>(40), std::vector<uint8_t>(40)), work_(work) {}
  void read(int64_t index, const View& view, uint8_t* pixels) const override {
    work_();
    MemoryDataset::read(index, view, pixels);
  }

 private:
  void (*work_)();
};

LoaderTimes of_loader(void (*work)()) {
  Loader loader({.dataset = std::make_shared<StagedImages>(work),
                 .augmenter = std::make_shared<Augmenter>(AugmentSettings{}, Shape{1, 1, 1}),
                 .batch = 8});
  for (int i = 0; i < 20; ++i) loader.next(Stream());
  return loader.times();
}

TEST(StagedBottlenecks, ASlowDisk) {
  Staged step{.data = 29.4};
  step.loader = of_loader(&wait);
  EXPECT_EQ(sentence({step, step}),
            "step 42.0 ms: 70 % waiting for data, which waits for the disk; then conv2 backward 11 %.");
}

TEST(StagedBottlenecks, OneLoaderThread) {
  Staged step{.data = 29.4};
  step.loader = of_loader(&compute);
  EXPECT_EQ(sentence({step, step, step}),
            "step 42.0 ms: 70 % waiting for data, which too few threads make (data.loader_threads); then conv2 "
            "backward 11 %.");
}

// In the mean all of them wait as long for the others as for data.
TEST(StagedBottlenecks, RanksWhoseDataIsLateByTurns) {
  Staged late{.data = 29.4}, step;
  late.loader = step.loader = of_loader(&compute);
  EXPECT_EQ(sentence({late, step}, true),
            "step 42.0 ms: 70 % waiting for data, which too few threads make (data.loader_threads); then conv2 "
            "backward 11 %.");
}

// The rank whose data arrives first computes longest, as if loaders used its core. It still waits for the other's data,
// in the first transfer.
TEST(StagedBottlenecks, ARankThatWaitsForTheDataOfAnother) {
  const auto run = [](Profiler& profiler, size_t rank, size_t step, double scale) {
    const bool late = (rank + step) % 2 == 0;
    const auto scope = [&](const std::string& name, Phase phase, double ms) {
      const Profiler::Scope open(&profiler, name, phase);
      pass(ms * scale);
    };
    profiler.begin_step();
    scope("data wait", Phase::kData, late ? 50 : 10);
    scope("labels", Phase::kTransfer, late ? 1 : 41);
    for (int i = 0; i < 6; ++i) scope("fc" + std::to_string(i), Phase::kForward, late ? 1 : 10);
    scope("gradients", Phase::kTransfer, late ? 60 : 6);
    profiler.end_step();
  };
  EXPECT_EQ(sentence_of({{0.05, 0}, {0.05, 0}}, run),
            "step 117.0 ms: 43 % waiting for data, which too few threads make (data.loader_threads); then fc0 forward "
            "9 %.");
}

TEST(StagedBottlenecks, ALimitedLink) {
  const Staged step{.gradients = 89};
  EXPECT_EQ(sentence({step, step}),
            "step 100.0 ms: 89 % waiting for `gradients` (1 MB at 89.89 Mbit/s); then conv2 backward 4 %; data 0 %.");
}

TEST(StagedBottlenecks, OneSlowRank) {
  const Staged step, slow{.data = 0.4, .conv1 = 24.1, .conv2 = 36, .host = 0.5};
  EXPECT_THAT(
      sentence({step, slow, step}),
      StartsWith("step 63.0 ms: 79 % waiting for rank 1 (which is busy for 61.0 ms, the others for 11.0 ms); "));
  Staged waits{.data = 50.4};
  waits.loader = of_loader(&wait);
  EXPECT_THAT(sentence({step, step, waits}), StartsWith("step 63.0 ms: 79 % waiting for rank 2 (which waits 50.4 ms "
                                                        "for data, which waits for the disk; the others 0.4 ms); "));
}

TEST(StagedBottlenecks, ALargeConvolution) {
  const Staged step{.conv2 = 93};
  EXPECT_EQ(sentence({step, step}), "step 100.0 ms: 70 % conv2 backward; then conv2 forward 23 %; data 0 %.");
}

TEST(StagedBottlenecks, AHostBoundStep) {
  const Staged step{.conv1 = 1, .conv2 = 1, .host = 15.6, .gradients = 2};
  EXPECT_THAT(sentence({step, step}), StartsWith("step 20.0 ms: 78 % the host, between layers and transfers (all 6 "
                                                 "passes and transfers take 4.4 ms); then `gradients` 10 %"));
}

}  // namespace
}  // namespace owt::staged_bottlenecks_test
