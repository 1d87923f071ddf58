#include "data/device_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/data/batches.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::device_batches_test {
namespace {

using testing::HasSubstr;
using From = AugmentSettings::From;

constexpr int64_t kStreamed = 0, kResident = 1 << 20;  // bytes that may stay on the GPU

// On every GPU there is, with the data set there and not.
class DeviceBatches : public testing::TestWithParam<std::tuple<Device, int64_t>> {
 protected:
  std::unique_ptr<BatchSource> source(LoaderSettings settings, Precision precision = Precision::kFp32) const {
    return make_batches({device(), precision}, std::move(settings), std::get<1>(GetParam()));
  }
  // Steps that the device is waited for one by one.
  std::vector<Copy> run_here(const LoaderSettings& settings, int steps, Precision precision = Precision::kFp32) const {
    return run(*source(settings, precision), steps, stream_);
  }
  Device device() const { return std::get<0>(GetParam()); }
  bool resident() const { return std::get<1>(GetParam()) == kResident; }

  Stream stream_{device()};
};

std::vector<Device> gpus() {
  std::vector<Device> found = devices();
  std::erase(found, Device::kCpu);
  return found;
}

std::string name(const testing::TestParamInfo<std::tuple<Device, int64_t>>& info) {
  return concat(std::get<0>(info.param), std::get<1>(info.param) == kResident ? "_resident" : "_streamed");
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceBatches);
INSTANTIATE_TEST_SUITE_P(Gpus, DeviceBatches,
                         testing::Combine(testing::ValuesIn(gpus()), testing::Values(kStreamed, kResident)), name);

LoaderSettings settings(int64_t size, int64_t batch,
                        const AugmentSettings& augment = {.crop = 3, .pad = 1, .mirror = true}, int64_t colours = 3) {
  LoaderSettings made;
  made.dataset = numbered_images(size, colours);
  made.augmenter =
      std::make_shared<Augmenter>(augment, made.dataset->image(),
                                  augment.needs_statistics() ? compute_statistics(*made.dataset) : DatasetStatistics{});
  made.batch = batch;
  made.seed = 11;
  return made;
}

// Layouts for images of 6 x 6 x 3: for first layers of stride 4, 2 and 1, and one without a special kernel.
const ImageLayout kLayouts[] = {{6, 6, 3, 4, 4, 2, 2, 3, 3, 48},
                                {6, 6, 3, 2, 2, 3, 3, 5, 5, 16},
                                {6, 6, 3, 1, 1, 0, 0, 6, 6, 4},
                                {6, 6, 3, 1, 1, 0, 0, 6, 6, 8},
                                {6, 6, 3, 3, 2, 1, 4, 3, 5, 24}};

// The loader's batches in the layout, and in bf16 if requested.
std::vector<Copy> laid_out_run(const LoaderSettings& made, int steps, const ImageLayout& layout, Precision precision) {
  Loader loader(made);
  std::vector<Copy> batches;
  for (int i = 0; i < steps; ++i) {
    Batch batch = loader.next(Stream());
    if (batch.images.shape().rows() > 0) batch.images = laid_out(batch.images, layout);
    batches.push_back(copy(batch));
    if (precision == Precision::kBf16)
      for (float& value : batches.back().images) value = from_bf16(to_bf16(value));
  }
  return batches;
}

TEST_P(DeviceBatches, AreThoseOfALoaderOverTheEndOfEpochs) {
  const LoaderSettings made = settings(22, 10);  // 3 steps, the last of 2 rows
  EXPECT_EQ(run_here(made, 10), run(made, 10));
}

TEST_P(DeviceBatches, AreThoseOfALoaderInEpochsOfOneStep) {
  const LoaderSettings made = settings(7, 100);
  EXPECT_EQ(run_here(made, 8), run(made, 8));
}

TEST_P(DeviceBatches, AreThoseOfALoaderWithEveryAugmentation) {
  for (const int64_t crop : {0, 2, 3, 6, 8}) {  // 8: the pixels of a row are made together
    const LoaderSettings made = settings(
        40, 16, {.crop = crop, .pad = 2, .mirror = true, .scale = 0.3, .mean = From::kPixel, .std = From::kChannel});
    EXPECT_EQ(run_here(made, 6), run(made, 6)) << "crop " << crop;
  }
}

TEST_P(DeviceBatches, AreThoseOfALoaderWithMeansOfChannels) {
  const LoaderSettings made = settings(40, 16,
                                       {.crop = 3,
                                        .mirror = true,
                                        .mean = From::kValues,
                                        .std = From::kValues,
                                        .mean_values = {90, 100, 110.5},
                                        .std_values = {50, 60, 70}});
  EXPECT_EQ(run_here(made, 6), run(made, 6));
}

TEST_P(DeviceBatches, HaveTheColourOffsetsOfALoaderUpToRounding) {
  const LoaderSettings made = settings(40, 16, {.crop = 5, .pad = 1, .mirror = true, .color = 0.5, .scale = 1 / 64.0});
  const auto found = run_here(made, 6), wanted = run(made, 6);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_THAT(found[i].images, testing::Pointwise(testing::FloatNear(2e-6f), wanted[i].images));
}

TEST_P(DeviceBatches, HaveTheEigenvectorColoursOfALoaderUpToRounding) {
  LoaderSettings made = settings(40, 16);
  DatasetStatistics statistics;
  statistics.eigenvalues = {9000, 700, 80};
  statistics.eigenvectors = {0.6, 0.6, 0.5, -0.7, 0, 0.7, 0.4, -0.8, 0.4};
  const AugmentSettings augment{
      .crop = 3, .mirror = true, .pca = 0.1, .std = From::kValues, .mean_values = {}, .std_values = {50, 60, 70}};
  made.augmenter = std::make_shared<Augmenter>(augment, Shape{4, 4, 3}, statistics);
  const auto found = run_here(made, 6), wanted = run(made, 6);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_THAT(found[i].images, testing::Pointwise(testing::FloatNear(2e-6f), wanted[i].images));
}

TEST_P(DeviceBatches, AreThoseOfALoaderWhichChangesBytesErasesAndAlternatesMirrors) {
  for (const int64_t colours : {1, 3}) {
    const Shape image{24, 19, colours};
    std::vector<uint8_t> pixels(static_cast<size_t>(40 * image.elements())), labels(40);
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i / 7 % 241 / (1 + i % 3));
    AugmentSettings augment{.crop = 16, .pad = 1, .mirror = true, .alternate = true, .scale = 0.1};
    augment.jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
    augment.trivial = true;
    augment.erase = 0.5;
    LoaderSettings made = settings(40, 16);
    made.dataset = std::make_shared<MemoryDataset>(image, 1, pixels, labels);
    made.augmenter = std::make_shared<Augmenter>(augment, image);
    EXPECT_EQ(run_here(made, 12), run(made, 12)) << colours << " colours";
    made.training = false;
    EXPECT_EQ(run_here(made, 3), run(made, 3)) << colours << " colours";
  }
}

