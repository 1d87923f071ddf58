#include "data/held_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "data/augment.h"
#include "data/memory_dataset.h"
#include "tests/support/message_of.h"

namespace owt::held_out_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Images of two bytes that count them, of the classes that are named one after the other.
std::shared_ptr<const Dataset> images_of(const std::vector<uint8_t>& labels, int classes) {
  std::vector<uint8_t> pixels;
  for (size_t i = 0; i < labels.size(); ++i) {
    pixels.push_back(static_cast<uint8_t>(i % 251));
    pixels.push_back(static_cast<uint8_t>(i / 251));
  }
  std::vector<std::string> names;
  for (int c = 0; c < classes; ++c) names.push_back("class " + std::to_string(c));
  return std::make_shared<MemoryDataset>(Shape{1, 1, 2}, classes, pixels, labels, names);
}

std::vector<uint8_t> in_turns(size_t size, int classes) {
  std::vector<uint8_t> labels(size);
  for (size_t i = 0; i < size; ++i) labels[i] = static_cast<uint8_t>(i % static_cast<size_t>(classes));
  return labels;
}

std::vector<int64_t> numbers_in(const Dataset& part) {
  std::vector<int64_t> numbers;
  uint8_t pixels[2];
  for (int64_t i = 0; i < part.size(); ++i) {
    part.read(i, View{}, pixels);
    numbers.push_back(pixels[0] + 251 * pixels[1]);
  }
  return numbers;
}

std::vector<int64_t> counts(const Dataset& part) {
  std::vector<int64_t> counts(static_cast<size_t>(part.classes()));
  for (int64_t i = 0; i < part.size(); ++i) ++counts[static_cast<size_t>(part.label(i))];
  return counts;
}

TEST(HeldOut, PartsAreAllImagesInTheirOrderEachOnce) {
  const auto all = images_of(in_turns(503, 10), 10);
  for (const double wanted : {0.1, 0.5, 1.0 / 503, 2.0, 502.0}) {
    const HeldOut held = hold_out(all, wanted, 3);
    const std::vector<int64_t> train = numbers_in(*held.train), validation = numbers_in(*held.validation);
    EXPECT_EQ(std::ssize(validation), wanted < 1 ? std::llround(wanted * 503) : static_cast<int64_t>(wanted));
    EXPECT_TRUE(std::is_sorted(train.begin(), train.end()) && std::is_sorted(validation.begin(), validation.end()));
    std::set<int64_t> both(train.begin(), train.end());
    both.insert(validation.begin(), validation.end());
    EXPECT_EQ(both.size(), 503u);
    EXPECT_EQ(train.size() + validation.size(), 503u);
    for (int64_t i = 0; i < held.train->size(); ++i)
      EXPECT_EQ(held.train->label(i), train[static_cast<size_t>(i)] % 10);
    for (int64_t i = 0; i < held.validation->size(); ++i)
      EXPECT_EQ(held.validation->label(i), validation[static_cast<size_t>(i)] % 10);
  }
}

TEST(HeldOut, EveryClassGivesInProportion) {
  EXPECT_THAT(counts(*hold_out(images_of(in_turns(500, 10), 10), 0.1, 1).validation), ::testing::Each(5));
  // 100, 40, 7, 0 and 3 images of 150: a fifth is 20, 8, 1.4, 0 and 0.6, of which 0.6 is the largest remainder.
  std::vector<uint8_t> labels(100, 0);
  labels.insert(labels.end(), 40, 1);
  labels.insert(labels.end(), 7, 2);
  labels.insert(labels.end(), 3, 4);
  EXPECT_THAT(counts(*hold_out(images_of(labels, 5), 0.2, 1).validation), ::testing::ElementsAre(20, 8, 1, 0, 1));
  // With equal remainders the first classes get one more: 10 of 4 x 25 are 2.5 each.
  EXPECT_THAT(counts(*hold_out(images_of(in_turns(100, 4), 4), 10, 1).validation), ::testing::ElementsAre(3, 3, 2, 2));
}

