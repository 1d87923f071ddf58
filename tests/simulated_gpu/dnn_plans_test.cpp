#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>

#include "tests/simulated_gpu/dnn_test.h"

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

namespace simulated_gpu::dnn_plans_test {
namespace {

class DnnPlans : public Dnn {
 protected:
  DnnPlans() {
    of_x_ = x_.fill(stream_, 1);
    w_.fill(stream_, 2);
    forward(conv_, x_, w_, y_);
  }
  std::string json(const Object& plan) {
    int64_t size = 0;
    cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &size,
                             nullptr);
    std::string text(static_cast<size_t>(size), ' ');
    cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, size, &size,
                             text.data());
    return text;
  }
  std::unique_ptr<Object> plan_from(const std::string& text) {
    auto plan = std::make_unique<Object>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan->set(static_cast<cudnnBackendAttributeName_t>(400), CUDNN_TYPE_HANDLE, std::vector{handle_});
    plan->set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
              std::vector<char>(text.begin(), text.end()));
    return plan;
  }
  Doubles result(const Candidate& made) {
    EXPECT_EQ(run(*made.plan, made.workspace, {&x_, &w_, &y_}), CUDNN_STATUS_SUCCESS);
    return y_.read(stream_);
  }

  const Conv conv_;
  const TestTensor x_{1, conv_.x}, w_{2, conv_.w}, y_{3, conv_.y()};
  Doubles of_x_;
};

// The simulator keeps the sums of the last run.
TEST_F(DnnPlans, ComputeWhatIsInTheMemoryAtEachRun) {
  const auto all = candidates();
  const Candidate& exact = all.at(2);
  const Doubles first = result(exact);
  EXPECT_EQ(result(exact), first);
  w_.fill(stream_, 3);
  const Doubles second = result(exact);
  EXPECT_NE(second, first);
  x_.fill(stream_, 4);
  EXPECT_NE(result(exact), second);
  x_.fill(stream_, 1);
  w_.fill(stream_, 2);
  EXPECT_EQ(result(exact), first);
}

TEST_F(DnnPlans, ComeFromEnginesThatDiffer) {
  const auto all = candidates();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_THAT(all[0].notes, ElementsAre(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
  EXPECT_NE(result(all[0]), result(all[0]));
  EXPECT_THAT(all[1].notes, ElementsAre(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
  EXPECT_GT(all[1].workspace, 1 << 20);
  EXPECT_EQ(result(all[1]), result(all[1]));
  EXPECT_THAT(result(all[1]), Pointwise(DoubleNear(2e-2), result(all[2])));
  EXPECT_NE(result(all[1]), result(all[2]));  // rounded to tf32
  EXPECT_EQ(candidates(CUDNN_HEUR_MODE_FALLBACK).size(), 2u);
}

TEST_F(DnnPlans, ComeBackFromJson) {
  const auto all = candidates();
  const Doubles wanted = result(all[2]);
  const auto plan = plan_from(json(*all[2].plan));
  ASSERT_EQ(plan->finalize(), CUDNN_STATUS_SUCCESS);
  y_.write(Doubles(wanted.size()), stream_);
  ASSERT_EQ(run(*plan, 0, {&x_, &w_, &y_}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(y_.read(stream_), wanted);
}

TEST_F(DnnPlans, DoNotComeBackFromDamagedJson) {
  std::string text = json(*candidates()[2].plan);
  EXPECT_NE(plan_from(text.substr(0, text.size() / 2))->finalize(), CUDNN_STATUS_SUCCESS);
  const size_t stride = text.find("strides");
  text.replace(stride, 1, "S");
  EXPECT_NE(plan_from(text)->finalize(), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(plan_from("{}")->finalize(), CUDNN_STATUS_SUCCESS);
}

TEST_F(DnnPlans, NeedTheMemoryOfEveryTensorAndTheirWorkspace) {
  const auto all = candidates();
  EXPECT_EQ(run(*all[2].plan, 0, {&x_, &w_}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(run(*all[1].plan, 0, {&x_, &w_, &y_}), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
  char words[200];
  cudnnGetLastErrorString(words, sizeof words);
  EXPECT_STREQ(words, "the workspace is not within device memory");
}

}  // namespace
}  // namespace simulated_gpu::dnn_plans_test
