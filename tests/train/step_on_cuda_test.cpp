// Features of steps on a GPU beyond the CPU: other precisions, recorded steps, several in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "src/core/cpu_bf16.h"
#include "src/plan/beside_trial.h"
#include "src/train/job.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"

namespace owt::step_on_cuda_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StepOnGpu : public DeviceTest {
 protected:
  SmallRun run(int64_t steps, Overrides changes = {}) const {
    changes.emplace_back("run.device", name_of(device()));
    return run_small(kSmallRecipe, steps, changes);
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StepOnGpu);
INSTANTIATE_TEST_SUITE_P(Gpus, StepOnGpu, ::testing::ValuesIn(gpu_devices()), device_name);

void expect_close(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], tolerance * wanted[i]) << "step " << i + 1;
}

TEST_P(StepOnGpu, LearnsWhatTheCpuLearns) {
  const SmallRun cpu = run_small(kSmallRecipe, 8), gpu = run(8);
  expect_close(gpu.losses, cpu.losses, 1e-4);
  ASSERT_EQ(gpu.weights.size(), cpu.weights.size());
  for (const auto& [name, weights] : cpu.weights)
    for (size_t i = 0; i < weights.size(); ++i)
      ASSERT_NEAR(gpu.weights.at(name)[i], weights[i], 1e-4) << name << " at " << i;
}

TEST_P(StepOnGpu, LearnsAlmostTheSameInLowerPrecision) {
  const SmallRun exact = run_small(kSmallRecipe, 11);
  ASSERT_LT(exact.losses.back(), exact.losses.front());
  expect_close(run(11, {{"run.precision", "tf32"}}).losses, exact.losses, 0.01);
}

class StepInBf16 : public StepOnGpu {};
INSTANTIATE_TEST_SUITE_P(Devices, StepInBf16, testing::ValuesIn(devices()), device_name);

TEST_P(StepInBf16, LearnsAlmostWhatF32Learns) {
  const SmallRun exact = run_small(kSmallRecipe, 6);
  const Overrides bf16{{"run.precision", "bf16"}};
  expect_close(run(6, bf16).losses, exact.losses, 0.015);
  Overrides on_three_ranks = bf16;
  on_three_ranks.emplace_back("parallel.workers", "3");
  for (const char* strategy : {"dp", "dp-zero", "dp-star", "owt-a", "owt-b", "owt-c", "mp"}) {
    SCOPED_TRACE(strategy);
    Overrides changes = on_three_ranks;
    changes.emplace_back("parallel.strategy", strategy);
    const SmallRun many = run(6, changes);
    expect_close(many.losses, exact.losses, 0.015);
    for (const int64_t bytes : many.bytes) EXPECT_GT(bytes, 0);
  }
}

// On a GPU all weights have a copy. On the CPU only weights that ops read do: dense layers, if the CPU has the
// instructions.
TEST_P(StepInBf16, TheCopiesOfTheWeightsStayEqualToThem) {
  const Overrides shares{{"parallel.workers", "3"}, {"parallel.strategy", "dp-zero"}, {"parallel.bucket_mb", "0.001"}};
  const Overrides star{{"parallel.workers", "3"}, {"parallel.strategy", "dp-star"}, {"parallel.bucket_mb", "0.001"}};
  for (Overrides changes :
       {Overrides{{"run.cuda_graph", "false"}}, Overrides{{"run.cuda_graph", "true"}}, shares, star}) {
    changes.emplace_back("run.precision", "bf16");
    const SmallRun bf16 = run(4, changes);
    const size_t on_cpu = cpu_has_bf16() ? 3 : 0;
    ASSERT_EQ(bf16.copies16.size(), GetParam() == Device::kCpu ? on_cpu : bf16.weights.size());
    for (const auto& [name, copy] : bf16.copies16) {
      const std::vector<float>& weights = bf16.weights.at(name);
      ASSERT_EQ(copy.size(), weights.size());
      for (size_t i = 0; i < copy.size(); ++i)
        ASSERT_EQ(copy[i], from_bf16(to_bf16(weights[i]))) << name << " at " << i;
    }
  }
}

// 16 steps, with batches in two places, alternating. Steps of 24 rows are run, recorded and replayed; steps of 4 rows
// at the end of an epoch are run and recorded. The learning rate and the dropped elements change with every step.
TEST_P(StepOnGpu, RecordedStepsGiveTheSameBits) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Overrides base{{"run.precision", precision}, {"schedule.type", "cosine"}, {"schedule.warmup_epochs", "1"}};
    Overrides recorded = base, plain = base;
    recorded.emplace_back("run.cuda_graph", "true");
    plain.emplace_back("run.cuda_graph", "false");
    const SmallRun a = run(16, recorded), b = run(16, plain);
    EXPECT_EQ(a.losses, b.losses) << precision;
    EXPECT_EQ(a.weights, b.weights) << precision;
  }
}

