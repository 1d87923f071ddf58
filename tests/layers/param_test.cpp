#include "layers/base/param.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::param_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Type = Initializer::Type;

Param param_of(const Shape& shape, const Initializer& init = {}) {
  Param param;
  param.name = "layer.weight";
  param.full_shape = param.file_shape = shape;
  param.part = {0, shape.rows()};
  param.init = init;
  return param;
}

std::vector<float> initial(Param param, uint64_t seed = 1) {
  param.initialize(seed);
  return download(param.value);
}

double mean_of(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double deviation_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(Initializer, ConstantIsTheValueEverywhere) {
  EXPECT_THAT(initial(param_of({3, 2}, {.type = Type::kConstant, .value = 0.5})), Each(0.5f));
}

TEST(Initializer, GaussianHasMeanZeroAndItsDeviation) {
  const std::vector<float> values = initial(param_of({100, 400}, {.type = Type::kGaussian, .std = 0.01}));
  EXPECT_NEAR(mean_of(values), 0, 0.0003);  // six times 0.01 / sqrt(40000)
  EXPECT_NEAR(deviation_of(values), 0.01, 0.0003);
}

TEST(Initializer, UniformFillsItsRange) {
  const std::vector<float> values = initial(param_of({10000}, {.type = Type::kUniform, .low = -1, .high = 3}));
  EXPECT_THAT(values, Each(testing::AllOf(testing::Ge(-1), testing::Le(3))));
  EXPECT_NEAR(mean_of(values), 1, 0.07);  // six times 4 / sqrt(12 * 10000)
  EXPECT_LT(*std::min_element(values.begin(), values.end()), -0.99f);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), 2.99f);
}

TEST(Initializer, XavierIsUniformWithinItsLimit) {
  Param param = param_of({10000}, {.type = Type::kXavier});
  param.fan_in = 20;
  param.fan_out = 4;
  const std::vector<float> values = initial(param);
  EXPECT_THAT(values, Each(testing::AllOf(testing::Ge(-0.5), testing::Le(0.5))));
  EXPECT_GT(*std::max_element(values.begin(), values.end()), 0.499f);
}

TEST(Initializer, MsraHasTheDeviationOfItsFanIn) {
  Param param = param_of({40000}, {.type = Type::kMsra});
  param.fan_in = 8;
  EXPECT_NEAR(deviation_of(initial(param)), 0.5, 0.02);
}

// 5 outputs of 3 inputs, kept as [out, kh, kw, in].
TEST(Initializer, DiracPassesInputsOn) {
  Param param = param_of({5, 3, 2, 3}, {.type = Type::kDirac});
  param.fan_in = 18;
  const std::vector<float> values = initial(param);
  for (size_t o = 0; o < 3; ++o)
    for (size_t i = 0; i < 18; ++i) EXPECT_EQ(values[o * 18 + i], i == (1 * 2 + 1) * 3 + o ? 1 : 0) << o << " " << i;
  const std::vector<float> drawn(values.begin() + 3 * 18, values.end());
  EXPECT_THAT(drawn, Each(testing::AllOf(testing::Ge(-0.2358), testing::Le(0.2358))));
  EXPECT_GT(deviation_of(drawn), 0.1);
  param.part = {1, 4};
  EXPECT_EQ(initial(param), std::vector<float>(values.begin() + 18, values.begin() + 4 * 18));
}

TEST(Initializer, DependsOnSeedAndName) {
  Param param = param_of({64}, {.type = Type::kGaussian, .std = 1});
  const std::vector<float> first = initial(param, 1);
  EXPECT_EQ(initial(param, 1), first);
  EXPECT_NE(initial(param, 2), first);
  param.name = "other.weight";
  EXPECT_NE(initial(param, 1), first);
}

TEST(Initializer, PartGetsTheRowsOfTheWhole) {
  const Initializer gaussian{.type = Type::kGaussian, .std = 1};
  for (const Shape& shape : {Shape{6, 5}, Shape{6, 2, 3, 4}}) {
    const std::vector<float> whole = initial(param_of(shape, gaussian));
    Param some = param_of(shape, gaussian);
    some.part = {2, 5};
    const int64_t row = shape.row_elements();
    EXPECT_EQ(initial(some), std::vector<float>(whole.begin() + 2 * row, whole.begin() + 5 * row));
  }
}

TEST(Initializer, DrawsTheSameWhereverPiecesBegin) {
  const Initializer gaussian{.type = Type::kGaussian, .std = 1};
  const Shape shape{kPieceBytes / 12 + 1000, 3};
  Param some = param_of(shape, gaussian);
  some.part = {777, shape.rows()};
  const std::vector<float> whole = initial(param_of(shape, gaussian));
  EXPECT_EQ(initial(some), std::vector<float>(whole.begin() + 777 * 3, whole.end()));
}