TEST_P(DeviceBatches, AreThoseOfALoaderWhichCutsSquaresOut) {
  LoaderSettings made = settings(40, 16, {.crop = 5, .pad = 1, .mirror = true, .scale = 0.3, .cutout = 2});
  for (const bool training : {true, false}) {
    made.training = training;
    EXPECT_EQ(run_here(made, 6), run(made, 6)) << training;
  }
}

TEST_P(DeviceBatches, AreThoseOfALoaderWhoseBorderReflects) {
  for (const bool training : {true, false}) {
    LoaderSettings made = settings(40, 16, {.crop = 3, .pad = 3, .reflect = true, .mirror = true, .scale = 0.3});
    made.training = training;
    EXPECT_EQ(run_here(made, 6), run(made, 6)) << training;
  }
}

TEST_P(DeviceBatches, AreThoseOfALoaderWhichMixesPairsForEveryRankAndLayout) {
  for (const auto precision : {Precision::kFp32, Precision::kBf16})
    for (const MixSettings& mix : {MixSettings{.mixup = 0.5, .cutmix = 1}, MixSettings{.cutmix = 1}})
      for (int ranks = 1; ranks <= 3; ++ranks)
        for (int rank = 0; rank < ranks; ++rank)
          for (const ImageLayout* layout : {static_cast<const ImageLayout*>(nullptr), &kLayouts[0], &kLayouts[4]}) {
            if (layout && precision == Precision::kBf16) continue;  // the loader rounds before it mixes
            AugmentSettings augment{.crop = 6, .pad = 2, .mirror = true, .scale = 0.01};
            augment.mix = mix;
            augment.trivial = true;
            LoaderSettings made = of_rank(settings(25, 9, augment), ranks, rank);
            made.images = activation_type(precision);
            const auto batches = source(made, precision);
            if (layout) batches->lay_out([&](int64_t) { return *layout; });
            const auto found = run(*batches, 7, stream_);
            const auto wanted = layout ? laid_out_run(made, 7, *layout, precision) : run(made, 7);
            EXPECT_EQ(found, wanted) << "rank " << rank << " of " << ranks << ", " << name_of(precision)
                                     << (layout ? ", laid out" : "");
          }
}

