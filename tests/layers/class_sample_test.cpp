#include "layers/loss/class_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "src/core/philox.h"
#include "tests/support/message_of.h"

namespace owt::class_sample_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tensor labels_of(const std::vector<int32_t>& labels) {
  Tensor there({std::ssize(labels)}, DType::kI32);
  std::ranges::copy(labels, there.data<int32_t>());
  return there;
}

std::vector<int32_t> numbers(const Tensor& of) { return {of.data<int32_t>(), of.data<int32_t>() + of.elements()}; }

// What the header says, class by class.
std::vector<int32_t> expected(const Slice& part, double rate, uint64_t seed, int64_t step,
                              const std::set<int32_t>& labels) {
  const Philox random(seed, RandomStream::kSample, static_cast<uint64_t>(step));
  std::vector<int32_t> classes;
  for (int64_t c = part.begin; c < part.end; ++c)
    if (random.uniform(static_cast<uint64_t>(c)) < rate || labels.contains(static_cast<int32_t>(c)))
      classes.push_back(static_cast<int32_t>(c - part.begin));
  return classes;
}

struct Sampler {
  Sampler(std::vector<Slice> parts, int rank, double rate, int64_t step_rows = 16)
      : counter({1}, DType::kF64), sample(parts, most(parts, rate, step_rows), rank, rate, step_rows, Device::kCpu) {
    counter.zero();
  }
  static std::vector<int64_t> most(const std::vector<Slice>& parts, double rate, int64_t step_rows) {
    std::vector<int64_t> all;
    for (const Slice& part : parts) all.push_back(most_sampled(part.size(), rate, step_rows));
    return all;
  }

  std::vector<int32_t> draw(uint64_t seed, int64_t step, const std::vector<int32_t>& labels) {
    const Stream stream(Device::kCpu);
    Pass pass;
    pass.seed = seed;
    pass.step = step;
    pass.stream = &stream;
    sample.draw(pass, labels_of(labels), counter);
    std::vector<int32_t> rows = numbers(sample.rows().rows);
    const int64_t count = sample.rows().count();
    EXPECT_TRUE(std::all_of(rows.begin() + count, rows.end(), [](int32_t row) { return row == kNoRow; }));
    rows.resize(static_cast<size_t>(count));
    return rows;
  }

  Tensor counter;
  ClassSample sample;
};

// Blocks of random numbers and of classes begin elsewhere than the parts.
TEST(ClassSampleTest, HasTheClassesOfTheDefinition) {
  const std::vector<int32_t> labels{3, 4999, 7001, 3, 12};
  const std::set<int32_t> set(labels.begin(), labels.end());
  for (const Slice part : {Slice{0, 10000}, Slice{7, 5001}, Slice{4099, 10000}, Slice{5, 6}, Slice{6, 6}})
    for (const double rate : {0.001, 0.1, 0.7})
      for (const int64_t step : {0, 1, 123456}) {
        Sampler sampler({{0, part.begin}, part, {part.end, 10000}}, 1, rate);
        const std::vector<int32_t> rows = sampler.draw(5, step, labels);
        EXPECT_EQ(rows, expected(part, rate, 5, step, set)) << part.begin << " to " << part.end << ", rate " << rate;
        EXPECT_EQ(*sampler.counter.data<double>(), static_cast<double>(rows.size()));
      }
}

TEST(ClassSampleTest, DependsOnSeedAndStepAndIsNearItsRate) {
  Sampler sampler({{0, 100000}}, 0, 0.1);
  const std::vector<int32_t> first = sampler.draw(1, 1, {});
  const uint64_t before = sampler.sample.rows().draw;
  EXPECT_NE(sampler.draw(1, 2, {}), first);
  EXPECT_NE(sampler.sample.rows().draw, before);
  EXPECT_NE(sampler.draw(2, 1, {}), first);
  EXPECT_EQ(sampler.draw(1, 1, {}), first);
  EXPECT_NEAR(static_cast<double>(first.size()), 10000, 4 * std::sqrt(9000));
}

TEST(ClassSampleTest, HasRoomForRareSamples) {
  EXPECT_EQ(most_sampled(1'000'000, 0.1, 64), 100'000 + 3000 + 20 + 64 + 4);  // a multiple of 8
  EXPECT_EQ(most_sampled(10, 0.5, 64), 10);
  EXPECT_EQ(most_sampled(0, 0.5, 64), 0);
  EXPECT_EQ(most_sampled(int64_t{1} << 31, 1e-6, 1), 2631 + 1);
}

TEST(ClassSampleTest, LabelsBecomeColumnsOfTheirOwner) {
  const std::vector<Slice> parts{{0, 40}, {40, 40}, {40, 100}};
  const std::vector<int32_t> labels{39, 40, 99, 0, 40};
  const std::vector<Slice> columns = columns_of_sample(Sampler::most(parts, 0.2, 16));
  ASSERT_EQ(columns[1].size(), 0);
  for (const int rank : {0, 2}) {
    Sampler sampler(parts, rank, 0.2);
    const std::vector<int32_t> rows = sampler.draw(3, 9, labels);
    const Slice part = parts[static_cast<size_t>(rank)], own = columns[static_cast<size_t>(rank)];
    const std::vector<int32_t> found = numbers(sampler.sample.columns_of(labels_of(labels), Stream(Device::kCpu)));
    for (size_t i = 0; i < labels.size(); ++i) {
      const int owner = labels[i] < 40 ? 0 : 2;
      const Slice of_owner = columns[static_cast<size_t>(owner)];
      EXPECT_TRUE(found[i] >= of_owner.begin && found[i] < of_owner.end) << labels[i] << " is " << found[i];
      if (owner != rank) continue;
      EXPECT_EQ(rows[static_cast<size_t>(found[i] - own.begin)] + part.begin, labels[i]);
    }
  }
}

TEST(ClassSampleTest, RefusesLabelsThatAreNoClass) {
  Sampler sampler({{0, 40}}, 0, 0.2);
  for (const int32_t label : {-1, 40}) {
    sampler.draw(3, 9, {1, label});
    EXPECT_THAT(message_of([&] {
                  sampler.sample.columns_of(labels_of({1, label}), Stream(Device::kCpu));
                }),
                HasSubstr(concat("the label of row 1 is ", label, ", wanted 0 to 39")));
  }
}

}  // namespace
}  // namespace owt::class_sample_test
