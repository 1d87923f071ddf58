// Training with sampled classes ([loss] sample) against sums written here, and against training with all classes.
// step_test.cpp compares numbers of workers and strategies, class_sample_test.cpp the sample with its definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "src/comm/solo.h"
#include "src/core/philox.h"
#include "src/parallel/step.h"
#include "src/train/made_up_batch.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/models.h"
#include "tests/support/runs.h"

namespace owt::sample_test {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr int64_t kRows = 6, kFeatures = 12, kClasses = 200;
constexpr double kRate = 0.1, kLearning = 0.5, kMomentum = 0.9, kDecay = 0.01;
constexpr uint64_t kSeed = 4;

Model one_layer(const std::string& type = "dense', bias = false") {
  return model_of("[3, 2, 2]", kClasses, concat("{ name = 'fc', out = ", kClasses, ", type = '", type, " }"));
}

PlanRequest request_of(double sample, double clip) {
  return {.step_rows = kRows, .loss = {.sample = sample}, .norm_sums = clip > 0 ? 1 : 0};
}

// One worker that trains a network on made-up rows.
struct OneWorker {
  OneWorker(const Model& of, double sample, double clip = 0)
      : model(of),
        plan(make_plan(model, request_of(sample, clip))),
        comm(make_solo_communicator(Device::kCpu)),
        mine(model, plan, 0),
        optimizer({.learning_rate = kLearning, .momentum = kMomentum, .decay = kDecay, .clip = clip}),
        step(plan, mine, optimizer, *comm, nullptr, {.seed = kSeed, .norms = {.clip = clip}}),
        batch(made_up_batch(model, {0, kRows}, plan.request)) {
    mine.initialize(kSeed);
  }

  StepResult train(int64_t number) { return step.train(batch, number, {kLearning, kLearning}, false); }
  Param& weight() { return *mine.params()[0]; }

  Model model;
  Plan plan;
  std::unique_ptr<Communicator> comm;
  RankModel mine;
  Optimizer optimizer;
  Step step;
  Batch batch;
};

std::vector<double> doubles(const Tensor& of) { return {of.data(), of.data() + of.elements()}; }
std::vector<int32_t> labels_of(const Batch& batch) {
  return {batch.labels.data<int32_t>(), batch.labels.data<int32_t>() + kRows};
}

std::vector<int64_t> sample_of(int64_t step, const std::vector<int32_t>& labels) {
  const Philox random(kSeed, RandomStream::kSample, static_cast<uint64_t>(step));
  const std::set<int64_t> all(labels.begin(), labels.end());
  std::vector<int64_t> classes;
  for (int64_t c = 0; c < kClasses; ++c)
    if (random.uniform(static_cast<uint64_t>(c)) < kRate || all.contains(c)) classes.push_back(c);
  return classes;
}

// A softmax regression with sampled classes and lazy momentum, in double precision.
struct Reference {
  std::vector<double> x, weight, velocity = std::vector<double>(kClasses * kFeatures);
  std::vector<int32_t> labels;
  double clip = 0, norm = 0;  // 0: no clipping; the norm of the latest gradient

  double train(int64_t step) {
    const std::vector<int64_t> classes = sample_of(step, labels);
    std::vector<double> gradient(weight.size());
    double loss = 0;
    for (int64_t n = 0; n < kRows; ++n) {
      std::vector<double> exponentials;
      double sum = 0, own = 0;
      for (const int64_t c : classes) {
        double logit = 0;
        for (int64_t f = 0; f < kFeatures; ++f) logit += at(x, n, f) * at(weight, c, f);
        if (c == labels[static_cast<size_t>(n)]) own = logit;
        exponentials.push_back(std::exp(logit));
        sum += exponentials.back();
      }
      loss += std::log(sum) - own;
      for (size_t i = 0; i < classes.size(); ++i) {
        const double slope = exponentials[i] / sum - (classes[i] == labels[static_cast<size_t>(n)] ? 1 : 0);
        for (int64_t f = 0; f < kFeatures; ++f) at(gradient, classes[i], f) += slope * at(x, n, f) / kRows;
      }
    }
    norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
    const double scale = clip > 0 ? std::min(1.0, clip / norm) : 1;
    for (const int64_t c : classes)
      for (int64_t f = 0; f < kFeatures; ++f) {
        double& v = at(velocity, c, f);
        v = kMomentum * v - kLearning * (scale * at(gradient, c, f) + kDecay * at(weight, c, f));
        at(weight, c, f) += v;
      }
    return loss;
  }