// Images of the small classes come several times in an epoch, each time with other random numbers.
TEST_P(DeviceBatches, AreThoseOfALoaderWithBalancedSampling) {
  AugmentSettings augment{.crop = 6, .pad = 2, .mirror = true, .alternate = true, .scale = 0.1};
  augment.jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
  augment.trivial = true;
  augment.erase = 0.5;
  for (const MixSettings& mix : {MixSettings{}, MixSettings{.mixup = 0.5, .cutmix = 1}})
    for (int ranks = 1; ranks <= 2; ++ranks)
      for (int rank = 0; rank < ranks; ++rank) {
        augment.mix = mix;
        LoaderSettings made = of_rank(settings(40, 9, augment), ranks, rank);
        made.dataset = std::make_shared<MemoryDataset>(images_of_counts({1, 4, 35}, made.dataset->image()));
        made.sampling = Sampling::kBalanced;
        EXPECT_EQ(run_here(made, 12), run(made, 12)) << "rank " << rank << " of " << ranks;
      }
}

TEST_P(DeviceBatches, HaveTheColourOffsetsOfALoaderWithBalancedSamplingUpToRounding) {
  LoaderSettings made = settings(40, 16, {.crop = 5, .pad = 1, .mirror = true, .color = 0.5, .scale = 1 / 64.0});
  made.dataset = std::make_shared<MemoryDataset>(images_of_counts({1, 4, 35}, made.dataset->image()));
  made.sampling = Sampling::kBalanced;
  const auto found = run_here(made, 6), wanted = run(made, 6);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_THAT(found[i].images, testing::Pointwise(testing::FloatNear(2e-6f), wanted[i].images));
}

TEST_P(DeviceBatches, HaveTheTargetsOfALoader) {
  for (const bool training : {true, false})
    for (const MixSettings& mix : {MixSettings{}, MixSettings{.mixup = 0.5}})
      for (int rank = 0; rank < 3; ++rank) {
        AugmentSettings augment{.crop = 3, .pad = 1};
        augment.mix = mix;
        LoaderSettings made = of_rank(settings(25, 9, augment), 3, rank);
        made.dataset = std::make_shared<TargetedImages>(25);
        made.training = training;
        const auto wanted = run(made, 7);
        EXPECT_EQ(wanted[0].labels.size(), mix.any() ? 18u : 12u);
        EXPECT_EQ(run_here(made, 7), wanted) << "rank " << rank << (training ? " in training" : " in evaluation");
      }
}

TEST_P(DeviceBatches, AreThoseOfALoaderInEvaluation) {
  LoaderSettings made = settings(22, 10, {.crop = 3, .mirror = true, .color = 1});
  made.training = false;
  EXPECT_EQ(run_here(made, 7), run(made, 7));
}

TEST_P(DeviceBatches, AreThoseOfALoaderWithoutShuffling) {
  LoaderSettings made = settings(22, 10);
  made.shuffle = false;
  EXPECT_EQ(run_here(made, 7), run(made, 7));
}

TEST_P(DeviceBatches, AreThoseOfALoaderStartedInTheMiddle) {
  LoaderSettings made = settings(22, 10);
  for (const auto& [epoch, images] : {std::pair{0, 20}, {1, 10}, {1, 22}, {0, 3}, {1, 15}}) {
    made.epoch = epoch, made.images_in_epoch = images;
    EXPECT_EQ(run_here(made, 5), run(made, 5)) << "from image " << images << " of epoch " << epoch;
  }
}

TEST_P(DeviceBatches, AreThoseOfALoaderForEveryRank) {
  for (int ranks = 2; ranks <= 3; ++ranks)
    for (int rank = 0; rank < ranks; ++rank) {
      // with 3 ranks, the last has a step of 0 rows
      const LoaderSettings made = of_rank(settings(22, 10), ranks, rank);
      EXPECT_EQ(run_here(made, 7), run(made, 7)) << "rank " << rank << " of " << ranks;
    }
}