TEST_P(StepOnGpu, UpdatingTheDenseLayersDuringTheOthersBackwardPassGivesTheSameBits) {
  struct Case {
    const char *workers, *strategy, *model_ranks;
  };
  for (const Case& c : {Case{"1", "owt-a", "0"}, Case{"2", "owt-a", "0"}, Case{"3", "owt-c", "0"},
                        Case{"2", "owt-d", "0"}, Case{"2", "mp", "0"}, Case{"4", "owt-c", "2"}, Case{"2", "dp", "0"}})
    for (const char* precision : {"fp32", "bf16"}) {
      if (precision == std::string("fp32") && c.workers != std::string("2")) continue;  // bf16 has more to update
      SCOPED_TRACE(concat(c.workers, " workers, ", c.strategy, ", ", precision));
      const auto run_with = [&](int64_t beside_from) {
        return run_small(kSmallRecipe, 4,
                         {{"run.device", name_of(device())},
                          {"run.precision", precision},
                          {"parallel.workers", c.workers},
                          {"parallel.strategy", c.strategy},
                          {"parallel.model_ranks", c.model_ranks}},
                         beside_from);
      };
      const SmallRun beside = run_with(0), behind = run_with(1 << 20);
      EXPECT_EQ(beside.losses, behind.losses);
      EXPECT_EQ(beside.weights, behind.weights);
    }
}

// The length of a - b.
double length_of_difference(const std::map<std::string, std::vector<float>>& a,
                            const std::map<std::string, std::vector<float>>& b) {
  double sum = 0;
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) sum += std::pow(double{values[i]} - b.at(name).at(i), 2);
  return std::sqrt(sum);
}

// A stored gradient is rounded to bf16, by at most 2^-9 of its size. Later steps of the two runs would differ by more.
TEST_P(StepOnGpu, WhatTheUpdateComputesAreTheGradientsThatAreStoredOtherwise) {
  struct Case {
    const char *workers, *strategy, *optimizer;
    Overrides more{};
  };
  const Case cases[] = {{"1", "dp", "sgd"},
                        {"1", "dp", "adamw"},
                        {"1", "dp", "sgd", {{"optimizer.ema", "0.9"}}},
                        {"2", "owt-a", "sgd"},
                        {"3", "owt-a", "adagrad"},
                        {"2", "owt-d", "sgd"},
                        {"2", "owt-c", "rmsprop", {{"parallel.dense_update", "round"}}},
                        {"2", "mp", "sgd"},
                        {"2", "mp-dense", "sgd"},
                        {"2", "dp", "sgd", {{"parallel.average_every", "2"}}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(concat(c.workers, " workers, ", c.strategy, ", ", c.optimizer));
    const auto run_with = [&](int64_t steps, bool keeps_gradients) {
      Overrides changes = merged({{"run.device", name_of(device())},
                                  {"run.precision", "bf16"},
                                  {"parallel.workers", c.workers},
                                  {"parallel.strategy", c.strategy}},
                                 merged(with_optimizer(c.optimizer), c.more));
      return run_small(kSmallRecipe, steps, changes, kUpdateBesideFrom, keeps_gradients);
    };
    const SmallRun start = run_with(0, false), computed = run_with(1, false), stored = run_with(1, true);
    const double difference = length_of_difference(computed.weights, stored.weights);
    EXPECT_GT(difference, 0) << "a gradient is rounded";
    EXPECT_LT(difference, 0.02 * length_of_difference(stored.weights, start.weights));
  }
}

TEST_P(StepOnGpu, TheOrderOfUpdatesThatIsChosenWhileTrainingGivesTheSameBits) {
  const auto run_with = [&](const char* update_beside, int64_t beside_from) {
    return run_small(kSmallRecipe, 48,
                     {{"run.device", name_of(device())},
                      {"run.precision", "bf16"},
                      {"data.batch", "20"},  // all steps are full
                      {"run.update_beside", update_beside}},
                     beside_from);
  };
  testing::internal::CaptureStderr();
  const SmallRun chosen = run_with("auto", 1);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("dense layers are updated ") != std::string::npos, device() == Device::kCuda) << log;
  const SmallRun off = run_with("off", kNeverBeside);
  EXPECT_EQ(chosen.losses, off.losses);
  EXPECT_EQ(chosen.weights, off.weights);
}

TEST_P(StepOnGpu, DenseLayersThatAreUpdatedAfterEveryRoundAreUpdatedOnce) {
  const auto run_with = [&](int64_t beside_from) {
    return run_small(kSmallRecipe, 6,
                     {{"run.device", name_of(device())},
                      {"parallel.workers", "2"},
                      {"parallel.strategy", "owt-c"},
                      {"parallel.dense_update", "round"}},
                     beside_from);
  };
  EXPECT_EQ(run_with(0).losses, run_with(1 << 20).losses);
}

