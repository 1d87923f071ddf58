// Pipelines without a flush between mini-batches, against one rank that does the same step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "src/comm/threads.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_table.h"
#include "src/system/files.h"
#include "src/train/job.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::pipeline_schedules_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kSchedules[] = {"vanilla", "pipedream", "spectrain", "spectrain2"};
// The fifth step, which ends an epoch, has 4 rows.
constexpr int64_t kSteps = 6;

using Weights = std::map<std::string, std::vector<float>>;
struct Learned {
  std::vector<double> losses;  // mean of each step
  Weights weights;             // weights of all stages
};

Overrides pipeline(const std::string& schedule, int workers, int micro_batches, const Overrides& more = {}) {
  return merged({{"parallel.workers", std::to_string(workers)},
                 {"parallel.strategy", "pipeline"},
                 {"pipeline.schedule", schedule},
                 {"pipeline.micro_batches", std::to_string(micro_batches)}},
                more);
}

std::string with_batch_norm() {
  std::string recipe = kSmallRecipe;
  const std::string norm = "type = \"lrn\"\nsize = 3\nalpha = 0.01";
  return recipe.replace(recipe.find(norm), norm.size(), "type = \"batch_norm\"");
}

// A stored gradient is computed by another product than one that updates at once, and has other last bits on some
// processors. If two runs are on different sides of a kink of relu or max_pool, the difference is larger.
std::string without_kinks(std::string recipe) {
  const std::pair<std::string, std::string> smooth[] = {{"\"relu\"", "\"activation\"\nkind = \"silu\""},
                                                        {"\"max_pool\"", "\"avg_pool\""}};
  for (const auto& [with, without] : smooth)
    for (size_t at = recipe.find(with); at != std::string::npos; at = recipe.find(with))
      recipe.replace(at, with.size(), without);
  return recipe;
}

Job job_of(const Settings& settings, bool keeps_gradients = false) {
  Job job;
  job.settings = settings;
  job.plan = settings.plan_to_run();
  job.plan.request.keeps_gradients = keeps_gradients;
  open_data(job, "");
  return job;
}

Learned learned(const std::string& recipe, const Overrides& changes) {
  const Job job = job_of(small_settings(recipe, changes));
  Learned all;
  std::mutex mutex;
  run_ranks(
      job.plan.ranks(), 1,
      [&](Communicator& comm) {
        Worker worker(job.settings, job.plan, comm);
        worker.model.initialize(job.settings.run.seed);
        const auto batches = training_batches(job, comm.rank(), 0, 0);
        const double rate = job.settings.optimizer.learning_rate;
        for (int64_t i = 0; i < kSteps; ++i) {
          const StepResult result = worker.step.train(batches->next(worker.step.stream()), i, {rate, rate}, false);
          if (comm.rank() == 0) all.losses.push_back(result.sums.loss / static_cast<double>(result.sums.rows));
        }
        const std::lock_guard lock(mutex);
        for (const Param* param : worker.model.params())
          if (param->shape().elements() > 0) all.weights[param->name] = download(param->value);
      },
      job.plan.request.on.device);
  return all;
}

// A whole network on one rank, whose layers get the weights of the schedule for each mini-batch. All versions since the
// beginning of the step are kept.
class ByHand {
 public:
  ByHand(const std::string& recipe, const Overrides& changes)
      : staged_(small_settings(recipe, changes).plan_to_run()),
        schedule_(name_of(staged_.request.options.pipeline.schedule)),
        job_(job_of(small_settings(recipe, {}), true)),
        model_(job_.settings.model, job_.plan, 0),
        optimizer_(job_.settings.optimizer) {
    model_.allocate({});
    model_.initialize(job_.settings.run.seed);
    for (int stage = 0; stage < staged_.model_ranks; ++stage) {
      stages_.emplace_back();
      const Slice layers = staged_.back_layers(stage);
      for (int64_t i = layers.begin; i < layers.end; ++i)
        for (Param* param : model_.layer(i).params())
          if (param->role == ParamRole::kTrained) stages_.back().params.push_back(param);
    }
  }

  Learned learn() {
    Learned all;
    const auto batches = training_batches(job_, 0, 0, 0);
    for (int64_t i = 0; i < kSteps; ++i) all.losses.push_back(step(batches->next(stream_), i));
    for (const Param* param : model_.params()) all.weights[param->name] = download(param->value);
    return all;
  }

 private:
  struct Values {
    std::vector<float> weight, velocity;
  };
  using Version = std::vector<Values>;  // by parameter
  struct Stage {
    std::vector<Param*> params;
    std::vector<Version> versions;  // by the updates of the step that have made them
  };