TEST_P(DeviceBatches, AreThoseOfALoaderWithManyThreads) {
  LoaderSettings made = settings(200, 33);
  made.threads = 3;
  EXPECT_EQ(run_here(made, 15), run(made, 15));
}

TEST_P(DeviceBatches, AreRoundedToBf16) {
  const LoaderSettings made = settings(22, 10, {.crop = 4, .pad = 1, .scale = 1 / 3.0});
  auto wanted = run(made, 6);
  for (Copy& batch : wanted)
    for (float& value : batch.images) value = from_bf16(to_bf16(value));
  EXPECT_EQ(run_here(made, 6, Precision::kBf16), wanted);
}

TEST_P(DeviceBatches, AreOfTheTypeOfThePrecision) {
  const auto batches = source(settings(4, 2), Precision::kTf32);
  const Batch& batch = batches->next(stream_);
  EXPECT_EQ(batch.images.dtype(), DType::kF32);
  EXPECT_EQ(batch.images.device(), device());
  EXPECT_EQ(batch.labels.device(), device());
}

TEST_P(DeviceBatches, LieInTwoPlacesInTurn) {
  const auto batches = source(settings(22, 10));
  const Batch first = batches->next(stream_), second = batches->next(stream_);
  EXPECT_NE(second.images.raw(), first.images.raw());
  EXPECT_NE(second.labels.raw(), first.labels.raw());
  for (int i = 2; i < 10; ++i) {
    const Batch& batch = batches->next(stream_);
    EXPECT_EQ(batch.images.raw(), (i % 2 == 0 ? first : second).images.raw());
    EXPECT_EQ(batch.labels.raw(), (i % 2 == 0 ? first : second).labels.raw());
  }
}

TEST_P(DeviceBatches, ComeInTheLayoutThatIsAskedFor) {
  AugmentSettings augment{.crop = 6, .pad = 2, .mirror = true, .mean = From::kValues};
  augment.mean_values = {90, 100, 110.5};
  for (const auto precision : {Precision::kFp32, Precision::kBf16})
    for (const ImageLayout& layout : kLayouts)
      for (const auto mean : {From::kValues, From::kPixel}) {
        augment.mean = mean;
        const LoaderSettings made = settings(22, 10, augment);
        const auto batches = source(made, precision);
        batches->lay_out([&](int64_t) { return layout; });
        EXPECT_EQ(run(*batches, 7, stream_), laid_out_run(made, 7, layout, precision))
            << layout.block_h << " x " << layout.block_w << " pixels, " << layout.channels << " channels";
      }
}

TEST_P(DeviceBatches, OfOtherThanThreeColoursComeInTheLayoutThatIsAskedFor) {
  for (const int colours : {1, 4}) {
    const LoaderSettings made = settings(22, 10, {.crop = 6, .pad = 2, .mirror = true}, colours);
    const ImageLayout layout{6, 6, colours, 1, 1, 0, 0, 6, 6, 8};
    const auto batches = source(made);
    batches->lay_out([&](int64_t) { return layout; });
    EXPECT_EQ(run(*batches, 7, stream_), laid_out_run(made, 7, layout, Precision::kFp32)) << colours << " colours";
  }
}

// The rows of the step count, of which this rank has half.
TEST_P(DeviceBatches, ComeInALayoutForEachNumberOfRows) {
  const LoaderSettings made = of_rank(settings(22, 10, {.crop = 6, .pad = 2, .mirror = true}), 2, 0);
  const auto batches = source(made);
  batches->lay_out([&](int64_t rows) { return rows == 2 ? std::optional(kLayouts[0]) : std::nullopt; });
  const auto plain = run(made, 7), packed = laid_out_run(made, 7, kLayouts[0], Precision::kFp32);
  const auto found = run(*batches, 7, stream_);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], (i % 3 == 2 ? packed : plain)[i]) << i;
}

TEST_P(DeviceBatches, KeepTheLayoutsApartFromTheMomentTheyAreAskedFor) {
  const LoaderSettings made = settings(22, 10, {.crop = 6, .pad = 2, .mirror = true});
  const auto plain = run(made, 9), packed = laid_out_run(made, 9, kLayouts[0], Precision::kFp32);
  const auto batches = source(made);
  const auto next = [&] {
    const Batch& batch = batches->next(stream_);
    stream_.synchronize();
    return copy(batch);
  };
  EXPECT_EQ(next(), plain[0]);
  batches->lay_out([&](int64_t) { return kLayouts[0]; });
  const Copy made_before_or_not = next();
  EXPECT_TRUE(made_before_or_not == plain[1] || made_before_or_not == packed[1]);
  for (size_t i = 2; i < 9; ++i) EXPECT_EQ(next(), packed[i]) << i;
}