// One rank with its step, and separate batches.
class SteppingRank : public Worker {
 public:
  SteppingRank(const Job& job, Communicator& comm)
      : Worker(job.settings, job.plan, comm), batches_(training_batches(job, comm.rank(), 0, 0)) {
    model.initialize(job.settings.run.seed);
  }

  void start(bool stop = false, const Step::Rates& rates = {0.01, 0.01}) {
    batch_ = &batches_->next(step.stream());
    step.start_training(*batch_, next_++, rates, stop);
  }
  StepResult evaluate_last_batch() { return step.evaluate(*batch_); }
  void start_on_bad_image() {
    Batch batch = batches_->next(step.stream());
    bad_images_ = Tensor(batch.images.shape(), DType::kF32, batch.images.device());
    fill(bad_images_, std::numeric_limits<float>::quiet_NaN());
    batch.images = bad_images_;
    step.start_training(batch, next_++, {0.01, 0.01}, false);
  }
  // The message about the oldest step; empty: no error.
  std::string complaint() {
    return message_of([&] { step.finish(); });
  }
  std::map<std::string, std::vector<float>> weights() {
    std::map<std::string, std::vector<float>> all;
    for (const Param* param : model.params()) all[param->name] = download(param->value);
    return all;
  }
  void spoil(const std::string& name) {
    for (Param* param : model.params())
      if (param->name == name) {
        Tensor bad(param->shape());
        fill(bad, std::numeric_limits<float>::quiet_NaN());
        param->set_value(bad);
      }
  }

 private:
  std::unique_ptr<BatchSource> batches_;
  const Batch* batch_ = nullptr;  // the last one
  Tensor bad_images_;
  int64_t next_ = 0;
};