  void note(Stage& stage) {
    Version& now = stage.versions.emplace_back();
    for (Param* param : stage.params)
      now.push_back({download(param->value), download(optimizer_.states(*param).front())});
  }

  static void set(const Stage& stage, int version, int ahead) {
    for (size_t p = 0; p < stage.params.size(); ++p) {
      const Values& at = stage.versions.at(static_cast<size_t>(version))[p];
      std::vector<float> values = at.weight;
      for (size_t i = 0; i < values.size(); ++i) values[i] += static_cast<float>(ahead) * at.velocity[i];
      stage.params[p]->set_value(upload(values, stage.params[p]->shape(), Device::kCpu));
    }
  }

  // Defines the schedules by the updates in the weights: mini-batch b reaches stage k when b - gap others have come
  // back.
  void set_for(bool forward, int b, int micro_batches) {
    const auto count = static_cast<int>(stages_.size());
    for (int k = 0; k < count; ++k) {
      const int first = std::max(0, b - (count - 1 - k)), then = std::min(b + k / 2, micro_batches - 1);
      const Stage& stage = stages_[static_cast<size_t>(k)];
      if (schedule_ == "vanilla") set(stage, forward ? first : b, 0);
      if (schedule_ == "pipedream") set(stage, first, 0);
      if (schedule_ == "spectrain") set(stage, forward ? first : b, forward ? then - first : then - b);
      if (schedule_ == "spectrain2") set(stage, first, b - first);
    }
  }

  double step(const Batch& batch, int64_t number) {
    const int micro_batches = equal_parts_in(staged_, batch.step_rows);
    double loss = 0;
    for (Stage& stage : stages_) {
      stage.versions.clear();
      note(stage);
    }
    for (int b = 0; b < micro_batches; ++b) loss += mini_batch(batch, number, b, micro_batches);
    return loss / static_cast<double>(batch.step_rows);
  }

  // The rows of all replicas, as indexes in the step.
  std::vector<int64_t> rows_of(int64_t step_rows, int b) const {
    std::vector<int64_t> all;
    const StepRows rows = owt::rows_of(staged_, step_rows);
    for (int first = 0; first < staged_.ranks(); first += staged_.model_ranks) {
      const std::vector<int64_t> some = rows.indexes(rows.rounds(first).at(static_cast<size_t>(b)), first);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  double mini_batch(const Batch& batch, int64_t number, int b, int micro_batches) {
    const std::vector<int64_t> rows = rows_of(batch.step_rows, b);
    const auto count = static_cast<int64_t>(rows.size());
    Tensor images(batch.images.shape().with_rows(count)), labels({count}, DType::kI32);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = rows[static_cast<size_t>(i)];
      images.rows(i, i + 1).copy_from(batch.images.rows(from, from + 1));
      labels.rows(i, i + 1).copy_from(batch.labels.rows(from, from + 1));
    }
    DevicePass pass(Device::kCpu, count);
    pass.rows() = rows;
    pass.pass().seed = job_.settings.run.seed;
    pass.pass().step = number;
    pass.pass().step_rows = batch.step_rows;
    pass.renew();

    Tape tape(model_.front(), count, {}, nullptr);
    set_for(true, b, micro_batches);
    const Tensor logits = tape.forward(pass.pass(), images).reshaped({count, 10});
    Tensor dlogits(logits.shape()), sums({kLossSums}, DType::kF64);
    sums.zero();
    make_softmax_loss({}, 10, count)->run(pass.pass(), logits, labels, &dlogits, sums);
    set_for(false, b, micro_batches);
    tape.backward(pass.pass(), images, dlogits, nullptr);
    for (const Stage& stage : stages_) set(stage, b, 0);
    const double rate = job_.settings.optimizer.learning_rate;
    optimizer_.update(model_.params(), {{rate, rate, static_cast<double>(updates_++)}},
                      static_cast<double>(batch.step_rows) / static_cast<double>(count), stream_);
    for (Stage& stage : stages_) note(stage);
    return sums.data<double>()[kLossSum];
  }

  Plan staged_;
  std::string schedule_;
  Job job_;
  RankModel model_;
  Optimizer optimizer_;
  int64_t updates_ = 0;
  Stream stream_{Device::kCpu};
  std::vector<Stage> stages_;
};

void expect_near(const Learned& found, const Learned& wanted, double bound = 5e-5) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], wanted.losses[i], bound * wanted.losses[i]) << "step " << i;
  ASSERT_EQ(found.weights.size(), wanted.weights.size());
  for (const auto& [name, values] : wanted.weights)
    EXPECT_THAT(found.weights.at(name), ::testing::Pointwise(::testing::FloatNear(static_cast<float>(bound)), values))
        << name;
}