TEST_P(DeviceBatches, OfAnotherSizeThanTheLayoutAreAnError) {
  const auto batches = source(settings(22, 10, {.crop = 3}));
  batches->lay_out([&](int64_t) { return kLayouts[0]; });
  EXPECT_THROW(batches->next(stream_), Error);
}

// The host continues at once; the streams keep the order.
TEST_P(DeviceBatches, AreRightForWorkThatIsQueuedFarAhead) {
  constexpr int kSteps = 40;
  const LoaderSettings made = settings(64, 8);
  const auto batches = source(made);
  std::vector<Batch> kept;
  for (int i = 0; i < kSteps; ++i) {
    Batch batch = batches->next(stream_);
    const Tensor images = batch.images, labels = batch.labels;
    batch.images = Tensor(images.shape(), images.dtype(), device());
    batch.labels = Tensor(labels.shape(), labels.dtype(), device());
    batch.images.copy_from(images, stream_);
    batch.labels.copy_from(labels, stream_);
    kept.push_back(batch);
  }
  stream_.synchronize();
  const auto wanted = run(made, kSteps);
  for (size_t i = 0; i < kSteps; ++i) EXPECT_EQ(copy(kept[i]), wanted[i]) << "step " << i;
}

TEST_P(DeviceBatches, AreRightForASlowConsumer) {
  const LoaderSettings made = settings(64, 8);
  const auto batches = source(made), meanwhile = source(made);
  const auto wanted = run(made, 9);
  for (size_t i = 0; i < 9; ++i) {
    const Batch& batch = batches->next(stream_);
    run(*meanwhile, 2, Stream(device()));  // time for copies and threads to go wrong
    stream_.synchronize();
    EXPECT_EQ(copy(batch), wanted[i]) << "step " << i;
  }
}

TEST_P(DeviceBatches, CanBeGivenUpAtAnyTime) {
  for (int steps = 0; steps < 8; ++steps) {
    const auto batches = source(settings(64, 8));
    for (int i = 0; i < steps; ++i) batches->next(stream_);
  }
}

TEST_P(DeviceBatches, OfOneDataSetReadItOnceWhereItStaysOnTheGpu) {
  const auto dataset = std::make_shared<CountingDataset>(100, -1);
  const auto training = source(counting(dataset, 10)), test = source(counting(dataset, 25));
  run(*training, 30, stream_);
  run(*test, 12, stream_);
  if (resident())
    EXPECT_EQ(dataset->reads, 100);
  else
    EXPECT_GE(dataset->reads, 600);
}

TEST_P(DeviceBatches, ThrowWhatWentWrongInReading) {
  EXPECT_THAT(message_of([&] {
                const auto batches = source(counting(std::make_shared<CountingDataset>(40, 25), 10));
                for (int i = 0; i < 3; ++i) batches->next(stream_);
              }),
              HasSubstr("image 25 is damaged"));
}

TEST_P(DeviceBatches, RejectAnEmptyDataSet) {
  EXPECT_THAT(message_of([&] { source(counting(std::make_shared<CountingDataset>(0, -1), 10)); }),
              HasSubstr("holds no images"));
}

TEST(DeviceBatchesOnCuda, ComeFromTheGpusCopyWhereImagesAndLabelsFit) {
  if (gpus().empty()) GTEST_SKIP() << "there is no GPU";
  for (const Device gpu : gpus()) {
    const auto reads = [&](int64_t bytes) {
      const auto dataset = std::make_shared<CountingDataset>(100, -1);
      run(*make_batches(gpu, counting(dataset, 10), bytes), 20, Stream(gpu));
      return dataset->reads.load();
    };
    EXPECT_EQ(reads(100 * (1 + 4)), 100);
    EXPECT_GE(reads(100 * (1 + 4) - 1), 200);
  }
}

TEST(DeviceBatchesOnTheCpu, AreThoseOfALoader) {
  const LoaderSettings made = settings(22, 10);
  EXPECT_EQ(run(*make_batches(Device::kCpu, made, kResident), 7), run(made, 7));
}

}  // namespace
}  // namespace owt::device_batches_test