class StepsInFlight : public DeviceTest {
 protected:
  // body(rank) on every rank.
  void on_every_rank(Overrides changes, const std::function<void(SteppingRank&)>& body) const {
    changes.emplace_back("run.device", name_of(device()));
    Job job;
    job.settings = small_settings(kSmallRecipe, changes);
    job.plan = job.settings.plan_to_run();
    open_data(job, "");
    const auto run = [&](Communicator& comm) {
      SteppingRank rank(job, comm);
      body(rank);
    };
    run_ranks(job.plan.ranks(), 1, run, device());
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepsInFlight, ::testing::ValuesIn(devices()), device_name);

TEST_P(StepsInFlight, GiveTheirResultsInTheirOrder) {
  on_every_rank({}, [&](SteppingRank& rank) {
    std::vector<int64_t> rows;
    std::vector<bool> stops;
    int started = 0;
    const auto finish = [&] {
      const StepResult result = rank.step.finish();
      rows.push_back(result.sums.rows);
      stops.push_back(result.stop);
    };
    for (; started < 7; ++started) {
      if (started - static_cast<int>(rows.size()) == rank.step.most_in_flight()) finish();
      rank.start(started == 2);
    }
    while (rows.size() < 7) finish();
    EXPECT_THAT(rows, ElementsAre(24, 24, 24, 24, 4, 24, 24));
    EXPECT_THAT(stops, ElementsAre(false, false, true, false, false, false, false));
  });
}

// On one GPU the last two of four steps are recorded ones. One rank has all of the front part.
TEST_P(StepsInFlight, TakeTheirOwnRatesBeforeAndAfterTheBoundary) {
  for (const bool split : {false, true}) {
    const Overrides changes{{"parallel.workers", split ? "2" : "1"}, {"optimizer.momentum", "0"}};
    on_every_rank(changes, [&](SteppingRank& rank) {
      for (const bool front : {true, false, true, false}) {
        const auto before = rank.weights();
        rank.start(false, front ? Step::Rates{0.01, 0} : Step::Rates{0, 0.01});
        EXPECT_EQ(rank.complaint(), "");
        const auto after = rank.weights();
        EXPECT_EQ(after.at("conv1.weight") != before.at("conv1.weight"), front);
        EXPECT_EQ(after.at("fc2.weight") != before.at("fc2.weight"), front != split);
      }
    });
  }
}

TEST_P(StepsInFlight, UnderDpZeroKeepTheVelocityOfTheirShareOnly) {
  for (const int ranks : {2, 3, 4}) {
    std::vector<int64_t> kept(static_cast<size_t>(ranks), 0);
    int64_t whole = 0;
    const Overrides changes{{"parallel.workers", std::to_string(ranks)}, {"parallel.strategy", "dp-zero"}};
    std::mutex mutex;
    int next = 0;
    on_every_rank(changes, [&](SteppingRank& rank) {
      rank.start();
      EXPECT_EQ(rank.complaint(), "");
      const std::lock_guard lock(mutex);
      int64_t& mine = kept[static_cast<size_t>(next++)];
      whole = 0;
      for (const Param* param : rank.model.params()) {
        whole += param->value.elements();
        mine += rank.optimizer.states(*param, rank.step.updated(*param)).front().elements();
      }
    });
    EXPECT_EQ(std::accumulate(kept.begin(), kept.end(), int64_t{0}), whole) << "every velocity is kept once";
    for (const int64_t elements : kept) EXPECT_LE(elements, whole / ranks + 64) << ranks << " ranks";
  }
}

TEST_P(StepsInFlight, InBf16AddGradientsInF32AndKeepOthersInBf16OrNotAtAll) {
  struct Case {
    const char *workers, *strategy;
    DType conv;
    std::optional<DType> dense;  // none: no memory
  };
  const DType kept = device() == Device::kCuda ? DType::kBF16 : DType::kF32;  // on the CPU all are f32
  for (const Case& c : {Case{"1", "owt-a", kept, {}}, Case{"2", "owt-a", DType::kF32, {}},
                        Case{"2", "owt-c", DType::kF32, DType::kF32}, Case{"2", "dp", DType::kF32, DType::kF32}}) {
    SCOPED_TRACE(concat(c.workers, " workers, ", c.strategy));
    const Overrides changes{
        {"parallel.workers", c.workers}, {"parallel.strategy", c.strategy}, {"run.precision", "bf16"}};
    on_every_rank(changes, [&](SteppingRank& rank) {
      rank.start();
      EXPECT_EQ(rank.complaint(), "");
      for (const Param* param : rank.model.params()) {
        const bool bias = param->full_shape.rank() == 1, dense = param->name.starts_with("fc");
        const std::optional<DType> wanted = bias ? DType::kF32 : dense ? c.dense : c.conv;
        EXPECT_EQ(param->grad.defined(), wanted.has_value()) << param->name;
        EXPECT_EQ(param->grad.dtype(), wanted.value_or(DType::kF32)) << param->name;
      }
    });
  }
}

// Recorded training must not be replayed for a recorded evaluation of the same batch, nor vice versa.
TEST_P(StepsInFlight, OfEvaluationDoNotTrainAndOfTrainingDo) {
  on_every_rank({}, [&](SteppingRank& rank) {
    for (int i = 0; i < 4; ++i) {
      const auto first = rank.weights();
      rank.start();
      EXPECT_EQ(rank.complaint(), "");
      const auto trained = rank.weights();
      EXPECT_NE(trained, first);
      EXPECT_EQ(rank.evaluate_last_batch().sums.rows, 24);
      EXPECT_EQ(rank.weights(), trained);
    }
  });
}

TEST_P(StepsInFlight, AreNoMoreThanAllowed) {
  on_every_rank({}, [&](SteppingRank& rank) {
    EXPECT_THROW(rank.step.finish(), Error);
    for (int i = 0; i < rank.step.most_in_flight(); ++i) rank.start();
    EXPECT_THROW(rank.start(), Error);
    for (int i = 0; i < rank.step.most_in_flight(); ++i) EXPECT_EQ(rank.complaint(), "");
  });
}

// A bad image spoils the weights, so that all layers of later steps have bad values too.
TEST_P(StepsInFlight, ABadOneIsNamedWithItsOwnFirstBadLayer) {
  for (const char* graphs : {"true", "false"})
    for (const char* workers : {"1", "2"}) {
      SCOPED_TRACE(concat(graphs, ", workers ", workers));
      on_every_rank({{"run.cuda_graph", graphs}, {"parallel.workers", workers}}, [&](SteppingRank& rank) {
        for (int i = 0; i < 3; ++i) {
          rank.start();
          EXPECT_EQ(rank.complaint(), "");
        }
        rank.spoil("fc2.bias");
        const int under_way = rank.step.most_in_flight();
        for (int i = 0; i < under_way; ++i) rank.start();
        EXPECT_THAT(rank.complaint(), AllOf(HasSubstr("step 4: the loss is "), HasSubstr("nan"), HasSubstr("'fc2'")));
      });
      on_every_rank({{"run.cuda_graph", graphs}, {"parallel.workers", workers}}, [&](SteppingRank& rank) {
        rank.start();
        const bool several = rank.step.most_in_flight() > 1;
        std::string first = several ? "" : rank.complaint();
        rank.start_on_bad_image();
        if (several) {
          rank.start();
          first = rank.complaint();
        }
        EXPECT_EQ(first, "");
        EXPECT_THAT(rank.complaint(), AllOf(HasSubstr("step 2: the loss is "), HasSubstr("'conv1'")));
      });
    }
}

}  // namespace
}  // namespace owt::step_on_cuda_test
