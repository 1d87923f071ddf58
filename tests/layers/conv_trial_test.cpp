#include "layers/conv_cpu/conv_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/team_size.h"

namespace owt::conv_trial_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::Gt;
using testing::Lt;

using Timing = ConvChoices::Timing;

constexpr auto kDirect = ConvAlgorithm::kDirect, kFewChannels = ConvAlgorithm::kFewChannels,
               kDepthwise = ConvAlgorithm::kDepthwise, kWinograd = ConvAlgorithm::kWinograd;

// 3x3 convolutions of two images, of f32.
ConvShape shape_of(int64_t channels) { return {{12, 12, channels, 12, 12, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 2, true}; }

TEST(ConvTrial, CandidatesAreDirectAndWhatElseCanComputeThePass) {
  EXPECT_THAT(conv_candidates(shape_of(3), PassKind::kForward), ElementsAre(kDirect, kFewChannels));
  EXPECT_THAT(conv_candidates(shape_of(3), PassKind::kBackwardData), ElementsAre(kDirect));
  EXPECT_THAT(conv_candidates(shape_of(32), PassKind::kForward), ElementsAre(kDirect, kWinograd));
  EXPECT_EQ(make_conv_pass(shape_of(32), PassKind::kForward, kFewChannels), nullptr);
  for (const auto kind : {PassKind::kForward, PassKind::kBackwardData, PassKind::kBackwardWeights})
    for (const auto images : {DType::kF32, DType::kBF16}) {
      ConvShape depthwise = shape_of(32);
      depthwise.geometry.groups = 32;
      depthwise.images = images;
      EXPECT_THAT(conv_candidates(depthwise, kind), ElementsAre(kDirect, kDepthwise));
    }
}

TEST(ConvTrial, MeasuresEachCandidateAndItsErrorAgainstTheFirst) {
  const TeamSize team(2);
  for (const auto kind : {PassKind::kForward, PassKind::kBackwardData, PassKind::kBackwardWeights}) {
    const std::vector<Timing> measured = measure_conv(shape_of(32), kind, {kDirect, kWinograd}, 1);
    EXPECT_THAT(measured, ElementsAre(Field(&Timing::algorithm, kDirect), Field(&Timing::algorithm, kWinograd)));
    EXPECT_THAT(measured, Each(Field(&Timing::ms, Gt(0)))) << name_of(kind);
    EXPECT_EQ(measured.at(0).error, 0) << name_of(kind);
    EXPECT_THAT(measured.at(1).error, AllOf(Gt(0), Lt(1e-5))) << name_of(kind);
  }
}

}  // namespace
}  // namespace owt::conv_trial_test