TEST(Pieces, AreAsManyWholeRowsAsFitAndAtLeastOne) {
  const int64_t third = kPieceBytes / 12;
  EXPECT_EQ(pieces_of({10 * third, 3}, {5, 2 * third + 7}),
            (std::vector<Slice>{{5, third + 5}, {third + 5, 2 * third + 5}, {2 * third + 5, 2 * third + 7}}));
  EXPECT_EQ(pieces_of({3, kPieceBytes}, {0, 2}), (std::vector<Slice>{{0, 1}, {1, 2}}));
  EXPECT_TRUE(pieces_of({3, 5}, {2, 2}).empty());
  EXPECT_EQ(largest_piece({10 * third, 3}), third * 3);
  EXPECT_EQ(largest_piece({3, kPieceBytes}), kPieceBytes);
  EXPECT_EQ(largest_piece({3, 5}), 15);
}

TEST(Pieces, HaveACommonPartThatMayBeEmpty) {
  EXPECT_EQ(common_part({2, 7}, {5, 9}), (Slice{5, 7}));
  EXPECT_EQ(common_part({2, 7}, {3, 4}), (Slice{3, 4}));
  EXPECT_EQ(common_part({2, 4}, {6, 9}).size(), 0);
  EXPECT_EQ(common_part({6, 9}, {2, 4}).size(), 0);
}

TEST(Initializer, IsDrawnInFileOrder) {
  const Initializer gaussian{.type = Type::kGaussian, .std = 1};
  Param images = param_of({2, 3, 3, 4}, gaussian);
  images.initialize(1);
  std::vector<float> file(72);
  images.to_file_order(2, images.value.data(), file.data());
  EXPECT_EQ(file, initial(param_of({2, 36}, gaussian)));
}

TEST(Param, FilesAreChannelsFirst) {
  const Param param = param_of({1, 2, 2, 3});  // memory: h, w, c; each value is 100 h + 10 w + c
  const std::vector<float> memory = {0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112};
  std::vector<float> file(12), back(12);
  param.to_file_order(1, memory.data(), file.data());
  EXPECT_THAT(file, ElementsAre(0, 10, 100, 110, 1, 11, 101, 111, 2, 12, 102, 112));
  param.from_file_order(1, file.data(), back.data());
  EXPECT_EQ(back, memory);
}

TEST(Param, MatricesKeepTheirOrderInFiles) {
  const Param param = param_of({2, 3});
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  std::vector<float> file(6);
  param.to_file_order(2, memory.data(), file.data());
  EXPECT_EQ(file, memory);
}

TEST(Param, SomeRowsAreReorderedAsThoseOfTheWhole) {
  const Param param = param_of({3, 2, 1, 2});
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> file(8), back(8);
  param.to_file_order(2, memory.data(), file.data());
  EXPECT_THAT(file, ElementsAre(1, 3, 2, 4, 5, 7, 6, 8));
  param.from_file_order(2, file.data(), back.data());
  EXPECT_EQ(back, memory);
}

TEST(Param, SomeColumnsAreKeptInMemoryOrder) {
  Param param = param_of({3, 2, 1, 2});  // in files the middle two of a row change places
  param.part = {1, 3};
  param.columns = Slice{1, 3};
  EXPECT_EQ(param.shape(), (Shape{2, 2}));
  const std::vector<float> file = {1, 2, 3, 4, 5, 6, 7, 8};  // rows 1 and 2
  EXPECT_THAT(download(param.kept_of(2, file.data())), ElementsAre(3, 2, 7, 6));
  param.columns = Slice{2, 2};
  EXPECT_EQ(param.kept_of(2, file.data()).shape(), (Shape{2, 0}));
}

TEST(Initializer, ColumnsAreThoseOfTheWhole) {
  const Initializer gaussian{.type = Type::kGaussian, .std = 1};
  for (const Shape& shape : {Shape{4, 7}, Shape{3, 2, 2, 3}}) {
    const std::vector<float> whole = initial(param_of(shape, gaussian));
    Param some = param_of(shape, gaussian);
    some.columns = Slice{2, 5};
    std::vector<float> wanted;
    for (int64_t row = 0; row < shape.rows(); ++row) {
      const auto first = whole.begin() + row * shape.row_elements();
      wanted.insert(wanted.end(), first + 2, first + 5);
    }
    EXPECT_EQ(initial(some), wanted);
  }
}