  static double& at(std::vector<double>& of, int64_t row, int64_t f) {
    return of[static_cast<size_t>(row * kFeatures + f)];
  }
};

class SampledSums : public ::testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(Clips, SampledSums, ::testing::Values(0, 0.3));

TEST_P(SampledSums, FollowTheirDefinition) {
  OneWorker run(one_layer(), kRate, GetParam());
  Reference reference{doubles(run.batch.images), doubles(run.weight().value), {}, labels_of(run.batch), GetParam()};
  reference.velocity.assign(reference.weight.size(), 0);
  for (int64_t step = 0; step < 8; ++step) {
    const double wanted = reference.train(step);
    const StepResult result = run.train(step);
    EXPECT_NEAR(result.sums.loss, wanted, 1e-5 * wanted) << "step " << step;
    EXPECT_NEAR(result.gradient_norm, GetParam() > 0 ? reference.norm : 0, 1e-5 * reference.norm);
    EXPECT_EQ(result.sampled_classes, std::ssize(sample_of(step, reference.labels)));
    EXPECT_THAT(doubles(run.weight().value), Pointwise(testing::DoubleNear(1e-5), reference.weight));
    EXPECT_THAT(doubles(run.optimizer.states(run.weight())[0]),
                Pointwise(testing::DoubleNear(1e-5), reference.velocity));
  }
}

// Momentum and decay of the other rows wait too.
TEST(SampledTraining, RowsThatTakeNoPartKeepTheirBits) {
  for (const char* const type : {"dense', bias = true", "cosine'"}) {
    OneWorker run(one_layer(type), kRate);
    run.train(0);
    for (const int64_t step : {1, 2, 3}) {
      const std::vector<double> before = doubles(run.weight().value),
                                velocity = doubles(run.optimizer.states(run.weight())[0]);
      run.train(step);
      const std::vector<double> after = doubles(run.weight().value),
                                velocity_after = doubles(run.optimizer.states(run.weight())[0]);
      const std::vector<int64_t> sample = sample_of(step, labels_of(run.batch));
      const std::set<int64_t> moved(sample.begin(), sample.end());
      for (int64_t c = 0; c < kClasses; ++c)
        for (int64_t f = 0; f < kFeatures; ++f) {
          const auto i = static_cast<size_t>(c * kFeatures + f);
          EXPECT_EQ(after[i] != before[i] && velocity_after[i] != velocity[i], moved.contains(c))
              << type << ", class " << c;
        }
    }
  }
}

// The rate leaves out one class in a million.
TEST(SampledTraining, OfAllClassesIsTrainingWithoutASample) {
  for (const char* const optimizer : {"sgd", "adamw"})
    for (const char* const clip : {"0", "0.5"})
      for (const bool cosines : {false, true}) {
        const std::string recipe = cosines ? cosine_recipe(50) : std::string(kSmallRecipe);
        const Overrides changes = merged(with_optimizer(optimizer), {{"optimizer.clip", clip}});
        const SmallRun all = run_small(recipe, 6, changes);
        const SmallRun sampled = run_small(recipe, 6, merged(changes, {{"loss.sample", "0.999999"}}));
        EXPECT_THAT(sampled.losses, Pointwise(testing::DoubleNear(1e-5), all.losses)) << optimizer << clip << cosines;
        EXPECT_THAT(sampled.gradient_norms, Pointwise(testing::DoubleNear(1e-5), all.gradient_norms));
        for (const auto& [name, values] : all.weights)
          EXPECT_THAT(sampled.weights.at(name), Pointwise(FloatNear(1e-5f), values)) << name;
      }
}

// The packed rows must follow an update within a step.
TEST(SampledTraining, OfAllClassesIsTrainingWithoutASampleIfEveryRoundUpdates) {
  const Overrides rounds{{"parallel.workers", "3"}, {"parallel.strategy", "owt-b"}, {"parallel.dense_update", "round"}};
  const SmallRun all = run_small(cosine_recipe(50), 6, rounds);
  const SmallRun sampled = run_small(cosine_recipe(50), 6, merged(rounds, {{"loss.sample", "0.999999"}}));
  EXPECT_THAT(sampled.losses, Pointwise(testing::DoubleNear(1e-5), all.losses));
}

// The copy that products read must follow the sampled rows.
TEST(SampledTraining, KeepsCopiesInBf16) {
  const Overrides bf16{{"run.precision", "bf16"}, {"loss.sample", "0.3"}};
  const SmallRun one = run_small(cosine_recipe(300), 6, bf16);
  const SmallRun fp32 = run_small(cosine_recipe(300), 6, {{"loss.sample", "0.3"}});
  EXPECT_THAT(one.losses, Pointwise(testing::DoubleNear(0.1), fp32.losses));
  for (const auto& [name, copy] : one.copies16)
    EXPECT_THAT(copy, Pointwise(FloatNear(0x1p-8f), one.weights.at(name))) << name;
}

TEST(SampledTraining, AnEvaluationUsesAllClasses) {
  for (const char* const type : {"dense', bias = false", "cosine'"}) {
    OneWorker sampled(one_layer(type), kRate), all(one_layer(type), 1);
    sampled.train(0);
    const double trained = sampled.step.evaluate(sampled.batch).sums.loss;
    all.weight().set_value(sampled.weight().value);
    EXPECT_EQ(trained, all.step.evaluate(all.batch).sums.loss);
    EXPECT_EQ(sampled.step.evaluate(sampled.batch).sampled_classes, 0);
  }
}

TEST(SampledTraining, IsRefusedWhereItCannotBe) {
  const auto said = [](const std::string& recipe, const Overrides& changes) {
    return message_of([&] { small_settings(recipe, merged({{"loss.sample", "0.5"}}, changes)).plan_to_run(); });
  };
  EXPECT_EQ(said(kSmallRecipe, {}), "");
  for (const char* const strategy : {"dp-zero", "dp-star", "ps", "pipeline"})
    EXPECT_THAT(said(kSmallRecipe, {{"parallel.workers", "2"}, {"parallel.strategy", strategy}}),
                HasSubstr(concat("under ", strategy, " no worker knows all labels of a step; use owt-a")));
  EXPECT_THAT(
      said(kSmallRecipe, {{"parallel.workers", "4"}, {"parallel.strategy", "mp"}, {"parallel.model_ranks", "2"}}),
      HasSubstr("under mp in groups of 2 no worker knows all labels of a step"));
  EXPECT_THAT(
      said(kSmallRecipe, {{"parallel.workers", "2"}, {"parallel.strategy", "dp"}, {"parallel.average_every", "2"}}),
      HasSubstr("leave average_every out"));
  EXPECT_THAT(said(kSmallRecipe, {{"data.accumulate", "2"}}), HasSubstr("leave accumulate out"));
  EXPECT_THAT(said(kSmallRecipe, {{"optimizer.type", "lars"}}), HasSubstr("LARS needs the norm"));
  EXPECT_THAT(said(kSmallRecipe, {{"loss.label_smoothing", "0.1"}}), HasSubstr("'label_smoothing' is of all classes"));
  EXPECT_THAT(said(kSmallRecipe, {{"loss.type", "logistic"}}), HasSubstr("'sample' is for the softmax"));
  EXPECT_THAT(said(kSmallRecipe, {{"data.augment", "{ crop = 12, mixup = 0.2 }"}}),
              HasSubstr("'sample' is for images with one label"));
  EXPECT_THAT(said(kSmallRecipe, {{"loss.sample", "0"}}), HasSubstr("'sample' is 0"));
  const std::string relu = recipe_of("[3, 8, 8]", "batch = 4\ntrain_images = 8", R"(
  { name = "fc", type = "dense", out = 10 },
  { name = "relu", type = "relu" })");
  EXPECT_THAT(said(relu, {}), HasSubstr("the last layer 'relu' is of type 'relu'; use dense or cosine there"));
}

}  // namespace
}  // namespace owt::sample_test