// WithOneMicroBatch has the other cases of one stage and of one micro-batch.
TEST(PipelineSchedules, LearnWhatOneRankLearnsThatDoesTheSameByHand) {
  const std::string recipe = without_kinks(kSmallRecipe);
  for (const char* schedule : kSchedules)
    for (const int stages : {1, 2, 3, 4})
      for (const int micro_batches : {2, 3, 8}) {
        if (stages == 1 && micro_batches != 3) continue;
        SCOPED_TRACE(concat(schedule, ", ", stages, " stages, ", micro_batches, " micro-batches"));
        const Overrides changes = pipeline(schedule, stages, micro_batches);
        expect_near(learned(recipe, changes), ByHand(recipe, changes).learn());
      }
}

// Each mini-batch is an update with its own number.
TEST(PipelineSchedules, KnowOptimizersThatCountUpdates) {
  const std::string recipe = [] {
    std::string text = without_kinks(kSmallRecipe);
    const std::string sgd = "momentum = 0.9\ndecay = 0.001";
    return text.replace(text.find(sgd), sgd.size(), "type = 'adamw'\neps = 0.01");
  }();
  for (const char* schedule : {"vanilla", "pipedream"}) {
    SCOPED_TRACE(schedule);
    const Overrides changes = pipeline(schedule, 3, 4);
    expect_near(learned(recipe, changes), ByHand(recipe, changes).learn());
  }
}

TEST(PipelineSchedules, DoNotPredictWithoutAVelocity) {
  for (const char* schedule : {"spectrain", "spectrain2"})
    for (const Overrides& optimizer : {with_optimizer("adamw"), Overrides{{"optimizer.momentum_correction", "true"}}})
      EXPECT_THAT(message_of([&] { small_settings(kSmallRecipe, pipeline(schedule, 2, 2, optimizer)); }),
                  ::testing::AllOf(::testing::HasSubstr("predicts weights from sgd's velocity"),
                                   ::testing::HasSubstr("\"pipedream\"")));
}

TEST(PipelineSchedules, KnowRunningAverages) {
  const std::string recipe = without_kinks(with_batch_norm());
  for (const char* schedule : kSchedules) {
    SCOPED_TRACE(schedule);
    const Overrides changes = pipeline(schedule, 4, 8);
    expect_near(learned(recipe, changes), ByHand(recipe, changes).learn());
  }
}

TEST(PipelineSchedules, HaveReplicasThatSumTheirGradientsForEveryMiniBatch) {
  const std::string recipe = without_kinks(kSmallRecipe);
  for (const char* schedule : kSchedules) {
    SCOPED_TRACE(schedule);
    const Overrides changes = pipeline(schedule, 4, 4, {{"parallel.model_ranks", "2"}});
    expect_near(learned(recipe, changes), ByHand(recipe, changes).learn());
  }
}

// One mini-batch after the other through stages that wait for each other, or through one stage: this is plain SGD with
// steps of a mini-batch's rows.
TEST(PipelineSchedules, WithOneMicroBatchAreSgdOfMiniBatches) {
  const std::string recipe = without_kinks(kSmallRecipe);
  const Learned plain = learned(recipe, {{"data.batch", "24"}});
  for (const char* schedule : kSchedules) {
    SCOPED_TRACE(schedule);
    expect_near(learned(recipe, pipeline(schedule, 4, 1)), plain);
    expect_near(learned(recipe, pipeline(schedule, 1, 1)), plain);
  }
}

TEST(PipelineSchedules, LearnSomethingElseEach) {
  std::vector<double> last;
  for (const char* schedule : {"1f1b", "vanilla", "pipedream", "spectrain", "spectrain2"})
    last.push_back(learned(kSmallRecipe, pipeline(schedule, 4, 8)).losses.back());
  for (size_t a = 0; a < last.size(); ++a)
    for (size_t b = a + 1; b < last.size(); ++b) EXPECT_GT(std::abs(last[a] - last[b]), 1e-4) << a << " and " << b;
}

TEST(PipelineSchedules, SendTheBytesOfThePlan) {
  for (const char* schedule : kSchedules)
    for (const char* model_ranks : {"4", "2"}) {
      const SmallRun run =
          run_small(kSmallRecipe, 4, pipeline(schedule, 4, 3, {{"parallel.model_ranks", model_ranks}}));
      EXPECT_EQ(run.bytes, run.planned_of_ranks) << schedule << ", groups of " << model_ranks;
    }
}

TEST(PipelineSchedules, InBf16HaveCopiesOfTheNewestWeightsAfterAStep) {
  for (const char* schedule : kSchedules) {
    const SmallRun run = run_small(kSmallRecipe, 3, pipeline(schedule, 2, 8, {{"run.precision", "bf16"}}));
    for (const double loss : run.losses) EXPECT_TRUE(std::isfinite(loss));
    for (const auto& [name, copy] : run.copies16) {
      const std::vector<float>& weights = run.weights.at(name);
      for (size_t i = 0; i < copy.size(); ++i) ASSERT_NEAR(copy[i], weights[i], std::abs(weights[i]) / 256) << name;
    }
  }
}