TEST(Param, FirstContributionOverwritesAndLaterOnesAdd) {
  Param param = param_of({2});
  param.allocate();
  EXPECT_EQ(param.take_beta(), 0);
  EXPECT_EQ(param.take_beta(), 1);
}

TEST(Param, AGradientInBf16TakesOneContribution) {
  Param param = param_of({2});
  param.grad_type = DType::kBF16;
  param.allocate();
  EXPECT_EQ(param.grad.dtype(), DType::kBF16);
  EXPECT_EQ(param.value.dtype(), DType::kF32);
  EXPECT_EQ(param.take_beta(), 0);
  EXPECT_THAT(message_of([&] { param.take_beta(); }), testing::HasSubstr("sums of gradients are f32, not bf16"));
}

TEST(Param, InitializingRaisesTheVersion) {
  Param param = param_of({2});
  param.initialize(1);
  EXPECT_EQ(param.version, 1u);
}

using ParamTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, ParamTest, testing::ValuesIn(devices()), device_name);

TEST_P(ParamTest, HasTheSameInitialValuesOnEveryDevice) {
  const Initializer gaussian{.type = Type::kGaussian, .std = 1};
  Param param = param_of({3, 2, 2, 4}, gaussian);
  param.allocate(device());
  param.initialize(1);
  EXPECT_EQ(param.value.device(), device());
  EXPECT_EQ(param.grad.device(), device());
  EXPECT_FALSE(param.copy16.defined());
  EXPECT_EQ(download(param.value), initial(param_of({3, 2, 2, 4}, gaussian)));
}

TEST_P(ParamTest, InBf16ItKeepsACopyRoundedToNearest) {
  Param param = param_of({4}, {.type = Type::kConstant, .value = 1.0 / 3});
  param.cpu_reads_copy16 = true;
  param.allocate({device(), Precision::kBf16});
  param.initialize(1);
  EXPECT_EQ(param.value.dtype(), DType::kF32);
  EXPECT_EQ(param.copy16.dtype(), DType::kBF16);
  EXPECT_THAT(download(param.value), Each(1.0f / 3));
  EXPECT_THAT(download(param.copy16), Each(0.333984375f));  // 171 / 512
  // Halfway between 1 and 1 + 2^-7: to the even one; and a NaN stays one.
  param.set_value(upload({1.00390625f, 1.01171875f, -2.5f, NAN}, {4}, Device::kCpu));
  EXPECT_EQ(param.version, 2u);
  const std::vector<float> copy = download(param.copy16);
  EXPECT_EQ(copy[0], 1.0f);
  EXPECT_EQ(copy[1], 1.015625f);
  EXPECT_EQ(copy[2], -2.5f);
  EXPECT_TRUE(std::isnan(copy[3]));
}

TEST(Param, OnTheCpuThereIsNoCopyInBf16ThatNoOpReads) {
  Param param = param_of({4});
  param.allocate({Device::kCpu, Precision::kBf16});
  param.initialize(1);
  EXPECT_FALSE(param.copy16.defined());
}

TEST(ParamKeys, MultipliersAndInitAreRead) {
  Config config = Config::text("lr = 2.0\ndecay = 0\ninit = { type = \"uniform\", low = -1, high = 2 }");
  Param param;
  read_multipliers(config, param);
  config.finish();
  EXPECT_EQ(param.lr_mult, 2);
  EXPECT_EQ(param.decay_mult, 0);
  EXPECT_EQ(param.init.type, Type::kUniform);
  EXPECT_EQ(param.init.low, -1);
  EXPECT_EQ(param.init.high, 2);
}

TEST(ParamKeys, DefaultsAreOneAndTheLayersInit) {
  Config config = Config::text("");
  Param param;
  param.init = {.type = Type::kConstant, .value = 7};
  read_multipliers(config, param);
  EXPECT_EQ(param.lr_mult, 1);
  EXPECT_EQ(param.decay_mult, 1);
  EXPECT_EQ(param.init.value, 7);
}

TEST(ParamKeys, InitThatLacksItsKeyIsAnError) {
  Config config = Config::text("init = { type = \"gaussian\" }");
  Param param;
  EXPECT_THAT(message_of([&] { read_multipliers(config, param); }), HasSubstr("key 'std' is missing"));
}

TEST(ParamKeys, KeyOfAnotherInitIsAnError) {
  Config config = Config::text("init = { type = \"xavier\", std = 1 }");
  Param param;
  EXPECT_THAT(message_of([&] { read_multipliers(config, param); }), HasSubstr("no key 'std'"));
}

}  // namespace
}  // namespace owt::param_test
