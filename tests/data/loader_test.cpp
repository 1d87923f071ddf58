#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "data/order.h"
#include "src/system/activity.h"
#include "src/system/check.h"
#include "tests/data/batches.h"
#include "tests/support/few_threads.h"
#include "tests/support/message_of.h"

namespace owt::loader_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LoaderSettings settings(int64_t size, int64_t batch) {
  return {.dataset = numbered_images(size),
          .augmenter = std::make_shared<Augmenter>(AugmentSettings{.crop = 3, .pad = 1, .mirror = true, .color = 1},
                                                   Shape{4, 4, 3}),
          .batch = batch,
          .seed = 11};
}

TEST(Loader, WalksThroughTheOrderOfEveryEpoch) {
  const auto batches = run(settings(10, 4), 6);
  std::vector<int64_t> epochs[2];
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(batches[i].epoch, static_cast<int64_t>(i / 3));
    EXPECT_EQ(batches[i].step_in_epoch, static_cast<int64_t>(i % 3));
    EXPECT_EQ(batches[i].step_rows, i % 3 == 2 ? 2 : 4);
    epochs[i / 3].insert(epochs[i / 3].end(), batches[i].labels.begin(), batches[i].labels.end());
  }
  EXPECT_EQ(epochs[0], epoch_order(11, 0, 10, true));
  EXPECT_EQ(epochs[1], epoch_order(11, 1, 10, true));
}

TEST(Loader, ThreadsThatCannotBeStartedAreAnError) {
  LoaderSettings made = settings(10, 4);
  made.threads = 64;
  const FewThreads few(2);
  EXPECT_THAT(message_of([&] { Loader loader(made); }), HasSubstr("data.loader_threads"));
}

TEST(Loader, AugmentsBySampleAndEpoch) {
  const LoaderSettings made = settings(10, 4);
  const auto batches = run(made, 4);
  std::vector<uint8_t> pixels(48);
  std::vector<float> wanted(27);
  for (const Copy& batch : batches)
    for (size_t row = 0; row < batch.labels.size(); ++row) {
      made.dataset->read(batch.labels[row], View{}, pixels.data());
      made.augmenter->make({.training = true, .seed = 11, .epoch = batch.epoch}, batch.labels[row], pixels.data(),
                           wanted.data());
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), batch.images.begin() + static_cast<long>(row) * 27));
    }
}

TEST(Loader, WritesTheTargetsBesideTheLabels) {
  LoaderSettings made = settings(10, 4);
  made.dataset = std::make_shared<TargetedImages>(10);
  for (const bool training : {true, false})
    for (const bool raw : {true, false}) {
      made.training = training;
      if (raw) made.augmenter = nullptr;
      Loader loader(made);
      const Batch& batch = loader.next(Stream());
      ASSERT_EQ(batch.labels.shape(), (Shape{4, 4}));
      const std::vector<SampleDraw> order = orders_of(made).draws(0);
      for (int64_t row = 0; row < 4; ++row) {
        const int32_t* label = batch.labels.data<int32_t>() + row * 4;
        EXPECT_EQ(label[0], 2);
        for (int64_t c = 0; c < 3; ++c)
          EXPECT_EQ(target_of(label[1 + c]), TargetedImages::target(order[static_cast<size_t>(row)].sample, c));
      }
      made.augmenter = settings(10, 4).augmenter;
    }
}

LoaderSettings balanced(int64_t batch) {
  LoaderSettings made = settings(40, batch);
  made.dataset = std::make_shared<MemoryDataset>(images_of_counts({1, 4, 35}, made.dataset->image()));
  made.sampling = Sampling::kBalanced;
  return made;
}

TEST(Loader, WithBalancedSamplingAugmentsBySampleAndPass) {
  const LoaderSettings made = balanced(40);
  const EpochOrders orders(*made.dataset, made.seed, true, Sampling::kBalanced);
  std::vector<uint8_t> pixels(48);
  std::vector<float> wanted(27);
  std::vector<std::vector<float>> of_the_only_image;
  for (const Copy& batch : run(made, 2)) {
    const std::vector<SampleDraw> draws = orders.draws(batch.epoch);
    for (size_t row = 0; row < draws.size(); ++row) {
      made.dataset->read(draws[row].sample, View{}, pixels.data());
      made.augmenter->make({.training = true, .seed = 11, .epoch = draws[row].pass}, draws[row].sample, pixels.data(),
                           wanted.data());
      EXPECT_EQ(batch.labels[row], made.dataset->label(draws[row].sample));
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), batch.images.begin() + static_cast<long>(row) * 27));
      if (batch.labels[row] == 0) of_the_only_image.push_back(wanted);
    }
  }
  EXPECT_GE(of_the_only_image.size(), 26u);  // a third of 80 places
  const std::set<std::vector<float>> different(of_the_only_image.begin(), of_the_only_image.end());
  EXPECT_EQ(different.size(), of_the_only_image.size());
}