TEST(PipelineSchedules, MakeAShorterStepOfFewerMiniBatches) {
  const Plan plan = small_settings(kSmallRecipe, pipeline("pipedream", 2, 8)).plan_to_run();
  const auto sizes = [&](int64_t rows) {
    std::vector<int64_t> all;
    for (const StepRows::RoundSize& round : rows_of(plan, rows).round_sizes(0)) all.push_back(round.rows);
    return all;
  };
  EXPECT_EQ(sizes(24), std::vector<int64_t>(8, 3));
  EXPECT_EQ(sizes(6), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(sizes(4), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(sizes(1), std::vector<int64_t>{1});
  const Plan flush = small_settings(kSmallRecipe, pipeline("1f1b", 2, 8)).plan_to_run();
  EXPECT_EQ(rows_of(flush, 4).round_sizes(0).size(), 8u);
}

TEST(PipelineSchedules, SayWhichWeightsATaskTakes) {
  const Plan plan = small_settings(kSmallRecipe, pipeline("spectrain2", 3, 4)).plan_to_run();
  EXPECT_THAT(plan_table(plan),
              HasSubstr("schedule spectrain2, an update after each micro-batch of 4; each stage is idle for "
                        "at least 33.3 % of the time\n"));
  const std::string first = action_text(plan, training(plan, 24, 0)), last = action_text(plan, training(plan, 24, 2));
  EXPECT_THAT(first, AllOf(HasSubstr(" (copy 1, 1 update ahead)\n"), HasSubstr(" (copy 2, 2 updates ahead)\n"),
                           HasSubstr("take weights"), HasSubstr(" (current weights)\n")));
  EXPECT_THAT(last, ::testing::Not(HasSubstr("take weights")));
}

TEST(PipelineSchedules, AreNoneThatAutoMayTake) {
  EXPECT_THAT(message_of([] {
                small_settings(kSmallRecipe, {{"parallel.strategy", "auto"}, {"pipeline.schedule", "vanilla"}});
              }),
              HasSubstr("'auto' and schedule = \"vanilla\" do not go together"));
}

using PipelineSchedulesOnGpu = DeviceTest;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PipelineSchedulesOnGpu);
INSTANTIATE_TEST_SUITE_P(Devices, PipelineSchedulesOnGpu, ::testing::ValuesIn(gpu_devices()), device_name);

TEST_P(PipelineSchedulesOnGpu, LearnTheSame) {
  for (const char* schedule : kSchedules) {
    SCOPED_TRACE(schedule);
    const Overrides changes = pipeline(schedule, 3, 4);
    const Overrides here = merged(changes, {{"run.device", name_of(device())}});
    expect_near(learned(kSmallRecipe, here), ByHand(kSmallRecipe, changes).learn(), 1e-4);
    for (const double loss : learned(kSmallRecipe, merged(here, {{"run.precision", "bf16"}})).losses)
      EXPECT_TRUE(std::isfinite(loss));
  }
}

class PipelineRun : public ::testing::Test, protected WholeRuns {};

TEST_F(PipelineRun, ResumesBitForBitFromEveryCheckpoint) {
  for (const char* schedule : {"pipedream", "spectrain"}) {
    const Overrides changes = merged(kEveryStepLogged, pipeline(schedule, 3, 4));
    const std::string whole = concat("whole-", schedule);
    run(whole, changes);
    for (const char* stop : {"1", "5", "13"}) {
      const std::string out = concat(schedule, stop);
      run(out, merged(changes, {{"schedule.max_steps", stop}}));
      run(out, changes, "auto");
      EXPECT_EQ(read_file(weights_of(out)), read_file(weights_of(whole))) << "stopped after step " << stop;
      EXPECT_EQ(read_file(optimizer_of(out)), read_file(optimizer_of(whole))) << "stopped after step " << stop;
    }
  }
}

TEST_F(PipelineRun, ResumesUnderAnotherStrategyAndNumberOfWorkers) {
  run("part", merged(merged(kEveryStepLogged, pipeline("spectrain2", 3, 4)), {{"schedule.max_steps", "7"}}));
  EXPECT_TRUE(
      run("part", merged(kEveryStepLogged, {{"parallel.strategy", "dp"}, {"parallel.workers", "2"}}), "auto").finished);
  EXPECT_EQ(losses(path("part")).size(), 20u);
}

}  // namespace
}  // namespace owt::pipeline_schedules_test