TEST(HeldOut, AShareLeavesEveryClassAnImageAndANumberIsExact) {
  // 30 classes of 1 image and one of 10.
  std::vector<uint8_t> labels(10, 30);
  for (uint8_t c = 0; c < 30; ++c) labels.push_back(c);
  const auto parts = [&](double wanted) {
    const std::vector<int64_t> held = counts(*hold_out(images_of(labels, 31), wanted, 1).validation);
    return std::pair(std::accumulate(held.begin(), held.end() - 1, int64_t{0}), held.back());
  };
  EXPECT_EQ(parts(0.25), std::pair(int64_t{0}, int64_t{3}));  // 2.5 of 10; the others would lose their only image
  EXPECT_EQ(parts(10), std::pair(int64_t{6}, int64_t{4}));

  const std::vector<uint8_t> singles(labels.begin() + 10, labels.end());
  EXPECT_THAT(message_of([&] { hold_out(images_of(singles, 31), 0.25, 1); }),
              AllOf(HasSubstr("data.validation = 0.25"), HasSubstr("give a larger share, or a number of images")));
  EXPECT_EQ(hold_out(images_of(singles, 31), 8, 1).validation->size(), 8);
}

TEST(HeldOut, TheSeedChoosesAndNothingElseDoes) {
  const auto labels = in_turns(400, 10);
  const auto held = [&](uint64_t seed) { return numbers_in(*hold_out(images_of(labels, 10), 0.1, seed).validation); };
  EXPECT_EQ(held(1), held(1));
  EXPECT_NE(held(1), held(2));
  // Images are chosen at random, not the first or last of a class: about half are in the first half of each class's 40
  // images.
  int64_t first_half = 0;
  for (uint64_t seed = 0; seed < 50; ++seed)
    for (const int64_t number : held(seed)) first_half += number < 200;
  EXPECT_NEAR(static_cast<double>(first_half) / (50 * 40), 0.5, 0.05);
}

TEST(HeldOut, PartsSayWhatTheDataSetSays) {
  class Named : public MemoryDataset {
   public:
    Named() : MemoryDataset({1, 1, 1}, 2, {7, 8, 9, 10}, {0, 1, 0, 1}, {"cat", "dog"}) {}
    std::string name(int64_t index) const override { return std::to_string(index) + ".jpg"; }
    bool depends_on_view() const override { return true; }
    void read(int64_t index, const View& view, uint8_t* pixels) const override {
      *pixels = static_cast<uint8_t>(100 * view.number + index);
    }
  };
  const HeldOut held = hold_out(std::make_shared<Named>(), 2, 1);
  for (const Dataset* part : {held.train.get(), held.validation.get()}) {
    EXPECT_EQ(part->image(), (Shape{1, 1, 1}));
    EXPECT_THAT(part->class_names(), ::testing::ElementsAre("cat", "dog"));
    EXPECT_TRUE(part->depends_on_view());
    for (int64_t i = 0; i < part->size(); ++i) {
      uint8_t pixel = 0;
      part->read(i, {.number = 1}, &pixel);
      EXPECT_EQ(part->name(i), std::to_string(pixel - 100) + ".jpg");
      EXPECT_EQ(part->label(i), pixel % 2);
    }
  }
  EXPECT_NE(held.train->checksum(), held.validation->checksum());
  EXPECT_EQ(held.train->checksum(), hold_out(std::make_shared<Named>(), 2, 1).train->checksum());
}

TEST(HeldOut, StatisticsAreThoseOfThePart) {
  const auto all = images_of(in_turns(100, 10), 10);
  const HeldOut held = hold_out(all, 0.3, 5);
  double mean = 0;
  for (const int64_t number : numbers_in(*held.train)) mean += static_cast<double>(number) / 70;
  EXPECT_NEAR(compute_statistics(*held.train).channel_mean[0], mean, 1e-9);
  EXPECT_NE(compute_statistics(*held.train).channel_mean, compute_statistics(*all).channel_mean);
}

TEST(HeldOut, NoneAndAllAreErrorsThatSayWhatIsWanted) {
  const auto all = images_of(in_turns(100, 10), 10);
  for (const double wanted : {0.004, 0.999, 100.0, 1e9})
    EXPECT_THAT(message_of([&] { hold_out(all, wanted, 1); }),
                AllOf(HasSubstr("of the 100 training images out, wanted 1 to 99"), HasSubstr("data.validation = ")))
        << wanted;
  EXPECT_THAT(message_of([] { hold_out(images_of(in_turns(1, 1), 1), 0.5, 1); }),
              HasSubstr("data.validation: one training image cannot be divided"));
}

}  // namespace
}  // namespace owt::held_out_test