TEST(Loader, ReadsInOrderAndWithoutRandomnessInEvaluation) {
  LoaderSettings made = settings(5, 3);
  made.training = false;
  Loader loader(made);
  EXPECT_EQ(loader.steps_per_epoch(), 2);
  std::vector<uint8_t> pixels(48);
  std::vector<float> wanted(27);
  made.dataset->read(0, View{}, pixels.data());
  made.augmenter->make({}, 0, pixels.data(), wanted.data());
  const Copy first = copy(loader.next(Stream()));
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), first.images.begin()));
  EXPECT_THAT(first.labels, ElementsAre(0, 1, 2));
  EXPECT_THAT(copy(loader.next(Stream())).labels, ElementsAre(3, 4));
  const Copy again = copy(loader.next(Stream()));
  EXPECT_EQ(again.images, first.images);
  EXPECT_EQ(again.labels, first.labels);
}

TEST(Loader, RecordsTheStagesOfEveryImage) {
  LoaderSettings made = settings(10, 4);
  made.record = std::make_shared<LoadRecord>();
  made.threads = 2;
  int64_t rows = 0;
  for (const Copy& batch : run(made, 5)) rows += std::ssize(batch.labels);  // it ends with its threads
  const LoadWork work = made.record->total();
  const auto of = [&](LoadStage stage) { return work.stage_s[static_cast<size_t>(stage)]; };
  EXPECT_GE(work.images, rows);  // the threads are ahead
  EXPECT_GT(of(LoadStage::kRead), 0);
  EXPECT_GT(of(LoadStage::kAugment), 0);
  EXPECT_EQ(of(LoadStage::kDecode) + of(LoadStage::kResize) + of(LoadStage::kMix), 0);
  EXPECT_LE(of(LoadStage::kRead) + of(LoadStage::kAugment), work.staged_s + 1e-9);

  made.augmenter = std::make_shared<Augmenter>(AugmentSettings{.mix = {.mixup = 1}}, Shape{4, 4, 3});
  made.record = std::make_shared<LoadRecord>();
  run(made, 5);
  EXPECT_GT(made.record->total().stage_s[static_cast<size_t>(LoadStage::kMix)], 0);
}

TEST(Loader, KeepsTheOrderOfTheFilesWithoutShuffling) {
  LoaderSettings made = settings(5, 3);
  made.shuffle = false;
  EXPECT_THAT(run(made, 1)[0].labels, ElementsAre(0, 1, 2));
}

void expect_that_ranks_share_batches(const LoaderSettings& made, int steps) {
  const auto whole = run(made, steps);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<Copy> joined(whole.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto part = run(of_rank(made, ranks, rank), steps);
      for (size_t i = 0; i < whole.size(); ++i) {
        Copy& to = joined[i];
        to.images.insert(to.images.end(), part[i].images.begin(), part[i].images.end());
        to.labels.insert(to.labels.end(), part[i].labels.begin(), part[i].labels.end());
        to.epoch = part[i].epoch, to.step_in_epoch = part[i].step_in_epoch, to.step_rows = part[i].step_rows;
      }
    }
    EXPECT_EQ(joined, whole) << ranks << " ranks";
  }
}

TEST(Loader, RowsOfAllRanksTogetherAreTheBatchOfOneRank) {
  expect_that_ranks_share_batches(settings(22, 10), 6);  // two epochs, the last step of each with 2 rows
}

TEST(Loader, RowsOfAllRanksTogetherAreTheBalancedBatchOfOneRank) { expect_that_ranks_share_batches(balanced(9), 12); }

TEST(Loader, GivesTensorsOfNoRowsToARankWithoutRows) {
  Loader loader(of_rank(settings(10, 2), 4, 3));
  for (int i = 0; i < 7; ++i) {
    const Batch& batch = loader.next(Stream());
    EXPECT_EQ(batch.images.shape(), (Shape{0, 3, 3, 3}));
    EXPECT_EQ(batch.labels.shape(), (Shape{0}));
    EXPECT_EQ(batch.step_rows, 2);
  }
}

TEST(Loader, TakesTheWholeSetWhereTheBatchIsLarger) {
  const auto batches = run(settings(5, 100), 3);
  EXPECT_EQ(batches[2].labels.size(), 5u);
  EXPECT_EQ(batches[2].epoch, 2);
}

TEST(Loader, GivesTheSameWithAnyNumberOfThreadsAndSlots) {
  const auto wanted = run(settings(100, 33), 12);
  for (const int threads : {1, 2, 5})
    for (const int slots : {2, 3, 8}) {
      LoaderSettings made = settings(100, 33);
      made.threads = threads;
      made.slots = slots;
      EXPECT_EQ(run(made, 12), wanted) << threads << " threads, " << slots << " slots";
    }
}

TEST(Loader, StartedInTheMiddleContinuesAsIfItHadRunThere) {
  const auto whole = run(settings(10, 4), 9);
  LoaderSettings made = settings(10, 4);
  made.epoch = 1, made.images_in_epoch = 8;  // step 5
  EXPECT_EQ(run(made, 4), std::vector<Copy>(whole.begin() + 5, whole.end()));
  made.epoch = 1, made.images_in_epoch = 10;  // after the last step of epoch 1
  EXPECT_EQ(run(made, 3), std::vector<Copy>(whole.begin() + 6, whole.end()));
}

TEST(Loader, KeepsABatchUntouchedUntilTheNextCall) {
  LoaderSettings made = settings(64, 8);
  made.threads = 2;
  made.slots = 2;
  Loader loader(made), ahead(made);
  for (int i = 0; i < 20; ++i) {
    const Batch& batch = loader.next(Stream());
    const Copy before = copy(batch);
    for (int j = 0; j < 3; ++j) ahead.next(Stream());  // time for the threads to go wrong
    EXPECT_EQ(copy(batch), before);
  }
}

TEST(Loader, KeepsAsManyBatchesAsAreHeld) {
  LoaderSettings made = settings(64, 8);
  made.threads = 2;
  made.slots = 5;
  made.held = 3;
  Loader loader(made), ahead(made);
  std::vector<const Batch*> held;
  std::vector<Copy> before;
  for (size_t i = 0; i < 20; ++i) {
    held.push_back(&loader.next(Stream()));
    before.push_back(copy(*held[i]));
    for (int j = 0; j < 3; ++j) ahead.next(Stream());  // time for the threads to go wrong
    for (size_t k = i < 2 ? 0 : i - 2; k <= i; ++k) EXPECT_EQ(copy(*held[k]), before[k]);
  }
}

TEST(Loader, WithoutAnAugmenterGivesTheImagesAsReadAndTheirPlaces) {
  LoaderSettings made = settings(10, 4);
  made.augmenter = nullptr;
  Loader loader(made);
  std::vector<uint8_t> pixels(48);
  for (int step = 0; step < 4; ++step) {
    const Batch& batch = loader.next(Stream());
    const int64_t rows = step == 2 ? 2 : 4;
    ASSERT_EQ(batch.images.shape(), (Shape{rows, 4, 4, 3}));
    ASSERT_EQ(batch.samples.shape(), (Shape{rows}));
    for (int64_t row = 0; row < rows; ++row) {
      const SampleDraw& draw = static_cast<const SampleDraw*>(batch.samples.raw())[row];
      EXPECT_EQ(draw.pass, batch.epoch);
      const int64_t sample = draw.sample;
      EXPECT_EQ(batch.labels.data<int32_t>()[row], sample);
      made.dataset->read(sample, View{}, pixels.data());
      EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), batch.images.data<uint8_t>() + row * 48));
    }
  }
}

TEST(Loader, GivesEveryStepOfAnEvaluationOnceForEachView) {
  LoaderSettings made = settings(5, 3);
  made.training = false;
  made.views = 10;
  Loader loader(made);
  EXPECT_EQ(loader.steps_per_epoch(), 20);
  std::vector<uint8_t> pixels(48);
  std::vector<float> wanted(27);
  for (int i = 0; i < 20; ++i) {
    const Copy batch = copy(loader.next(Stream()));
    const int first = i < 10 ? 0 : 3;
    ASSERT_EQ(batch.labels.size(), i < 10 ? 3u : 2u);
    EXPECT_EQ(batch.labels[0], first);
    made.dataset->read(first, View{}, pixels.data());
    made.augmenter->make({.number = i % 10}, first, pixels.data(), wanted.data());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), batch.images.begin())) << "batch " << i;
  }
}

TEST(Loader, GivesShiftedViewsTheNumbersThatTheyHave) {
  LoaderSettings made = settings(5, 5);
  made.training = false;
  made.views = Views::shift();
  Loader loader(made);
  EXPECT_EQ(loader.steps_per_epoch(), 6);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(loader.next(Stream()).view, 10 + i % 6);
}

TEST(Loader, IsReadyOnceTheNextBatchIsMade) {
  LoaderSettings made = settings(64, 8);
  Loader loader(made);
  while (!loader.ready()) std::this_thread::yield();
  EXPECT_EQ(copy(loader.next(Stream())), run(made, 1)[0]);
}

TEST(Loader, IsNotReadyWhereTheNextBatchCannotBeMade) {
  const auto dataset = std::make_shared<CountingDataset>(40, 5);
  Loader loader(counting(dataset, 10));
  EXPECT_THROW(loader.next(Stream()), Error);
  EXPECT_FALSE(loader.ready());
}

TEST(Loader, ThrowsWhatWentWrongInItsThreads) {
  for (const int threads : {1, 3}) {
    LoaderSettings made = counting(std::make_shared<CountingDataset>(40, 25), 10);
    made.threads = threads;
    Loader loader(made);
    const auto three_steps = [&] {
      for (int i = 0; i < 3; ++i) loader.next(Stream());
    };
    EXPECT_THAT(message_of(three_steps), HasSubstr("image 25 is damaged"));
    EXPECT_THROW(loader.next(Stream()), Error) << "and again";
  }
}

// The first image is slow: it waits until another one has failed, and a while longer, in which the loader hears of it.
class SlowFirstImage : public CountingDataset {
 public:
  SlowFirstImage(int64_t size, int64_t bad) : CountingDataset(size, bad) {}
  void read(int64_t index, const View& view, uint8_t* pixels) const override {
    if (index == 0) {
      failed_.wait(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    try {
      CountingDataset::read(index, view, pixels);
    } catch (...) {
      failed_ = true;
      failed_.notify_all();
      throw;
    }
  }

 private:
  mutable std::atomic<bool> failed_{false};
};

TEST(Loader, AnErrorInALaterStepDoesNotEndAnEarlierOne) {
  for (int i = 0; i < 20; ++i) {
    LoaderSettings made = counting(std::make_shared<SlowFirstImage>(40, 10), 10);
    made.threads = 3;
    Loader loader(made);
    EXPECT_EQ(loader.next(Stream()).step_in_epoch, 0);
    EXPECT_THAT(message_of([&] { loader.next(Stream()); }), HasSubstr("image 10 is damaged"));
  }
}

// Its images are delivered only after a release.
class HangingDataset : public CountingDataset {
 public:
  HangingDataset() : CountingDataset(40, -1) {}
  void read(int64_t index, const View& view, uint8_t* pixels) const override {
    let_go.wait(false);
    CountingDataset::read(index, view, pixels);
  }
  mutable std::atomic<bool> let_go{false};
};

TEST(Loader, SaysThatItsRankWaitsForDataAndThatImagesCome) {
  const auto dataset = std::make_shared<HangingDataset>();
  std::thread rank([&] {
    this_thread_is_the_rank();
    Loader loader(counting(dataset, 10));
    loader.next(Stream());
  });
  while (activity().waits_for != WaitsFor::kData) std::this_thread::yield();
  const uint64_t works = activity().works;
  dataset->let_go = true;
  dataset->let_go.notify_all();
  rank.join();
  EXPECT_EQ(activity().waits_for, WaitsFor::kNothing);
  EXPECT_GE(activity().works, works + 9);  // the first image had begun
}

TEST(Loader, RejectsRowsOutsideTheStep) {
  LoaderSettings made = settings(10, 4);
  made.rows = [](int64_t rows) { return Slice{0, rows == 4 ? 4 : 3}; };  // the last step has 2
  EXPECT_THROW(Loader{made}, Error);
}

TEST(Loader, MakesNoMoreThanItsSlotsAhead) {
  const auto dataset = std::make_shared<CountingDataset>(1000, -1);
  LoaderSettings made = counting(dataset, 10);
  made.threads = 2;
  Loader loader(made);
  for (int i = 0; i < 5; ++i) loader.next(Stream());
  // The fifth batch is in the caller's hands; of the three slots two are free to be filled.
  EXPECT_LE(dataset->reads, 70);
}

TEST(Loader, StopsWithoutBeingRead) {
  const auto dataset = std::make_shared<CountingDataset>(1000, -1);
  for (int i = 0; i < 20; ++i) Loader loader(counting(dataset, 10));
  EXPECT_LE(dataset->reads, 20 * 30);
}

TEST(Loader, RejectsAnEmptyDataSet) {
  EXPECT_THROW(Loader(counting(std::make_shared<CountingDataset>(0, -1), 10)), Error);
}

}  // namespace
}  // namespace owt::loader_test
